package db

import (
	"fmt"

	"likewise/models"
)

// HoldDirect returns CodeUnavailable unless the site is in direct mode, or has no mode yet. The site stays in its mode
// until the end of the transaction.
func HoldDirect(tx *Tx) error {
	const read = `
		SELECT value
		FROM settings
		WHERE name='likes'
		LOCK IN SHARE MODE`
	var is models.LikesMode
	if err := tx.Raw(read).Scan(&is).Error; err != nil {
		return err
	}
	if is != models.LikesDirect && is != "" {
		return models.Unavailable("The server cannot accept likes at the moment; try again.",
			fmt.Errorf("the likes of the site are %s, and this process should have been stopped", is))
	}
	return nil
}

// HoldMode is HoldDirect for a process that has started in direct mode. In gated mode the gate decides.
func HoldMode(tx *Tx) error {
	if !tx.Direct() {
		return nil
	}
	return HoldDirect(tx)
}

// Direct reports whether this process has started in direct mode.
func (tx *Tx) Direct() bool { return tx.store.direct.Load() }
