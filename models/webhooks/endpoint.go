package webhooks

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

const webhookColumns = `w.id, w.url, w.events, w.active, w.disabled_reason, w.failing_since, w.version, w.created_at,
			w.updated_at, w.previous_until`

// settle removes a former secret that no longer signs.
func (s *Store) settle(w *models.Webhook) {
	if w.PreviousUntil != nil && !s.Now().Before(*w.PreviousUntil) {
		w.PreviousSecret, w.PreviousUntil = nil, nil
	}
}

// pendingSince is the time of the oldest pending event of the endpoint w. MySQL sorts all of them unless the order
// names all columns of the index.
var pendingSince = `(
				SELECT e.created_at
				FROM webhook_events e FORCE INDEX (idx_webhook_state)
				WHERE e.webhook_id=w.id AND e.state=` + db.Literal(models.DeliveryPending) + `
				ORDER BY e.webhook_id, e.state, e.id
				LIMIT 1
			) AS pending_since`

// CreateWebhook registers an endpoint. It receives the events of every transaction that begins after the COMMIT.
// CodeInvalid: a field breaks a rule. CodeForbidden: the actor is not an admin. CodeConflict: there are MaxWebhooks.
func (s *Store) CreateWebhook(
	ctx context.Context, actor int64, settings models.WebhookSettings, private bool,
) (*models.Webhook, error) {
	if err := settings.Validate(private); err != nil {
		return nil, err
	}
	// The row of settings serializes creations, so that the bound holds.
	const lock = `
		INSERT INTO settings (name, value)
		VALUES ('webhooks', '')
		ON DUPLICATE KEY UPDATE value=''`
	const count = `
		SELECT COUNT(*)
		FROM webhooks`
	const insert = `
		INSERT INTO webhooks (url, events, secret, active, created_by, created_at, updated_at)
		VALUES (?,?,UNHEX(?),?,?,?,?)`
	now := s.Now().UTC().Truncate(time.Millisecond)
	w := &models.Webhook{URL: settings.URL, Events: settings.Events, Active: settings.Active, CreatedAt: now,
		UpdatedAt: now}
	secret := newSecret()
	w.Secret = secret[:]
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := tx.Exec(lock).Error; err != nil {
			return err
		}
		if err := accounts.LockActor(tx, actor, models.RoleAdmin); err != nil {
			return err
		}
		var n int
		if err := tx.Raw(count).Scan(&n).Error; err != nil {
			return err
		}
		if n >= models.MaxWebhooks {
			return models.Errorf(models.CodeConflict,
				"There are %d webhooks, and more is not possible. Delete one of them first.", n)
		}
		var err error
		w.ID, err = tx.Insert(insert, w.URL, w.Events.String(), db.HexOf(secret), w.Active, actor, now, now)
		if err != nil {
			return err
		}
		return accounts.LogModeration(tx, webhookAct(actor, "create", w.ID, nil, settings.State()))
	})
	if err != nil {
		return nil, fmt.Errorf("create webhook: %w", err)
	}
	return w, nil
}

func newSecret() (secret [models.SecretBytes]byte) {
	_, _ = rand.Read(secret[:]) // never fails
	return secret
}

// RotateSecret replaces the secret of an endpoint. The former one signs, too, for SecretOverlap. CodeConflict: the
// former secret of the rotation before still signs. CodeNotFound: the endpoint does not exist. CodeForbidden: the actor
// is not an admin.
func (s *Store) RotateSecret(ctx context.Context, actor, id int64) (*models.Webhook, error) {
	const update = `
		UPDATE webhooks
		SET previous_secret=secret, previous_until=?, secret=UNHEX(?), version=version+1, updated_at=?
		WHERE id=?`
	secret := newSecret()
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := accounts.LockActor(tx, actor, models.RoleAdmin); err != nil {
			return err
		}
		w, err := lockWebhook(tx, id)
		if err != nil {
			return err
		}
		if s.settle(w); w.PreviousUntil != nil {
			return models.Errorf(models.CodeConflict,
				"The secret was changed in the last 24 hours. End the use of the previous one first.")
		}
		now := tx.Now.Truncate(time.Millisecond)
		until := now.Add(models.SecretOverlap)
		if err := tx.Exec(update, until, db.HexOf(secret), now, id).Error; err != nil {
			return err
		}
		after := map[string]any{"previous_until": until}
		return accounts.LogModeration(tx, webhookAct(actor, "rotate_secret", id, nil, after))
	})
	if err != nil {
		return nil, fmt.Errorf("rotate secret of webhook %d: %w", id, err)
	}
	return s.WebhookByID(ctx, id)
}

// EndSecretOverlap ends the use of the secret before the latest rotation, whether it still signs or not. CodeNotFound:
// the endpoint does not exist. CodeForbidden: the actor is not an admin.
func (s *Store) EndSecretOverlap(ctx context.Context, actor, id int64) error {
	const update = `
		UPDATE webhooks
		SET previous_secret=NULL, previous_until=NULL, version=version+1, updated_at=?
		WHERE id=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := accounts.LockActor(tx, actor, models.RoleAdmin); err != nil {
			return err
		}
		w, err := lockWebhook(tx, id)
		if err != nil || w.PreviousUntil == nil {
			return err
		}
		if err := tx.Exec(update, tx.Now, id).Error; err != nil {
			return err
		}
		before := map[string]any{"previous_until": *w.PreviousUntil}
		return accounts.LogModeration(tx, webhookAct(actor, "end_previous_secret", id, before, nil))
	})
	if err != nil {
		return fmt.Errorf("end the previous secret of webhook %d: %w", id, err)
	}
	return nil
}

// webhookAct returns an entry of the moderation log. actor is 0 for a worker.
func webhookAct(actor int64, verb string, id int64, before, after map[string]any) accounts.ModerationAct {
	return accounts.ModerationAct{
		ActorID: actor, Action: "webhook." + verb, TargetType: "webhook", TargetID: id, Before: before, After: after,
	}
}

func errNoWebhook() *models.Error {
	return models.Errorf(models.CodeNotFound, "There is no such webhook.")
}

// Webhooks lists endpoints, earliest first: at most limit after an id (0 for the first page).
func (s *Store) Webhooks(ctx context.Context, after int64, limit int) ([]models.Webhook, error) {
	query := `
		SELECT ` + webhookColumns + `, ` + pendingSince + `
		FROM webhooks w
		WHERE w.id>?
		ORDER BY w.id
		LIMIT ?`
	var list []models.Webhook
	if err := s.Read(ctx).Raw(query, after, limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	for i := range list {
		s.settle(&list[i])
	}
	return list, nil
}

// WebhookByID reads an endpoint. CodeNotFound: it does not exist.
func (s *Store) WebhookByID(ctx context.Context, id int64) (*models.Webhook, error) {
	query := `
		SELECT ` + webhookColumns + `, w.secret, w.previous_secret, ` + pendingSince + `
		FROM webhooks w
		WHERE w.id=?`
	var w models.Webhook
	read := s.Read(ctx).Raw(query, id).Scan(&w)
	if read.Error != nil {
		return nil, fmt.Errorf("read webhook %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, errNoWebhook()
	}
	s.settle(&w)
	return &w, nil
}

// UpdateWebhook changes the settings of an endpoint that has the given version. An endpoint that becomes active again
// continues with its pending events, and has no failure behind it. Events that happened meanwhile were not recorded.
// CodePrecondition: it has another version. CodeNotFound: it does not exist. The other errors are those of
// CreateWebhook.
func (s *Store) UpdateWebhook(
	ctx context.Context, actor, id, version int64, settings models.WebhookSettings, private bool,
) (*models.Webhook, error) {
	if err := settings.Validate(private); err != nil {
		return nil, err
	}
	const update = `
		UPDATE webhooks
		SET url=?, events=?, disabled_reason=IF(?,'',disabled_reason), failing_since=IF(active,failing_since,NULL),
			active=?, version=version+1, updated_at=?
		WHERE id=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := accounts.LockActor(tx, actor, models.RoleAdmin); err != nil {
			return err
		}
		w, err := lockWebhook(tx, id)
		if err != nil {
			return err
		}
		if w.Version != version {
			return models.VersionMismatch(w.Version)
		}
		was := w.Settings()
		if was.URL == settings.URL && was.Active == settings.Active && slices.Equal(was.Events, settings.Events) {
			return nil
		}
		err = tx.Exec(update, settings.URL, settings.Events.String(), settings.Active, settings.Active,
			tx.Now, id).Error
		if err != nil {
			return err
		}
		return accounts.LogModeration(tx, webhookAct(actor, "edit", id, was.State(), settings.State()))
	})
	if err != nil {
		return nil, fmt.Errorf("update webhook %d: %w", id, err)
	}
	return s.WebhookByID(ctx, id)
}

func lockWebhook(tx *db.Tx, id int64) (*models.Webhook, error) {
	const query = `
		SELECT ` + webhookColumns + `
		FROM webhooks w
		WHERE w.id=?
		FOR UPDATE`
	var w models.Webhook
	read := tx.Raw(query, id).Scan(&w)
	if read.Error == nil && read.RowsAffected == 0 {
		return nil, errNoWebhook()
	}
	return &w, read.Error
}

// DeleteWebhook deletes an endpoint. PurgeWebhookEvents deletes its events. CodeNotFound: it does not exist.
// CodeForbidden: the actor is not an admin.
func (s *Store) DeleteWebhook(ctx context.Context, actor, id int64) error {
	const remove = `
		DELETE FROM webhooks
		WHERE id=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := accounts.LockActor(tx, actor, models.RoleAdmin); err != nil {
			return err
		}
		w, err := lockWebhook(tx, id)
		if err != nil {
			return err
		}
		if err := tx.Exec(remove, id).Error; err != nil {
			return err
		}
		return accounts.LogModeration(tx, webhookAct(actor, "delete", id, w.Settings().State(), nil))
	})
	if err != nil {
		return fmt.Errorf("delete webhook %d: %w", id, err)
	}
	return nil
}
