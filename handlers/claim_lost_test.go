package handlers_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/handlers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/stock"
)

// A claim that is live in MySQL, and unknown to the gate, is not returned, and nobody is told that it was.
func TestReturnClaim_thatTheGateHasLost(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	store := openStore(t, testkit.Database(t))
	r, likes, settle := pipelineOn(t, store, url)
	a := serve(t, store, behindGate(likes, likes), func(c *handlers.Config) {
		c.Claims, c.IDs = counters.NewClaims(r, store, counters.ClaimsOptions{}), counters.NewIDs(r, store)
	})
	ada, bob := a.account(t), a.account(t)
	p := a.newPost(t, ada)
	drop, err := stock.New(store).CreateDrop(t.Context(), ada.ID, p.ID, models.DropSettings{Title: "Voucher", Stock: 2})
	require.NoError(t, err)
	d := drop.ID
	c := read[claim](t, a.must(t, 201, bob, "POST", fmt.Sprintf("/v1/drops/%d/claims", d), nil))
	settle()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	plain := redis.NewClient(o)
	defer plain.Close()
	hash := plain.Keys(t.Context(), fmt.Sprintf("*:drop:%d:claims", d)).Val()
	require.Len(t, hash, 1)
	held := hash[0] + ":" + plain.HGet(t.Context(), hash[0], "load").Val() + ":0"
	require.EqualValues(t, 1, plain.HDel(t.Context(), held, strconv.FormatInt(bob.ID, 10)).Val())
	require.NoError(t, plain.HIncrBy(t.Context(), hash[0], "count", -1).Err())
	a.refused(t, 503, "unavailable", bob, "DELETE", "/v1/claims/"+c.ID, nil)
	got := a.claimByID(t, bob, c.ID)
	require.Equal(t, "confirmed", got.State)
}
