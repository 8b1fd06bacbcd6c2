package models

import (
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"likewise/internal/testkit"
)

func TestInTransaction_isThatOfTransact(t *testing.T) {
	t.Parallel()
	store, err := Open(t.Context(), testkit.Database(t), Options{})
	require.NoError(t, err)
	defer store.Close()
	require.False(t, InTransaction(t.Context()))
	require.NoError(t, store.transact(t.Context(), func(tx *gorm.DB) error {
		require.True(t, InTransaction(tx.Statement.Context))
		return nil
	}))
}
