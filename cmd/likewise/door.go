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

// doorFlags configure the limits on clients, and the proxies that name them.
type doorFlags struct {
	Limits         float64  `env:"LIKEWISE_LIMITS" default:"1" help:"${limits_help}"`
	TrustedProxies []string `env:"LIKEWISE_TRUSTED_PROXIES" placeholder:"NETWORK" help:"${proxies_help}"`
	AccessLog      string   `env:"LIKEWISE_ACCESS_LOG" default:"all" enum:"all,errors,none" help:"${access_log_help}"`
	accountFlags
}

// accountFlags say who can register, and restrict the names and avatars of accounts.
type accountFlags struct {
	Registration string `env:"LIKEWISE_REGISTRATION" default:"open" enum:"${registrations}" help:"${registration_help}"`

	ReservedNames []string `env:"LIKEWISE_RESERVED_NAMES" placeholder:"NAME" help:"${reserved_help}"`
	AvatarHosts   []string `env:"LIKEWISE_AVATAR_HOSTS" placeholder:"HOST" help:"${avatar_help}"`
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

// checkMail returns an error for a mode of registration that the site cannot have without mail.
func (f accountFlags) checkMail(mail bool) error {
	if err := handlers.CheckRegistration(handlers.Registration(f.Registration), mail); err != nil {
		return fmt.Errorf("--registration (or $LIKEWISE_REGISTRATION): %w; set --smtp", err)
	}
	return nil
}

// staffFlags say what is required of moderators and admins.
type staffFlags struct {
	StaffSecondFactor string `env:"LIKEWISE_STAFF_SECOND_FACTOR" default:"required" enum:"${need}" help:"${staff_help}"`
}

func (f staffFlags) open(config *handlers.Config) {
	config.StaffSecondFactor = f.StaffSecondFactor == "required"
}

// check returns an error for invalid values.
func (d doorFlags) check() error {
	if d.Limits < 0 || math.IsNaN(d.Limits) || math.IsInf(d.Limits, 0) {
		return errors.New("--limits (or $LIKEWISE_LIMITS) must be a number from 0 up")
	}
	if _, err := network.ParseProxies(d.TrustedProxies); err != nil {
		return fmt.Errorf("--trusted-proxies (or $LIKEWISE_TRUSTED_PROXIES): %w", err)
	}
	return d.accountFlags.check()
}

// open sets the limits, proxies, names and hosts of config. The caller closes the limiter, if there is one.
func (d doorFlags) open(config *handlers.Config, gate likesFlags, registry prometheus.Registerer) (err error) {
	config.ReservedNames, config.AvatarHosts = d.ReservedNames, d.AvatarHosts
	config.Registration = handlers.Registration(d.Registration)
	config.AccessLog = handlers.AccessLog(d.AccessLog)
	if config.TrustedProxies, err = network.ParseProxies(d.TrustedProxies); err != nil || d.Limits == 0 {
		return err
	}
	alone := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "likewise_limits_without_redis_total",
		Help: "Requests that one process counted alone, because Redis did not answer.",
	})
	registry.MustRegister(alone)
	config.LimitFactor = d.Limits
	options, err := gate.RedisTLS.redisOptions(gate.gateURL())
	if err == nil || !gate.gated() {
		config.Limiter, err = counters.OpenLimiter(gate.gateURL(), counters.DefaultLimitWait, alone.Inc, options...)
	}
	return err
}

// closeLimiter closes a limiter that may be nil.
func closeLimiter(log *slog.Logger, l *counters.Limiter) {
	if l == nil {
		return
	}
	if err := l.Close(); err != nil {
		log.Debug("limiter not closed", "error", err)
	}
}

// secretFlags are those of production roles.
type secretFlags struct {
	AllowWeakPasswords bool `env:"LIKEWISE_ALLOW_WEAK_PASSWORDS" help:"${weak_password_help}"`
}

// check returns an error if a server on another machine has no password or a common one. Servers on this machine are
// exempt, because nobody else can reach them.
func (f secretFlags) check(dsn, redisURL string) error {
	if f.AllowWeakPasswords {
		return nil
	}
	const how = "has no password, or one that everybody tries first, and its server is on another machine: " +
		"set a better password, or --allow-weak-passwords"
	c, err := mysql.ParseDSN(dsn)
	if err == nil && c.Net == "tcp" && !onThisMachine(c.Addr) && weak(c.Passwd, c.User, c.DBName) {
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

// onThisMachine reports whether the address is on the loopback interface.
func onThisMachine(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "" || host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// wellKnown lists passwords of examples and images, and common ones.
var wellKnown = []string{
	"",
	"123456",
	"12345678",
	"123456789",
	"admin",
	"changeme",
	"change-me",
	"change_me",
	"check",
	"default",
	"dev",
	"development",
	"example",
	"foobared",
	"letmein",
	"likewise",
	"mariadb",
	"master",
	"mysql",
	"pass",
	"passwd",
	"password",
	"password1",
	"qwerty",
	"redis",
	"root",
	"secret",
	"test",
	"toor",
	"valkey",
}

// weak reports whether a password is well known, or equal to one of names.
func weak(password string, names ...string) bool {
	same := func(s string) bool { return strings.EqualFold(s, password) }
	return slices.ContainsFunc(wellKnown, same) || slices.ContainsFunc(names, same)
}
