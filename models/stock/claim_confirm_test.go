package stock

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

// The like writer inserts the claim just when its user confirms it. It is not there, or confirmed, and never too late.
func TestConfirmClaim_rowThatArrivesMeanwhile(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t)
	open := func() *db.DB {
		s, err := db.Open(t.Context(), dsn, db.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	s, writer := open(), open()
	claims := New(s)
	user := &models.User{Username: "ada", Email: "ada@example.org"}
	require.NoError(t, accounts.New(s).CreateUser(t.Context(), user))
	arrived := false
	insert := func(tx *gorm.DB) {
		if arrived || !strings.Contains(tx.Statement.SQL.String(), "FROM claims") {
			return
		}
		arrived = true
		const claim = `
			INSERT INTO claims (drop_id, user_id, id, state, created_at, expires_at)
			VALUES (1, ?, 100, ?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) + INTERVAL 1 MINUTE)`
		assert.NoError(t, writer.Transact(t.Context(), func(tx *db.Tx) error {
			return tx.Exec(claim, user.ID, models.StateReserved).Error
		}))
	}
	for name, reads := range map[string]interface {
		Register(name string, fn func(*gorm.DB)) error
	}{
		"row":   s.Read(t.Context()).Callback().Row().After("gorm:row"),
		"query": s.Read(t.Context()).Callback().Query().After("gorm:query"),
	} {
		require.NoError(t, reads.Register("insert after a "+name, insert))
	}

	_, err := claims.ConfirmClaim(t.Context(), user.ID, 100)
	require.True(t, arrived)
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
	c, err := claims.ConfirmClaim(t.Context(), user.ID, 100)
	require.NoError(t, err)
	assert.Equal(t, models.StateConfirmed, c.State)
}
