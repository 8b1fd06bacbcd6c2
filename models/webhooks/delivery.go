package webhooks

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

const deliveryColumns = `e.id, e.type, e.object_type, e.object_id, e.state, e.attempts, e.attempt_log, e.due_at,
			e.created_at, e.ended_at`

// Deliveries lists the events of an endpoint, latest first: at most limit before an id (0 for the first page), in one
// state or, if it is 0, in any.
func (s *Store) Deliveries(
	ctx context.Context, webhookID int64, state models.DeliveryState, before int64, limit int,
) ([]models.Delivery, error) {
	index := "idx_webhook"
	where := db.Matching("e.webhook_id=?", webhookID)
	if state != 0 {
		index = "idx_webhook_state"
		where.Add("e.state=?", state)
	}
	where.AddIf(before != 0, "e.id<?", before)
	query := `
		SELECT ` + deliveryColumns + `
		FROM webhook_events e FORCE INDEX (` + index + `)
		` + where.Clause() + `
		ORDER BY e.id DESC
		LIMIT ?`
	var list []models.Delivery
	if err := s.Read(ctx).Raw(query, append(where.Args, limit)...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("list deliveries of webhook %d: %w", webhookID, err)
	}
	return list, nil
}

// DeliveryByID reads an event of an endpoint. CodeNotFound: it does not exist.
func (s *Store) DeliveryByID(ctx context.Context, webhookID, id int64) (*models.Delivery, error) {
	d, err := readDelivery(s.Read(ctx), webhookID, id)
	if err != nil {
		return nil, fmt.Errorf("read delivery %d: %w", id, err)
	}
	return d, nil
}

func readDelivery(conn *gorm.DB, webhookID, id int64) (*models.Delivery, error) {
	const query = `
		SELECT ` + deliveryColumns + `
		FROM webhook_events e FORCE INDEX (PRIMARY)
		WHERE e.id=? AND e.webhook_id=?`
	var d models.Delivery
	read := conn.Raw(query, id, webhookID).Scan(&d)
	if read.Error == nil && read.RowsAffected == 0 {
		return nil, models.Errorf(models.CodeNotFound, "There is no such delivery.")
	}
	return &d, read.Error
}

// PingWebhook writes an event of the type WebhookPing for an endpoint and returns it. CodeNotFound: the endpoint does
// not exist. CodeConflict: it is not active.
func (s *Store) PingWebhook(ctx context.Context, id int64) (d *models.Delivery, err error) {
	const insert = `
		INSERT INTO webhook_events (webhook_id, type, object_type, object_id, data, attempt_log, due_at, retry_until,
			created_at)
		VALUES (?,?,'webhook',?,?,'[]',?,?,?)`
	now := s.Now().UTC()
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if err := lockActive(tx, id); err != nil {
			return err
		}
		data := fmt.Sprintf(`{"id":%d}`, id)
		event, err := tx.Insert(insert, id, models.WebhookPing, id, data, now, now.Add(models.WebhookRetry), now)
		if err != nil {
			return err
		}
		d, err = readDelivery(tx.DB, id, event)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ping webhook %d: %w", id, err)
	}
	return d, nil
}

// lockActive locks an endpoint. CodeNotFound: it does not exist. CodeConflict: it is not active.
func lockActive(tx *db.Tx, id int64) error {
	w, err := lockWebhook(tx, id)
	if err == nil && !w.Active {
		err = models.Errorf(models.CodeConflict, "The webhook is not active. Set active to true first.")
	}
	return err
}

// ReplayDelivery makes an event due now, whatever its state is, and for WebhookRetry from now. Later events of the
// object wait for it again. CodeNotFound: it does not exist. CodeConflict: the endpoint is not active.
func (s *Store) ReplayDelivery(ctx context.Context, webhookID, id int64) (d *models.Delivery, err error) {
	const update = `
		UPDATE webhook_events FORCE INDEX (PRIMARY)
		SET state=?, due_at=?, retry_until=?, ended_at=NULL
		WHERE id=? AND webhook_id=?`
	now := s.Now().UTC()
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if err := lockActive(tx, webhookID); err != nil {
			return err
		}
		if err := tx.Exec(update, models.DeliveryPending, now, now.Add(models.WebhookRetry), id,
			webhookID).Error; err != nil {
			return err
		}
		d, err = readDelivery(tx.DB, webhookID, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("replay delivery %d: %w", id, err)
	}
	return d, nil
}

// WebhookBacklog returns the endpoints that are active, each with the time of its oldest pending event.
func (s *Store) WebhookBacklog(ctx context.Context) ([]models.Webhook, error) {
	query := `
		SELECT ` + webhookColumns + `, ` + pendingSince + `
		FROM webhooks w
		WHERE w.active`
	var list []models.Webhook
	if err := s.Read(ctx).Raw(query).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read the backlog of webhooks: %w", err)
	}
	return list, nil
}

// LeaseWebhook takes or extends the lease of an endpoint, by which one process at a time delivers to it, and returns
// the endpoint. It returns nil if another process has the lease, or the endpoint is not active. All times of leases are
// those of the server.
//
// Correctness does not depend on the lease: a process that has lost it can at most send an event once more.
func (s *Store) LeaseWebhook(ctx context.Context, id int64, lease string, seconds int) (*models.Webhook, error) {
	const update = `
		UPDATE webhooks
		SET lease=?, leased_until=UTC_TIMESTAMP(3)+INTERVAL ? SECOND
		WHERE id=? AND active AND (lease=? OR leased_until IS NULL OR leased_until<UTC_TIMESTAMP(3))`
	changed, err := s.Write(ctx, update, lease, seconds, id, lease)
	if err != nil {
		return nil, fmt.Errorf("lease webhook %d: %w", id, err)
	}
	if changed == 0 {
		// An update to what is there already, within a millisecond, changes nothing.
		const held = `
			SELECT COUNT(*)>0
			FROM webhooks
			WHERE id=? AND active AND lease=? AND leased_until>=UTC_TIMESTAMP(3)`
		var own bool
		if err := s.Read(ctx).Raw(held, id, lease).Scan(&own).Error; err != nil {
			return nil, fmt.Errorf("lease webhook %d: %w", id, err)
		}
		if !own {
			return nil, nil
		}
	}
	w, err := s.WebhookByID(ctx, id)
	if models.ErrorCode(err) == models.CodeNotFound {
		return nil, nil
	}
	return w, err
}

// ReleaseWebhook ends a lease, if it is still held.
func (s *Store) ReleaseWebhook(ctx context.Context, id int64, lease string) error {
	const update = `
		UPDATE webhooks
		SET leased_until=NULL
		WHERE id=? AND lease=?`
	if _, err := s.Write(ctx, update, id, lease); err != nil {
		return fmt.Errorf("release webhook %d: %w", id, err)
	}
	return nil
}

// PendingEvents returns pending events of an endpoint in the order of their ids: at most limit after an id.
func (s *Store) PendingEvents(ctx context.Context, webhookID, after int64, limit int) ([]models.PendingEvent, error) {
	const query = `
		SELECT id, object_type, object_id, due_at
		FROM webhook_events FORCE INDEX (idx_webhook_state)
		WHERE webhook_id=? AND state=? AND id>?
		ORDER BY id
		LIMIT ?`
	var list []models.PendingEvent
	err := s.Read(ctx).Raw(query, webhookID, models.DeliveryPending, after, limit).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("read pending events of webhook %d: %w", webhookID, err)
	}
	return list, nil
}

// PendingDelivery reads an event with its data; nil if it is not pending, or was purged.
func (s *Store) PendingDelivery(ctx context.Context, id int64) (*models.Delivery, error) {
	const query = `
		SELECT ` + deliveryColumns + `, e.data
		FROM webhook_events e FORCE INDEX (PRIMARY)
		WHERE e.id=? AND e.state=?`
	var d models.Delivery
	read := s.Read(ctx).Raw(query, id, models.DeliveryPending).Scan(&d)
	if read.Error != nil {
		return nil, fmt.Errorf("read event %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, nil
	}
	return &d, nil
}

// RecordAttempt records an attempt at an event that was pending. A success ends it, and the failure of its endpoint. A
// failure is repeated after a time, or ends the event if it was attempted for WebhookRetry.
func (s *Store) RecordAttempt(
	ctx context.Context, webhookID int64, d *models.Delivery, a models.Attempt, after time.Duration,
) error {
	const isFailing = `
		SELECT COUNT(*)
		FROM webhooks
		WHERE id=? AND failing_since IS NOT NULL`
	const markFailing = `
		UPDATE webhooks
		SET failing_since=COALESCE(failing_since,?)
		WHERE id=?`
	const markWorking = `
		UPDATE webhooks
		SET failing_since=NULL
		WHERE id=?`
	const succeed = `
		UPDATE webhook_events FORCE INDEX (PRIMARY)
		SET state=?, attempts=attempts+1, attempt_log=?, ended_at=?
		WHERE id=? AND state=?`
	const fail = `
		UPDATE webhook_events FORCE INDEX (PRIMARY)
		SET state=IF(retry_until<=?,?,state), ended_at=IF(retry_until<=?,?,NULL), attempts=attempts+1, attempt_log=?,
			due_at=?
		WHERE id=? AND state=?`
	now := s.Now().UTC()
	log, err := d.AttemptLog.With(a)
	if err != nil {
		return err
	}
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if a.Delivered() {
			var failing int // read without a lock, for which all requests of the endpoint would wait
			if err := tx.Raw(isFailing, webhookID).Scan(&failing).Error; err != nil {
				return err
			}
			if failing > 0 {
				if err := tx.Exec(markWorking, webhookID).Error; err != nil {
					return err
				}
			}
			return tx.Exec(succeed, models.DeliveryDelivered, log, now, d.ID, models.DeliveryPending).Error
		}
		if err := tx.Exec(markFailing, now, webhookID).Error; err != nil {
			return err
		}
		return tx.Exec(fail, now, models.DeliveryFailed, now, now, log, now.Add(after), d.ID,
			models.DeliveryPending).Error
	})
	if err != nil {
		return fmt.Errorf("record attempt at event %d: %w", d.ID, err)
	}
	return nil
}

// DisableWebhook makes an endpoint inactive for a reason, WebhookGone or, if no attempt has succeeded for
// WebhookPatience, WebhookFailing. It reports whether it did. The moderation log has it as an act without an actor.
func (s *Store) DisableWebhook(ctx context.Context, id int64, reason string) (disabled bool, err error) {
	const update = `
		UPDATE webhooks
		SET active=0, disabled_reason=?
		WHERE id=?`
	const worker = 0
	err = s.Transact(ctx, func(tx *db.Tx) error {
		disabled = false
		w, err := lockWebhook(tx, id)
		if models.ErrorCode(err) == models.CodeNotFound {
			return nil
		}
		if err != nil || !w.Active {
			return err
		}
		if reason == models.WebhookFailing && (w.FailingSince == nil ||
			tx.Now.Sub(*w.FailingSince) < models.WebhookPatience) {
			return nil
		}
		if err := tx.Exec(update, reason, id).Error; err != nil {
			return err
		}
		disabled = true
		before, after := w.Settings().State(), w.Settings().State()
		after["active"], after["disabled_reason"] = false, reason
		return accounts.LogModeration(tx, webhookAct(worker, "disable", id, before, after))
	})
	if err != nil {
		return false, fmt.Errorf("disable webhook %d: %w", id, err)
	}
	return disabled, nil
}

// PurgeWebhookSecrets deletes former secrets that no longer sign, and returns how many it deleted.
func (s *Store) PurgeWebhookSecrets(ctx context.Context) (int64, error) {
	const find = `
		SELECT id
		FROM webhooks
		WHERE previous_until<=?`
	now := s.Now().UTC()
	var ids []int64
	if err := s.Read(ctx).Raw(find, now).Scan(&ids).Error; err != nil {
		return 0, fmt.Errorf("read former webhook secrets: %w", err)
	}
	if len(ids) == 0 {
		return 0, nil
	}
	remove := `
		UPDATE webhooks FORCE INDEX (PRIMARY)
		SET previous_secret=NULL, previous_until=NULL
		WHERE id IN (` + db.JoinIDs(db.Ascending(ids)) + `) AND previous_until<=?`
	purged, err := s.Write(ctx, remove, now)
	if err != nil {
		return 0, fmt.Errorf("purge former webhook secrets: %w", err)
	}
	return purged, nil
}

// PurgeWebhookEvents deletes at most limit events that are older than WebhookLife or whose endpoint was deleted, and
// returns how many it deleted. Events are found without a lock and deleted by their ids, as they are written.
func (s *Store) PurgeWebhookEvents(ctx context.Context, limit int) (int64, error) {
	const old = `
		SELECT id
		FROM webhook_events FORCE INDEX (idx_created)
		WHERE created_at<?
		ORDER BY created_at
		LIMIT ?`
	const orphaned = `
		SELECT e.id
		FROM (
			SELECT DISTINCT webhook_id
			FROM webhook_events) x
		LEFT JOIN webhooks w ON w.id=x.webhook_id
		STRAIGHT_JOIN webhook_events e FORCE INDEX (idx_webhook) ON e.webhook_id=x.webhook_id
		WHERE w.id IS NULL
		LIMIT ?`
	var ids []int64
	err := s.Read(ctx).Raw(old, s.Now().UTC().Add(-models.WebhookLife), limit).Scan(&ids).Error
	if err == nil && len(ids) < limit {
		var rest []int64
		err = s.Read(ctx).Raw(orphaned, limit-len(ids)).Scan(&rest).Error
		ids = append(ids, rest...)
	}
	if err != nil {
		return 0, fmt.Errorf("read old webhook events: %w", err)
	}
	if len(ids) == 0 {
		return 0, nil
	}
	remove := `
		DELETE e
		FROM webhook_events e FORCE INDEX (PRIMARY)
		WHERE e.id IN (` + db.JoinIDs(db.Ascending(ids)) + `)`
	purged, err := s.Write(ctx, remove)
	if err != nil {
		return 0, fmt.Errorf("purge webhook events: %w", err)
	}
	return purged, nil
}
