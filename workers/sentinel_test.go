package workers

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
	"likewise/internal/testkit"
)

// link is a connection between two servers, which can be cut.
type link struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	cut   bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{Listener: listener}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.sever()
		require.NoError(t, listener.Close())
		serving.Wait()
	})
	serving.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", to)
			if err != nil || !l.add(from, upstream) {
				from.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{from, upstream}, {upstream, from}} {
				serving.Go(func() {
					_, _ = io.Copy(
						pair[0],
						pair[1],
					) // it ends when either side closes
					pair[0].Close()
				})
			}
		}
	})
	return l
}

func (l *link) add(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conns...)
	return !l.cut
}

func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for _, c := range l.conns {
		c.Close()
	}
}

// startSentinel starts a Sentinel that promotes the replica one second after the primary has died.
func startSentinel(t *testing.T, primary string) (address string) {
	t.Helper()
	host, port, err := net.SplitHostPort(primary)
	require.NoError(t, err)
	own := freePort(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	config := fmt.Appendf(nil, "bind 127.0.0.1\nport %s\ndir %s\nsentinel monitor forum %s %s 1\n"+
		"sentinel down-after-milliseconds forum 1000\nsentinel failover-timeout forum 5000\n", own, dir, host, port)
	require.NoError(t, os.WriteFile(file, config, 0o600))
	cmd := exec.Command("redis-server", file, "--sentinel")
	sentinel, err := servers.Spawn(cmd)
	require.NoError(t, err)
	t.Cleanup(sentinel.Kill)
	return "127.0.0.1:" + own
}

func TestRecovery_redisFailsOverToAReplicaThatLags(t *testing.T) {
	t.Parallel()
	primary, err := servers.StartRedis(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, primary.Stop(context.Background())) })
	wire := newLink(t, primary.Addr())
	host, port, err := net.SplitHostPort(wire.Addr().String())
	require.NoError(t, err)
	replica, err := servers.StartRedis(t.Context(), t.TempDir(), "--replicaof", host+" "+port)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, replica.Stop(context.Background())) })
	watcher := startSentinel(t, primary.Addr())
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: watcher})
	t.Cleanup(func() { require.NoError(t, sentinel.Close()) })
	testkit.Eventually(t, patience, func() (bool, string) {
		replicas, err := sentinel.Replicas(context.Background(), "forum").Result()
		return err == nil && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok", fmt.Sprint(replicas, err)
	})

	brokers, topic := testkit.Topic(t)
	p := newPipeline(t, testkit.Database(t), "redis://"+watcher+"?master_name=forum", brokers, topic)
	p.start()
	target := p.post()
	p.set(target, 1, true)
	p.set(target, 2, true)
	p.flush()
	wire.sever() // the replica receives no further writes
	p.set(target, 1, false)
	p.set(target, 3, true)
	p.flush()
	began := time.Now()
	require.NoError(t, primary.Kill())
	testkit.Eventually(t, patience, func() (bool, string) {
		addr, err := sentinel.GetMasterAddrByName(context.Background(), "forum").Result()
		return err == nil && net.JoinHostPort(addr[0], addr[1]) == replica.Addr(), fmt.Sprint(addr, err)
	})
	t.Logf("the replica is the primary after %v", time.Since(began).Round(time.Millisecond))
	p.recovered(began)
	assert.Equal(
		t,
		[]int64{2, 3},
		p.likers(target),
		"what had reached MySQL is kept, though the new primary never had it",
	)
	assert.Equal(t, int64(3), p.set(target, 4, true).Count)
	p.flush()
	assert.Equal(t, []int64{2, 3, 4}, p.likers(target))
	assert.Empty(t, p.verify(false))
}
