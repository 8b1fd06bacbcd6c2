package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Redis is a private redis-server with an append-only file, without eviction, with 1024 logical databases and without a
// password.
type Redis struct{ *Server }

// StartRedis starts redis-server in dir, and creates dir if it does not exist. The last two seconds may be lost if the
// host loses power, or if the server is killed while its last sync takes long, as it can on a busy machine. With the
// flags "--appendfsync", "always" it keeps every acknowledged write. flags override the server's own flags.
func StartRedis(ctx context.Context, dir string, flags ...string) (*Redis, error) {
	s, err := start(ctx, program{
		name:  "redis-server",
		ports: 1,
		prepare: func(_ context.Context, s *Server) error {
			return os.MkdirAll(s.file("data"), 0o700)
		},
		command: func(s *Server) (*exec.Cmd, error) { return redisCommand(s, flags) },
		probe:   probeRedis,
	}, dir)
	if err != nil {
		return nil, err
	}
	return &Redis{s}, nil
}

// URL returns the address in the form redis://host:port/0.
func (r *Redis) URL() string { return "redis://" + r.Addr() + "/0" }

func redisCommand(s *Server, flags []string) (*exec.Cmd, error) {
	path, err := find("redis-server", "apt-get install redis-server")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, append([]string{
		"--bind", "127.0.0.1",
		"--port", strconv.Itoa(s.ports[0]),
		"--dir", s.file("data"),
		"--databases", "1024",
		"--maxmemory-policy", "noeviction",
		"--appendonly", "yes",
		"--appendfsync", "everysec",
		"--save", "",
		"--daemonize", "no",
	}, flags...)...)
	cmd.Env = environment()
	return cmd, nil
}

func probeRedis(ctx context.Context, s *Server) error {
	client := redis.NewClient(&redis.Options{
		Addr:                  s.Addr(),
		MaxRetries:            -1,
		DialerRetries:         1,
		PoolSize:              1,
		DisableIdentity:       true,
		ContextTimeoutEnabled: true,
	})
	defer client.Close()
	info, err := client.Info(ctx, "server", "persistence").Result()
	if err != nil {
		return fmt.Errorf("ask redis: %w", err)
	}
	if strings.Contains(info, "\r\nloading:1\r\n") {
		return errors.New("redis is loading its data")
	}
	if !strings.Contains(info, fmt.Sprintf("\r\nprocess_id:%d\r\n", s.child.Pid())) {
		return errors.New("another redis has the port")
	}
	return nil
}
