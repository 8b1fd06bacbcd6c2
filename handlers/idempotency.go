package handlers

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

const (
	headerIdempotencyKey      = "Idempotency-Key"
	headerIdempotencyReplayed = "Idempotency-Replayed"
	maxIdempotencyKey         = 255 // characters
	minAnonymousKey           = 16  // characters of an anonymous key

	// leaseMargin is how much longer than its deadline a request holds its key. Correctness does not depend on it: a
	// request that would commit later is rolled back (see db.RequestLease).
	leaseMargin = 5 * time.Second
	// finishTimeout bounds the work on the key after the request, even after the request's own deadline.
	finishTimeout = 3 * time.Second
)

// idempotency carries out a request once that is sent several times with the same Idempotency-Key.
//
// A key belongs to the user who sent it, and that of a logout to the token that it ends. Anonymous clients share their
// keys, so theirs must be long enough not to collide. Only success is recorded: a refused request had no effect, and a
// retry with the same key is processed as a new request.
//
// The record holds the effect and never the answer. A repeated request is answered from what MySQL holds now, so
// neither a text that was redacted meanwhile nor a token is stored for it.
type idempotency struct{ key []byte } // of the installation

func newIdempotency(installKey []byte) (idempotency, error) {
	key, err := hkdf.Key(sha256.New, installKey, nil, "likewise idempotency", sha256.Size)
	if err != nil {
		return idempotency{}, fmt.Errorf("derive key: %w", err)
	}
	return idempotency{key}, nil
}

// request returns the identity of the request in the database. A request may contain a password, so its hash is keyed
// by the Idempotency-Key, of which the database holds only a hash.
func (i idempotency) request(c *fiber.Ctx, key string) (r db.IdempotentRequest, err error) {
	secret, err := hkdf.Key(sha256.New, []byte(key), i.key, keyOwner(c)+" ", 2*sha256.Size)
	if err != nil {
		return r, fmt.Errorf("derive key: %w", err)
	}
	r.Key = [32]byte(secret[sha256.Size:])
	body := hmac.New(sha256.New, secret[:sha256.Size])
	fmt.Fprintf(body, "%s %s\n", c.Method(), c.OriginalURL()) // a URL contains no line break
	body.Write(c.BodyRaw())
	body.Sum(r.Body[:0])
	return r, nil
}

// keyOwner returns the name of the owner of the request's keys.
func keyOwner(c *fiber.Ctx) string {
	if token, ok := c.Locals(tokenKeyOwner).([32]byte); ok {
		return "token " + hex.EncodeToString(token[:])
	}
	return "user " + strconv.FormatInt(viewerID(c), 10)
}

// repeatLogout runs before the authorization of a logout, whose token is no longer valid when the request is repeated.
// So the keys of a logout belong to its token. A repeated logout succeeds only if the token was logged out with that
// key.
func (s *Server) repeatLogout(c *fiber.Ctx) error {
	token, err := bearer(c)
	if err != nil {
		return c.Next()
	}
	c.Locals(tokenKeyOwner, models.HashToken(token))
	refusal := c.Next()
	if models.ErrorCode(refusal) != models.CodeUnauthorized {
		return refusal
	}
	key, err := idempotencyKey(c)
	if err != nil || key == "" {
		return refusal
	}
	request, err := s.idempotency.request(c, key)
	if err != nil {
		return err
	}
	done, err := s.store.CarriedOut(c.UserContext(), request)
	if err != nil {
		return err
	}
	if !done {
		return refusal
	}
	return replay(c, replyNothing)
}

// once runs between the authorization of a POST and its handler. repeat answers a request that was carried out before,
// from what MySQL holds: by the path, db.Made or db.KeptAnswer. It has no effect of its own. It returns
// CodeNotFound if the object of the answer no longer exists.
func (s *Server) once(repeat fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		key, err := idempotencyKey(c)
		if err != nil {
			return err
		}
		if key == "" {
			return c.Next()
		}
		err = s.carryOut(c, key, repeat)
		if errors.Is(err, db.ErrKeyInUse) {
			c.Set(fiber.HeaderRetryAfter, "1")
		}
		return err
	}
}

func (s *Server) carryOut(c *fiber.Ctx, key string, repeat fiber.Handler) error {
	request, err := s.idempotency.request(c, key)
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	lease, err := s.store.LeaseRequest(ctx, request, s.timeout+leaseMargin)
	if err != nil {
		return err
	}
	c.SetUserContext(db.WithRequestLease(ctx, lease))
	if lease.Done() {
		return replay(c, repeat)
	}
	err = c.Next()
	// The key is finished or released even if the session has ended.
	ending, cancel := context.WithTimeout(db.WithCaller(context.WithoutCancel(ctx), nil), finishTimeout)
	defer cancel()
	if err == nil {
		if err := s.store.FinishRequest(ending, lease); err != nil { // a retry carries it out again
			s.log.Warn("idempotent request not finished", "request_id", requestID(c), "error", err)
		}
		return nil
	}
	done, release := s.store.ReleaseRequest(ending, lease)
	if release != nil {
		s.log.Warn("idempotency key not released", "request_id", requestID(c), "error", release)
	}
	if done { // the error came after the COMMIT or from it
		c.SetUserContext(db.WithRequestLease(ending, lease))
		if replay(c, repeat) == nil {
			return nil
		}
	}
	return err
}

// idempotencyKey returns the key of the request; "" if it has none.
func idempotencyKey(c *fiber.Ctx) (string, error) {
	sent := c.Request().Header.PeekAll(headerIdempotencyKey)
	if len(sent) == 0 {
		return "", nil
	}
	key := string(sent[0])
	least := 1
	if keyOwner(c) == "user 0" {
		least = minAnonymousKey
	}
	unprintable := strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
	if len(sent) > 1 || len(key) < least || len(key) > maxIdempotencyKey || unprintable {
		fault := models.BadFormat(models.FormatKey,
			fmt.Sprintf("must be sent once, with %d to %d printable ASCII characters", least, maxIdempotencyKey))
		return "", malformed("The Idempotency-Key cannot be read.", fault.In(headerIdempotencyKey))
	}
	return key, nil
}

// replay answers a repeated request.
func replay(c *fiber.Ctx, repeat fiber.Handler) error {
	err := repeat(c)
	if models.ErrorCode(err) == models.CodeNotFound {
		return &models.Error{Code: models.CodeConflict, Err: err,
			Message: "The request was carried out before, and the object of its answer no longer exists."}
	}
	if err == nil {
		c.Set(headerIdempotencyReplayed, "true")
	}
	return err
}

// madeID returns the id of the object that the request created when it was carried out; 0 if it recorded none.
func madeID(c *fiber.Ctx) int64 {
	if made := db.Made(c.UserContext()); len(made) > 0 {
		return made[0]
	}
	return 0
}

// The functions below answer repeated requests (see once) that no GET answers.

func replyNothing(c *fiber.Ctx) error { return c.SendStatus(http.StatusNoContent) }

func replyKept(c *fiber.Ctx) error {
	kept, err := db.KeptAnswer(c.UserContext())
	if err != nil {
		return err
	}
	return c.JSON(kept)
}

// repeatRegistration checks the present password and opens a new session in place of the first. A registration that
// waits for its confirmation has none.
func (s *Server) repeatRegistration(c *fiber.Ctx) error {
	if s.registration == RegistrationVerified {
		return replyMailed(c)
	}
	var in models.Registration
	err := decode(c, fields{
		"username": lineOf{&in.Username}, "email": lineOf{&in.Email}, "password": &in.Password,
	})
	if err != nil {
		return err
	}
	user, token, err := s.openSession(c, in.Username, in.Password)
	if err != nil {
		return err
	}
	return s.replyRegistered(c, user, token)
}

func (s *Server) repeatToken(c *fiber.Ctx) error {
	token, secret, err := s.accounts.ReissueToken(c.UserContext(), viewerID(c), madeID(c))
	if err != nil {
		return err
	}
	return replyCreatedToken(c, token, secret)
}

func (s *Server) repeatPost(c *fiber.Ctx) error {
	post, err := s.content.PostByID(c.UserContext(), viewerID(c), madeID(c))
	if err != nil {
		return err
	}
	return s.replyCreatedPost(c, post, pages.ReadByViewer)
}

func (s *Server) repeatComment(c *fiber.Ctx) error {
	comment, err := s.content.CommentByID(c.UserContext(), viewerID(c), madeID(c))
	if err != nil {
		return err
	}
	if comment.PostComments, err = s.content.CommentsCount(c.UserContext(), comment.PostID); err != nil {
		return err
	}
	return s.replyCreatedComment(c, comment, pages.ReadByViewer)
}

func (s *Server) repeatReport(c *fiber.Ctx) error {
	id := madeID(c)
	reports, err := s.moderation.ReportsBy(c.UserContext(), viewerID(c), id+1, 1)
	if err != nil {
		return err
	}
	if len(reports) == 0 || reports[0].ID != id {
		return models.Errorf(models.CodeNotFound, "There is no such report.")
	}
	return replyReported(c, &reports[0])
}

func (s *Server) repeatRedaction(c *fiber.Ctx) error {
	r, err := s.moderation.RedactionByID(c.UserContext(), madeID(c))
	if err != nil {
		return err
	}
	return replyRequestedRedaction(c, r)
}

func (s *Server) repeatOperation(c *fiber.Ctx) error {
	operation, err := s.moderation.OperationByID(c.UserContext(), madeID(c))
	if err != nil {
		return err
	}
	return replyRequestedOperation(c, operation)
}

func (s *Server) repeatBan(c *fiber.Ctx) error {
	id, err := pathID(c, "user")
	if err != nil {
		return err
	}
	account, _, err := s.accounts.AccountByID(c.UserContext(), id)
	if err != nil {
		return err
	}
	ban := account.Ban(s.now())
	if ban == nil {
		return models.Errorf(models.CodeNotFound, "The user is not banned.")
	}
	return c.JSON(newBanJSON(ban))
}

func (s *Server) repeatVoid(c *fiber.Ctx) error {
	v, err := s.likes.LikeVoid(c.UserContext(), madeID(c))
	if err != nil {
		return err
	}
	return s.replyRequestedVoid(c, v)
}

func (s *Server) repeatRingVoids(c *fiber.Ctx) error {
	voids := []likes.LikeVoid{}
	for _, id := range db.Made(c.UserContext()) {
		v, err := s.likes.LikeVoid(c.UserContext(), id)
		if err != nil {
			return err
		}
		voids = append(voids, *v)
	}
	return replyRingVoids(c, voids)
}

func (s *Server) repeatLetter(c *fiber.Ctx) error {
	id, err := pathID(c, "dead letter")
	if err != nil {
		return err
	}
	letter, err := s.likes.DeadLetter(c.UserContext(), id)
	if err != nil {
		return err
	}
	return c.JSON(newLetterJSON(letter))
}
