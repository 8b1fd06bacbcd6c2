package handlers

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
	"likewise/models/db"
)

// draftJSON is a draft of a new post, or of a comment if it has a post_id.
type draftJSON struct {
	Key       string      `json:"key"`
	PostID    *int64      `json:"post_id"`
	ParentID  *int64      `json:"parent_id"`
	Title     string      `json:"title"`
	Content   string      `json:"content"`
	Tags      models.Tags `json:"tags"`
	Version   int64       `json:"version"`
	CreatedAt time.Time   `json:"created_at"`
	UpdatedAt time.Time   `json:"updated_at"`
}

func newDraftJSON(d *models.Draft) draftJSON {
	return draftJSON{
		Key: d.Key, PostID: present(d.Text.PostID), ParentID: present(d.Text.ParentID), Title: d.Text.Title,
		Content: d.Text.Content, Tags: d.Text.Tags, Version: d.Version, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt,
	}
}

func replyDraft(c *fiber.Ctx, status int, d *models.Draft) error {
	c.Set(fiber.HeaderETag, etag(d.Version))
	return c.Status(status).JSON(newDraftJSON(d))
}

// draftKey reads the key in the path. It returns CodeNotFound if no draft can have it.
func draftKey(c *fiber.Ctx) (string, error) {
	if key := c.Params("key"); models.ValidDraftKey(key) {
		return strings.Clone(key), nil
	}
	return "", models.Errorf(models.CodeNotFound, "There is no such draft.")
}

// postedDraft is the key of the draft of a text that is posted; nil for none.
type postedDraft struct{ key *string }

// validate returns CodeInvalid if no draft can have the key.
func (d postedDraft) validate() error {
	if d.key == nil || models.ValidDraftKey(*d.key) {
		return nil
	}
	return models.Invalid("draft", models.BadFormat(models.FormatDraft, "must be the key of a draft"))
}

// dropDraft deletes the draft of a text that was posted. If that fails, the draft stays, as if its client had not named
// it.
func (s *Server) dropDraft(c *fiber.Ctx, d postedDraft) {
	if d.key == nil {
		return
	}
	if err := s.reader.DeleteDraft(db.Aside(c.UserContext()), viewerID(c), *d.key); err != nil {
		s.log.Warn("the draft of a posted text not deleted", "request_id", requestID(c), "error", err)
	}
}

// listDrafts lists the viewer's drafts, the latest created first.
func (s *Server) listDrafts(c *fiber.Ctx) error {
	return replyList(s, c, pages.Listing[models.Draft, draftJSON]{
		Name: pages.OfUser("drafts", viewerID(c)),
		Read: func(ctx context.Context, at pages.Position) ([]models.Draft, *models.ListKey, error) {
			return pages.All(s.reader.Drafts(ctx, viewerID(c), at.ID(), at.Limit))
		},
		Key:  func(d *models.Draft) models.ListKey { return models.ListKey{ID: d.ID} },
		Show: pages.Each(newDraftJSON),
	})
}

func (s *Server) readDraft(c *fiber.Ctx) error {
	key, err := draftKey(c)
	if err != nil {
		return err
	}
	d, err := s.reader.DraftByKey(c.UserContext(), viewerID(c), key)
	if err != nil {
		return err
	}
	return replyDraft(c, http.StatusOK, d)
}

// saveDraft creates a draft, or replaces the version that If-Match names.
func (s *Server) saveDraft(c *fiber.Ctx) error {
	key, err := draftKey(c)
	if err != nil {
		return err
	}
	matches, missing := ifMatch(c)
	if missing != nil && models.ErrorCode(missing) != models.CodeIfMatch {
		return missing
	}
	var text models.DraftText
	var postID, parentID *int64
	err = decode(c, fields{
		"post_id": &postID, "parent_id": &parentID, "title": lineOf{&text.Title}, "content": &text.Content,
		"tags": (*[]string)(&text.Tags),
	})
	if err != nil {
		return err
	}
	text.PostID, text.ParentID, text.Tags = valueOf(postID), valueOf(parentID), models.NormalTags(text.Tags)
	if err := text.Validate(); err != nil {
		return err
	}
	d, created, err := s.reader.SaveDraft(c.UserContext(), viewerID(c), key, text, func(now *models.Draft) error {
		switch {
		case now == nil && missing == nil:
			return models.Errorf(models.CodeNotFound,
				"There is no such draft: it was deleted since you read it. Without If-Match, it is created again.")
		case now == nil:
			return nil
		case missing != nil:
			return missing
		}
		return matches(now.Version)
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return replyDraft(c, status, d)
}

// deleteDraft deletes a draft. Repeating it changes nothing.
func (s *Server) deleteDraft(c *fiber.Ctx) error {
	key, err := draftKey(c)
	if err != nil {
		return err
	}
	if err := s.reader.DeleteDraft(c.UserContext(), viewerID(c), key); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}
