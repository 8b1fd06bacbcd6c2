package handlers

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

const (
	headerIdempotencyKey      = "Idempotency-Key"
	headerIdempotencyReplayed = "Idempotency-Replayed"
	maxIdempotencyKey         = 255 // characters
	minAnonymousKey           = 16  // characters of the key of somebody who is not logged in

	// claimMargin is how much longer than its deadline a request holds its key. Nothing but comfort depends on it: who
	// comes later than that is rolled back (see models.Claim).
	claimMargin = 5 * time.Second
	// keepTimeout bounds storing an answer, or giving a key back, after the request's own deadline too.
	keepTimeout = 3 * time.Second
)

// idempotency carries out once what is asked for several times with the same Idempotency-Key.
//
// A key belongs to the user who sent it, or to the anonymous, who have all keys in common: theirs must be too long for two
// of them to hit on the same one. Only success is remembered: a request that was refused
// had no effect, and sending it again with the same key carries it out if it is in order by then.
type idempotency struct{ key []byte } // of the installation

func newIdempotency(installKey []byte) (idempotency, error) {
	key, err := hkdf.Key(sha256.New, installKey, nil, "likewise idempotency", sha256.Size)
	if err != nil {
		return idempotency{}, fmt.Errorf("derive key: %w", err)
	}
	return idempotency{key}, nil
}

// sealedRequest is an idempotent request with what opens its stored answer. Answers hold tokens, and requests
// passwords; so both are protected with keys derived from the Idempotency-Key, of which the database has but a hash.
type sealedRequest struct {
	models.IdempotentRequest
	answers cipher.AEAD
}

// seal prepares the request for the database.
func (i idempotency) seal(c *fiber.Ctx, key string) (*sealedRequest, error) {
	scope := "user " + strconv.FormatInt(viewerID(c), 10) + " "
	secret, err := hkdf.Key(sha256.New, []byte(key), i.key, scope, 3*sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	block, err := aes.NewCipher(secret[:sha256.Size])
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	r := &sealedRequest{}
	if r.answers, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	r.Key = sha256.Sum256(secret[2*sha256.Size:])
	body := hmac.New(sha256.New, secret[sha256.Size:2*sha256.Size])
	fmt.Fprintf(body, "%s %s\n", c.Method(), c.OriginalURL()) // a URL has no line break
	body.Write(c.BodyRaw())
	body.Sum(r.Body[:0])
	return r, nil
}

// keptAnswer is an answer as it is stored.
type keptAnswer struct {
	Status int               `json:"status"`
	Header map[string]string `json:"header"`
	Body   []byte            `json:"body"`
}

var keptHeaders = []string{fiber.HeaderContentType, fiber.HeaderLocation, fiber.HeaderETag}

// once is between the authorisation of a POST and its handler.
func (s *Server) once(c *fiber.Ctx) error {
	key, err := idempotencyKey(c)
	if key == "" || err != nil {
		return err
	}
	request, err := s.idempotency.seal(c, key)
	if err != nil {
		return err
	}
	claim, outcome, err := s.store.ClaimRequest(c.UserContext(), request.IdempotentRequest, s.timeout+claimMargin)
	if err != nil {
		if models.ErrorCode(err) == models.CodeConflict {
			c.Set(fiber.HeaderRetryAfter, "1")
		}
		return err
	}
	if outcome != nil {
		return s.replay(c, request, outcome)
	}
	ctx := c.UserContext()
	c.SetUserContext(models.WithClaim(ctx, claim))
	err = c.Next()
	keeping, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	if err == nil {
		s.keepAnswer(keeping, c, request, claim)
		return nil
	}
	outcome, release := s.store.ReleaseClaim(keeping, claim)
	if release != nil {
		s.log.Warn("idempotency key not released", "request_id", requestID(c), "error", release)
	}
	if outcome != nil { // the error came after the COMMIT, or was that of the COMMIT
		c.SetUserContext(keeping)
		if s.replay(c, request, outcome) == nil {
			return nil
		}
	}
	return err
}

// idempotencyKey is "" when the request has none, and the request is then passed on.
func idempotencyKey(c *fiber.Ctx) (string, error) {
	sent := c.Request().Header.PeekAll(headerIdempotencyKey)
	if len(sent) == 0 {
		return "", c.Next()
	}
	key := string(sent[0])
	least := 1
	if viewerID(c) == 0 {
		least = minAnonymousKey
	}
	unprintable := strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
	if len(sent) > 1 || len(key) < least || len(key) > maxIdempotencyKey || unprintable {
		return "", malformed("The Idempotency-Key cannot be read.", models.FieldError{Field: headerIdempotencyKey,
			Message: fmt.Sprintf("must be sent once, with %d to %d printable ASCII characters", least, maxIdempotencyKey)})
	}
	return key, nil
}

// keepAnswer stores the answer. When that fails a repetition is answered from what was created, if anything was.
func (s *Server) keepAnswer(ctx context.Context, c *fiber.Ctx, request *sealedRequest, claim *models.Claim) {
	kept := keptAnswer{Status: c.Response().StatusCode(), Header: map[string]string{}, Body: c.Response().Body()}
	for _, name := range keptHeaders {
		if value := c.Response().Header.Peek(name); len(value) > 0 {
			kept.Header[name] = string(value)
		}
	}
	plain, err := json.Marshal(kept)
	if err == nil {
		sealed := request.answers.Seal(nil, nil, plain, request.Key[:])
		err = s.store.StoreAnswer(ctx, claim, sealed)
	}
	if err != nil {
		s.log.Warn("idempotent answer not stored", "request_id", requestID(c), "error", err)
	}
}

// replay answers with what became of the request when it was sent before.
func (s *Server) replay(c *fiber.Ctx, request *sealedRequest, outcome *models.Outcome) error {
	if outcome.Answer == nil {
		err := s.replyCreated(c, outcome.Resource, outcome.ResourceID)
		switch models.ErrorCode(err) {
		case models.CodeNotFound, models.CodeUnauthorized: // deleted since; the password is another by now
			return &models.Error{Code: models.CodeConflict, Err: err,
				Message: "The request was carried out, but its answer was lost, and what it created cannot be shown any more."}
		}
		if err == nil {
			c.Set(headerIdempotencyReplayed, "true")
		}
		return err
	}
	plain, err := request.answers.Open(nil, nil, outcome.Answer, request.Key[:])
	if err != nil {
		return fmt.Errorf("open stored answer: %w", err)
	}
	var kept keptAnswer
	if err := json.Unmarshal(plain, &kept); err != nil {
		return fmt.Errorf("read stored answer: %w", err)
	}
	for name, value := range kept.Header {
		c.Set(name, value)
	}
	c.Set(headerIdempotencyReplayed, "true")
	return c.Status(kept.Status).Send(kept.Body)
}

// replyCreated answers a request whose answer was lost from what it created, as that is now.
func (s *Server) replyCreated(c *fiber.Ctx, kind models.ResourceKind, id int64) error {
	switch kind {
	case models.ResourcePost:
		post, err := s.store.PostByID(c.UserContext(), viewerID(c), id)
		if err != nil {
			return err
		}
		return s.replyCreatedPost(c, post)
	case models.ResourceComment:
		comment, err := s.store.CommentByID(c.UserContext(), viewerID(c), id)
		if err != nil {
			return err
		}
		return s.replyCreatedComment(c, comment)
	case models.ResourceUser:
		user, err := s.store.UserByID(c.UserContext(), id)
		if err != nil {
			return err
		}
		return s.replyCreatedUser(c, user)
	case models.ResourceOperation:
		operation, err := s.store.OperationByID(c.UserContext(), id)
		if err != nil {
			return err
		}
		return replyRequestedOperation(c, operation)
	case models.ResourceToken:
		token, secret, err := s.store.ReissueToken(c.UserContext(), viewerID(c), id)
		if err != nil {
			return err
		}
		return replyCreatedToken(c, token, secret)
	}
	return fmt.Errorf("nothing is known of a %q that was created", kind)
}

func (s *Server) replyCreatedPost(c *fiber.Ctx, post *models.Post) error {
	if err := s.replyPost(c, http.StatusCreated, post); err != nil {
		return err
	}
	c.Set(fiber.HeaderLocation, "/v1/posts/"+strconv.FormatInt(post.ID, 10))
	return nil
}

func (s *Server) replyCreatedComment(c *fiber.Ctx, comment *models.Comment) error {
	if err := s.replyComment(c, http.StatusCreated, comment); err != nil {
		return err
	}
	c.Set(fiber.HeaderLocation, "/v1/comments/"+strconv.FormatInt(comment.ID, 10))
	return nil
}

// replyCreatedUser opens another session, because the token of the first went with the answer. The password may have
// been changed since.
func (s *Server) replyCreatedUser(c *fiber.Ctx, user *models.User) error {
	var in models.Registration
	if err := decode(c, fields{"username": &in.Username, "email": &in.Email, "password": &in.Password}); err != nil {
		return err
	}
	if ok, err := s.passwords.match(c.UserContext(), in.Password, user.PasswordHash); err != nil {
		return err
	} else if !ok {
		return models.Errorf(models.CodeUnauthorized, "The login or the password is wrong.")
	}
	token, err := s.store.Login(c.UserContext(), user, userAgent(c))
	if err != nil {
		return err
	}
	return s.replyRegistered(c, user, token)
}
