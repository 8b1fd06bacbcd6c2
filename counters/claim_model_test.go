package counters

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"likewise/models"
)

// After any sequence of claims, returns, releases and settings of users, the writer and the janitor, the gate's replies
// must equal those of a map, and no claim may be accepted beyond the stock. The claims in MySQL together with the
// events in the outbox must be those of the map, too. A drop has 0 to 4 shares, so it is often sold out.
func TestClaimGate_agreesWithAModel(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	for _, shard := range []int{1, 2} {
		openShard(t, r, shard, 1)
	}
	next, epoch, claim := int64(0), int64(1), int64(0)
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		claim++
		m := &claimModel{r: r, plain: plain, epoch: &epoch, claim: &claim, first: claim,
			drops: map[models.Target]*modelDrop{}, ended: map[shardClaim]bool{}}
		var targets []models.Target
		for _, shard := range []int64{1, 2, 1} {
			next++
			targets = append(targets, drop(16*next+shard))
		}
		for _, target := range targets {
			m.drops[target] = &modelDrop{stock: 2, version: 1, held: map[int64]int64{}, applied: map[int64]int64{}}
			m.warm(rt, ctx, target)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"call": func(rt *rapid.T) {
				target := rapid.SampledFrom(targets).Draw(rt, "drop")
				// Several drops of one shard in one call.
				list := []models.Target{target}
				for _, other := range targets {
					if other != target && other.Shard(shards) == target.Shard(shards) && rapid.Bool().Draw(rt, "both") {
						list = append(list, other)
					}
				}
				m.call(rt, ctx, list)
			},
			"crowd": func(rt *rapid.T) {
				target := rapid.SampledFrom(targets).Draw(rt, "drop")
				var words []string
				var want []ruling
				for user := range int64(60) {
					*m.claim++
					words = append(words, fmt.Sprintf("%d %d", 100+user, *m.claim))
					want = append(want, m.expect(target, words[len(words)-1]))
				}
				require.Equal(rt, want, m.send(rt, ctx, spoken{target, words}))
			},
			"apply": func(rt *rapid.T) {
				m.apply(rt, ctx, rapid.SampledFrom(targets).Draw(rt, "of shard").Shard(shards))
			},
			"cool": func(rt *rapid.T) {
				target := rapid.SampledFrom(targets).Draw(rt, "drop")
				m.apply(rt, ctx, target.Shard(shards))
				k := r.keys(target)
				n, err := r.run(ctx, "cool", []string{k.likes, k.garbage}, epoch+1, 0, 0).Int()
				require.NoError(rt, err)
				require.Equal(rt, m.drops[target].isWarm, n == 1)
				m.drops[target].isWarm = false
			},
			"warm": func(rt *rapid.T) {
				if target := rapid.SampledFrom(targets).Draw(rt, "drop"); !m.drops[target].isWarm {
					m.warm(rt, ctx, target)
				}
			},
			"new epoch": func(*rapid.T) {
				epoch++
				for _, shard := range []int{1, 2} {
					closeShard(t, plain, shard)
					openShard(t, r, shard, epoch)
				}
			},
			"": func(rt *rapid.T) { m.check(rt, ctx, targets) },
		})
	})
}

// claimModel is the expected state of some drops.
type claimModel struct {
	r     *Redis
	plain *redis.Client
	epoch *int64
	drops map[models.Target]*modelDrop
	claim *int64 // the last id
	first int64  // the first id of this run
	ended map[shardClaim]bool
}

type shardClaim struct {
	shard int
	claim int64
}

type modelDrop struct {
	stock, version, sent int64
	begins, ends         int64           // ms; 0 for none
	held                 map[int64]int64 // claims by user
	applied              map[int64]int64 // those in MySQL
	isWarm               bool
}

// warm loads a cold drop from what MySQL has.
func (m *claimModel) warm(rt *rapid.T, ctx context.Context, target models.Target) {
	d, k := m.drops[target], m.r.keys(target)
	gate := &models.GateDrop{ID: target.ID, Stock: d.stock, Version: d.version}
	if d.begins != 0 {
		at := time.UnixMilli(d.begins)
		gate.Begins = &at
	}
	if d.ends != 0 {
		at := time.UnixMilli(d.ends)
		gate.Ends = &at
	}
	for user, claim := range d.applied {
		gate.Claims = append(gate.Claims, models.LiveClaim{UserID: user, ID: claim})
	}
	token := "load" + strconv.FormatInt(*m.epoch, 10)
	require.NoError(rt, m.plain.Set(ctx, k.warming, token, time.Minute).Err())
	var last *redis.Cmd
	err := m.r.pipelined(ctx, func(p pipe) {
		p.Del(ctx, setKey(k.likes, token, 0)) // of an earlier load of this epoch
		m.r.noteLoad(ctx, p, k, token, 1)
		m.r.putClaims(ctx, p, k, token, gate.Claims)
		last = p.Eval(ctx, m.r.source["warm_drop"], []string{k.shard, k.likes, k.warming, k.garbage},
			warmDropArgs(gate, token, strconv.FormatInt(*m.epoch, 10), len(gate.Claims))...)
	})
	require.NoError(rt, err)
	n, err := last.Int()
	require.NoError(rt, err)
	require.Equal(rt, 1, n)
	d.isWarm, d.sent = true, 0
}

// call sends up to eight words about each of some drops.
func (m *claimModel) call(rt *rapid.T, ctx context.Context, targets []models.Target) {
	var all []spoken
	var want []ruling
	for _, target := range targets {
		item := spoken{target: target}
		for range rapid.IntRange(1, 8).Draw(rt, "words") {
			word := m.word(rt, target)
			item.words = append(item.words, word)
			want = append(want, m.expect(target, word))
		}
		all = append(all, item)
	}
	require.Equal(rt, want, m.send(rt, ctx, all...), "%v", all)
}

func (m *claimModel) send(rt *rapid.T, ctx context.Context, all ...spoken) (rulings []ruling) {
	k := m.r.keys(all[0].target)
	keys, args := []string{k.shard, k.outbox}, []any{1 << 40, 0, never, *m.epoch, 0, len(all)}
	for _, item := range all {
		keys, args = append(keys, m.r.keys(item.target).likes), append(args, item.target.Short(), len(item.words))
		for _, word := range item.words {
			args = append(args, word)
		}
	}
	reply, err := ofOneShard(m.r.run(ctx, "claim", keys, args...))
	require.NoError(rt, err)
	require.EqualValues(rt, 0, reply[0])
	for i := 2; i < len(reply); i += 3 {
		rulings = append(rulings, ruling{reply[i].(int64), reply[i+1].(string), reply[i+2].(int64)})
	}
	return rulings
}

// word draws a word about a drop. Settings change MySQL first.
func (m *claimModel) word(rt *rapid.T, target models.Target) string {
	d, user := m.drops[target], rapid.Int64Range(1, 5).Draw(rt, "user")
	claim := d.held[user]
	if claim == 0 || rapid.IntRange(0, 4).Draw(rt, "another") == 0 {
		claim = rapid.Int64Range(m.first, max(m.first, *m.claim)).Draw(rt, "claim")
	}
	switch rapid.SampledFrom([]string{"claim", "claim", "claim", "return", "release", "settings"}).Draw(rt, "what") {
	case "claim":
		*m.claim++
		return fmt.Sprintf("%d %d", user, *m.claim)
	case "return":
		return fmt.Sprintf("-%d %d", user, claim)
	case "release":
		return fmt.Sprintf("!%d %d", user, claim)
	}
	version := d.version
	if d.isWarm { // otherwise the next load has the new settings without a word
		version = rapid.Int64Range(max(1, d.version-1), d.version+2).Draw(rt, "version")
	}
	window := rapid.SampledFrom([][2]int64{{0, 0}, {0, 0}, {1, never}, {never, 0}, {1, 1}}).Draw(rt, "window")
	return fmt.Sprintf("=%d %d %d %d", version, rapid.Int64Range(0, 4).Draw(rt, "stock"), window[0], window[1])
}

// expect applies a word to the model, and returns what the gate must reply.
func (m *claimModel) expect(target models.Target, word string) ruling {
	d := m.drops[target]
	if !d.isWarm {
		return ruling{status: isCold}
	}
	reply := func(status, claim int64) ruling {
		item := ruling{status: status, remaining: max(0, d.stock-int64(len(d.held)))}
		if claim != 0 {
			item.claim = strconv.FormatInt(claim, 10)
		}
		return item
	}
	var user, claim, version, stock, begins, ends int64
	now := time.Now().UnixMilli()
	if n, _ := fmt.Sscanf(word, "=%d %d %d %d", &version, &stock, &begins, &ends); n == 4 {
		switch {
		case version > d.version:
			d.version, d.stock, d.begins, d.ends, d.sent = version, stock, begins, ends, version
		case version == d.version && d.sent != version:
			d.sent = version
		default:
			return reply(asAsked, 0)
		}
		return reply(isChanged, 0)
	}
	release, back := word[0] == '!', word[0] == '-'
	if release || back {
		word = word[1:]
	}
	_, _ = fmt.Sscanf(word, "%d %d", &user, &claim)
	switch held := d.held[user]; {
	case back && held != claim:
		return reply(asAsked, held)
	case back && d.ends != 0 && now >= d.ends:
		return reply(isEnded, held)
	case release && held != claim && m.ended[shardClaim{target.Shard(shards), claim}]:
		return reply(asAsked, held)
	case release && held != claim:
		m.ended[shardClaim{target.Shard(shards), claim}] = true
		return reply(isChanged, held)
	case release || back:
		delete(d.held, user)
		m.ended[shardClaim{target.Shard(shards), claim}] = true
		return reply(isChanged, claim)
	case held != 0:
		return reply(asAsked, held)
	case d.begins > now:
		return reply(isNotBegun, 0)
	case d.ends != 0 && now >= d.ends:
		return reply(isEnded, 0)
	case int64(len(d.held)) >= d.stock:
		return reply(isSoldOut, 0)
	}
	d.held[user] = claim
	return reply(isChanged, claim)
}

// fold applies the events in the outbox of a shard to claims, by drop.
func (m *claimModel) fold(rt *rapid.T, ctx context.Context, shard int, claims map[models.Target]map[int64]int64) {
	messages, err := m.plain.XRange(ctx, outboxKey(shard), "-", "+").Result()
	require.NoError(rt, err)
	for _, message := range messages {
		events, err := models.Run(message.Values["run"].(string)).Events(shard, shards)
		require.NoError(rt, err)
		for _, e := range events {
			of := claims[e.Target()]
			switch {
			case of == nil:
			case e.Type == models.ClaimTaken:
				require.Zero(rt, of[e.UserID], "an event of a claim follows one of another")
				of[e.UserID] = e.ClaimID
			case e.Type == models.ClaimReturned && of[e.UserID] == e.ClaimID:
				delete(of, e.UserID)
			}
		}
	}
}

// apply moves all events of a shard to MySQL.
func (m *claimModel) apply(rt *rapid.T, ctx context.Context, shard int) {
	claims := map[models.Target]map[int64]int64{}
	for target, d := range m.drops {
		claims[target] = d.applied
	}
	m.fold(rt, ctx, shard, claims)
	require.NoError(rt, m.plain.XTrimMaxLen(ctx, outboxKey(shard), 0).Err())
}

func (m *claimModel) check(rt *rapid.T, ctx context.Context, targets []models.Target) {
	for _, target := range targets {
		d := m.drops[target]
		claims := map[int64]int64{}
		maps.Copy(claims, d.applied)
		m.fold(rt, ctx, target.Shard(shards), map[models.Target]map[int64]int64{target: claims})
		require.Equal(rt, d.held, claims, "in MySQL and on the way there")
		if !d.isWarm {
			require.Equal(rt, d.held, d.applied, "a cold drop is in MySQL")
			continue
		}
		held, err := m.r.HeldClaims(ctx, target.ID)
		require.NoError(rt, err)
		require.Equal(rt, d.held, held)
		count, err := m.plain.HGet(ctx, m.r.keys(target).likes, "count").Int()
		require.NoError(rt, err)
		require.Len(rt, held, count)
	}
}
