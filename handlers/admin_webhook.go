package handlers

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

// webhookJSON is an endpoint that receives events, without its secret.
type webhookJSON struct {
	ID             int64                 `json:"id"`
	URL            string                `json:"url"`
	Events         []models.WebhookEvent `json:"events"`
	Active         bool                  `json:"active"`
	DisabledReason *string               `json:"disabled_reason"` // why a worker made it inactive; null otherwise
	FailingSince   *time.Time            `json:"failing_since"`
	PendingSince   *time.Time            `json:"pending_since"` // of the oldest event that waits
	PreviousUntil  *time.Time            `json:"previous_secret_until"`
	Version        int64                 `json:"version"`
	CreatedAt      time.Time             `json:"created_at"`
	UpdatedAt      time.Time             `json:"updated_at"`
}

// newWebhookJSON is an endpoint with its secret. Only the answers to its creation and to a rotation contain that.
type newWebhookJSON struct {
	webhookJSON
	Secret *string `json:"secret"` // null: the request was repeated
}

func showWebhook(w *models.Webhook) webhookJSON {
	return webhookJSON{
		w.ID, w.URL, w.Events, w.Active, present(w.DisabledReason), w.FailingSince, w.PendingSince,
		w.PreviousUntil, w.Version, w.CreatedAt, w.UpdatedAt,
	}
}

// deliveryJSON is an event for an endpoint, with the attempts to deliver it.
type deliveryJSON struct {
	ID         int64               `json:"id"`
	EventID    string              `json:"event_id"` // the header Webhook-Id
	Type       models.WebhookEvent `json:"type"`
	ObjectType string              `json:"object_type"`
	ObjectID   string              `json:"object_id"` // as text: the ids of claims are long
	State      string              `json:"state"`
	Attempts   int                 `json:"attempts"`
	Log        []attemptJSON       `json:"log"`    // the latest attempts, earliest first
	DueAt      *time.Time          `json:"due_at"` // of the next attempt; null unless it is pending
	CreatedAt  time.Time           `json:"created_at"`
	EndedAt    *time.Time          `json:"ended_at"`
}

type attemptJSON struct {
	At        time.Time `json:"at"`
	Status    *int      `json:"status"` // null: there was no answer
	LatencyMS int64     `json:"latency_ms"`
	Answer    string    `json:"answer"` // its first bytes
	Error     *string   `json:"error"`  // why there was no answer
}

func showDelivery(d *models.Delivery) deliveryJSON {
	out := deliveryJSON{
		ID: d.ID, EventID: models.WebhookEventID(d.ID), Type: d.Type, ObjectType: d.ObjectType,
		ObjectID: strconv.FormatInt(d.ObjectID, 10), State: d.State.String(), Attempts: d.Attempts,
		Log: make([]attemptJSON, len(d.AttemptLog)), CreatedAt: d.CreatedAt, EndedAt: d.EndedAt,
	}
	if d.State == models.DeliveryPending {
		out.DueAt = &d.DueAt
	}
	for i, a := range d.AttemptLog {
		out.Log[i] = attemptJSON{At: a.At, LatencyMS: a.LatencyMS, Answer: a.Answer, Error: present(a.Error)}
		if a.Status != 0 {
			out.Log[i].Status = &d.AttemptLog[i].Status
		}
	}
	return out
}

const kindWebhook = "webhook"

func (s *Server) listWebhooks(c *fiber.Ctx) error {
	return replyList(s, c, pages.Listing[models.Webhook, webhookJSON]{
		Name: "webhooks",
		Read: func(ctx context.Context, at pages.Position) ([]models.Webhook, *models.ListKey, error) {
			return pages.All(s.webhooks.Webhooks(ctx, at.ID(), at.Limit))
		},
		Key:  (*models.Webhook).Key,
		Show: pages.Each(showWebhook),
	})
}

func (s *Server) createWebhook(c *fiber.Ctx) error {
	in := models.WebhookSettings{Active: true}
	if err := decode(c, fields{"url": &in.URL, "events": &in.Events}); err != nil {
		return err
	}
	webhook, err := s.webhooks.CreateWebhook(c.UserContext(), viewerID(c), in, s.privateWebhooks)
	if err != nil {
		return err
	}
	return replyCreatedWebhook(c, webhook, secretOf(webhook))
}

func replyCreatedWebhook(c *fiber.Ctx, w *models.Webhook, secret *string) error {
	c.Set(fiber.HeaderLocation, "/v1/admin/webhooks/"+strconv.FormatInt(w.ID, 10))
	return replySecret(c, http.StatusCreated, w, secret)
}

// replySecret replies with an endpoint and its secret. A repeated request gets nil: the secret is shown once, and may
// have been changed by another admin since. An admin who has missed it changes it.
func replySecret(c *fiber.Ctx, status int, w *models.Webhook, secret *string) error {
	c.Set(fiber.HeaderETag, etag(w.Version))
	return c.Status(status).JSON(newWebhookJSON{showWebhook(w), secret})
}

func secretOf(w *models.Webhook) *string {
	secret := "whsec_" + base64.StdEncoding.EncodeToString(w.Secret)
	return &secret
}

func (s *Server) repeatWebhook(c *fiber.Ctx) error {
	webhook, err := s.webhooks.WebhookByID(c.UserContext(), madeID(c))
	if err != nil {
		return err
	}
	return replyCreatedWebhook(c, webhook, nil)
}

func (s *Server) webhookOfPath(c *fiber.Ctx) (*models.Webhook, error) {
	id, err := pathID(c, kindWebhook)
	if err != nil {
		return nil, err
	}
	return s.webhooks.WebhookByID(c.UserContext(), id)
}

func replyWebhook(c *fiber.Ctx, w *models.Webhook) error {
	c.Set(fiber.HeaderETag, etag(w.Version))
	return c.JSON(showWebhook(w))
}

func (s *Server) readWebhook(c *fiber.Ctx) error {
	webhook, err := s.webhookOfPath(c)
	if err != nil {
		return err
	}
	return replyWebhook(c, webhook)
}

func (s *Server) editWebhook(c *fiber.Ctx) error {
	matches, err := ifMatch(c)
	if err != nil {
		return err
	}
	var address *string
	var events models.WebhookTypes
	var active *bool
	if err := decode(c, fields{"url": &address, "events": &events, "active": &active}); err != nil {
		return err
	}
	webhook, err := s.webhookOfPath(c)
	if err != nil {
		return err
	}
	if err := matches(webhook.Version); err != nil {
		return err
	}
	in := webhook.Settings()
	if address != nil {
		in.URL = *address
	}
	if events != nil {
		in.Events = events
	}
	if active != nil {
		in.Active = *active
	}
	webhook, err = s.webhooks.UpdateWebhook(c.UserContext(), viewerID(c), webhook.ID, webhook.Version, in,
		s.privateWebhooks)
	if err != nil {
		return err
	}
	return replyWebhook(c, webhook)
}

// rotateSecret replaces the secret of an endpoint. The former one signs, too, for models.SecretOverlap.
func (s *Server) rotateSecret(c *fiber.Ctx) error {
	id, err := pathID(c, kindWebhook)
	if err != nil {
		return err
	}
	webhook, err := s.webhooks.RotateSecret(c.UserContext(), viewerID(c), id)
	if err != nil {
		return err
	}
	return replySecret(c, http.StatusOK, webhook, secretOf(webhook))
}

func (s *Server) repeatRotation(c *fiber.Ctx) error {
	webhook, err := s.webhookOfPath(c)
	if err != nil {
		return err
	}
	return replySecret(c, http.StatusOK, webhook, nil)
}

// endPreviousSecret ends the use of the secret before the latest rotation. Repeating it changes nothing.
func (s *Server) endPreviousSecret(c *fiber.Ctx) error {
	id, err := pathID(c, kindWebhook)
	if err != nil {
		return err
	}
	if err := s.webhooks.EndSecretOverlap(c.UserContext(), viewerID(c), id); err != nil {
		return err
	}
	return replyNothing(c)
}

func (s *Server) deleteWebhook(c *fiber.Ctx) error {
	id, err := pathID(c, kindWebhook)
	if err != nil {
		return err
	}
	if err := s.webhooks.DeleteWebhook(c.UserContext(), viewerID(c), id); err != nil {
		return err
	}
	return replyNothing(c)
}

// pingWebhook sends an endpoint an event by the path of the others.
func (s *Server) pingWebhook(c *fiber.Ctx) error {
	id, err := pathID(c, kindWebhook)
	if err != nil {
		return err
	}
	delivery, err := s.webhooks.PingWebhook(c.UserContext(), id)
	if err != nil {
		return err
	}
	return replyRequestedDelivery(c, delivery)
}

func replyRequestedDelivery(c *fiber.Ctx, d *models.Delivery) error {
	return c.Status(http.StatusAccepted).JSON(showDelivery(d))
}

func (s *Server) repeatPing(c *fiber.Ctx) error {
	id, err := pathID(c, kindWebhook)
	if err != nil {
		return err
	}
	delivery, err := s.webhooks.DeliveryByID(c.UserContext(), id, madeID(c))
	if err != nil {
		return err
	}
	return replyRequestedDelivery(c, delivery)
}

func (s *Server) listDeliveries(c *fiber.Ctx) error {
	words := append([]string{"all"}, models.DeliveryStates...)
	state, err := oneOf(c, "state", words...)
	if err != nil {
		return err
	}
	webhook, err := s.webhookOfPath(c)
	if err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.Delivery, deliveryJSON]{
		Name: "deliveries:" + strconv.FormatInt(webhook.ID, 10) + ":" + state,
		Read: func(ctx context.Context, at pages.Position) ([]models.Delivery, *models.ListKey, error) {
			number := models.DeliveryState(slices.Index(words, state)) // 0 for all
			return pages.All(s.webhooks.Deliveries(ctx, webhook.ID, number, at.ID(), at.Limit))
		},
		Key:  (*models.Delivery).Key,
		Show: pages.Each(showDelivery),
	})
}

// deliveryOfPath returns the ids of an endpoint and of one of its events.
func deliveryOfPath(c *fiber.Ctx) (webhookID, id int64, err error) {
	if webhookID, err = pathID(c, kindWebhook); err != nil {
		return 0, 0, err
	}
	id, ok := parseID(c.Params("delivery"))
	if !ok {
		return 0, 0, models.Errorf(models.CodeNotFound, "There is no such delivery.")
	}
	return webhookID, id, nil
}

func (s *Server) replayDelivery(c *fiber.Ctx) error {
	webhookID, id, err := deliveryOfPath(c)
	if err != nil {
		return err
	}
	delivery, err := s.webhooks.ReplayDelivery(c.UserContext(), webhookID, id)
	if err != nil {
		return err
	}
	return replyRequestedDelivery(c, delivery)
}

func (s *Server) repeatReplay(c *fiber.Ctx) error {
	webhookID, id, err := deliveryOfPath(c)
	if err != nil {
		return err
	}
	delivery, err := s.webhooks.DeliveryByID(c.UserContext(), webhookID, id)
	if err != nil {
		return err
	}
	return replyRequestedDelivery(c, delivery)
}
