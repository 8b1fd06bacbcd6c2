package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"

	"likewise/counters"
	"likewise/handlers"
	"likewise/handlers/network"
	"likewise/models"
)

// doorFlags say who gets in, and how often.
type doorFlags struct {
	Limits         float64  `env:"LIKEWISE_LIMITS" default:"1" help:"Factor of all limits on what clients may do: 2 is twice as much; 0 is no limits."`
	LikeLimit      int      `env:"LIKEWISE_LIKE_LIMIT" default:"${like_limit}" help:"Likes and unlikes that an account may give in a minute. New accounts may half as many, moderators ten times as many."`
	TrustedProxies []string `env:"LIKEWISE_TRUSTED_PROXIES" placeholder:"NETWORK" help:"Proxies that are believed when they say in X-Forwarded-For where a request came from: addresses or networks such as 10.0.0.0/8. None unless named; without it, all clients behind a proxy share the limits of one."`
	accountFlags
}

// accountFlags say what accounts may be called and show.
type accountFlags struct {
	ReservedNames []string `env:"LIKEWISE_RESERVED_NAMES" placeholder:"NAME" help:"Usernames that nobody can register, besides admin, moderator, support and others that are built in; names that look like them are refused, too. user create takes them all."`
	AvatarHosts   []string `env:"LIKEWISE_AVATAR_HOSTS" placeholder:"HOST" help:"Hosts that avatars may be at, such as images.example.org: each learns the addresses of all who read. * alone means every host, and none is none."`
}

func (f accountFlags) check() error {
	if _, err := models.NewReservedNames(f.ReservedNames); err != nil {
		return fmt.Errorf("--reserved-names (or $LIKEWISE_RESERVED_NAMES): %w", err)
	}
	if err := handlers.CheckAvatarHosts(f.AvatarHosts); err != nil {
		return fmt.Errorf("--avatar-hosts (or $LIKEWISE_AVATAR_HOSTS): %w", err)
	}
	return nil
}

// check refuses what cannot be meant.
func (d doorFlags) check() error {
	if d.Limits < 0 || math.IsNaN(d.Limits) || math.IsInf(d.Limits, 0) {
		return errors.New("--limits (or $LIKEWISE_LIMITS) must be a number from 0 up")
	}
	if d.LikeLimit < 1 || d.LikeLimit > 1_000_000 {
		return errors.New("--like-limit (or $LIKEWISE_LIKE_LIMIT) must be a number from 1 to 1000000; --limits=0 is no limits at all")
	}
	if _, err := network.ParseProxies(d.TrustedProxies); err != nil {
		return fmt.Errorf("--trusted-proxies (or $LIKEWISE_TRUSTED_PROXIES): %w", err)
	}
	return d.accountFlags.check()
}

// open fills in what the API needs to keep the door. The caller closes the limiter, if there is one.
func (d doorFlags) open(config *handlers.Config, redis string, registry prometheus.Registerer) (err error) {
	config.ReservedNames, config.AvatarHosts = d.ReservedNames, d.AvatarHosts
	if config.TrustedProxies, err = network.ParseProxies(d.TrustedProxies); err != nil || d.Limits == 0 {
		return err
	}
	alone := prometheus.NewCounter(prometheus.CounterOpts{Name: "likewise_limits_without_redis_total",
		Help: "Requests that were counted by one process alone because Redis did not answer."})
	registry.MustRegister(alone)
	config.LimitFactor, config.LikeLimit = d.Limits, d.LikeLimit
	config.Limiter, err = counters.OpenLimiter(redis, alone.Inc)
	return err
}

// closeLimiter closes it, if there is one.
func closeLimiter(l *counters.Limiter) {
	if l == nil {
		return
	}
	if err := l.Close(); err != nil {
		slog.Debug("limiter not closed", "error", err)
	}
}

// secretFlags are for the roles of production.
type secretFlags struct {
	AllowWeakPasswords bool `env:"LIKEWISE_ALLOW_WEAK_PASSWORDS" help:"Start although MySQL or Redis is on another machine and its password is missing or one that everybody tries first."`
}

// check refuses servers on other machines that need no secret to get into. Those on this machine may be a developer's
// own: nobody else can reach them.
func (f secretFlags) check(dsn, redisURL string) error {
	if f.AllowWeakPasswords {
		return nil
	}
	const how = "has no password, or one that everybody tries first, and its server is on another machine: give it a better one, or set --allow-weak-passwords"
	if c, err := mysql.ParseDSN(dsn); err == nil && c.Net == "tcp" && !onThisMachine(c.Addr) && weak(c.Passwd, c.User, c.DBName) {
		return errors.New("--mysql-dsn (or $LIKEWISE_MYSQL_DSN) " + how)
	}
	if u, err := url.Parse(redisURL); err == nil && redisURL != "" && u.Scheme != "unix" {
		password, _ := u.User.Password()
		away := func(addr string) bool { return !onThisMachine(addr) }
		if slices.ContainsFunc(append(u.Query()["addr"], u.Host), away) && weak(password, u.User.Username()) {
			return errors.New("--redis (or $LIKEWISE_REDIS) " + how)
		}
	}
	return nil
}

// onThisMachine reports whether nobody else can reach the address.
func onThisMachine(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "" || host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// wellKnown are passwords of examples, images and habit.
var wellKnown = []string{"", "123456", "12345678", "123456789", "admin", "changeme", "change-me", "change_me", "check", "default", "dev", "development", "example", "foobared", "letmein",
	"likewise", "mariadb", "master", "mysql", "pass", "passwd", "password", "password1", "qwerty", "redis", "root", "secret", "test", "toor", "valkey"}

// weak reports whether a password is one of those, or one of the names beside it.
func weak(password string, names ...string) bool {
	same := func(s string) bool { return strings.EqualFold(s, password) }
	return slices.ContainsFunc(wellKnown, same) || slices.ContainsFunc(names, same)
}
