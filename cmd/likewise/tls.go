package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/go-sql-driver/mysql"

	"likewise/counters"
	"likewise/workers"
)

// tlsFlags are the files of the connections to a server. The certificate of the server is always verified. A file is
// read once, at the start.
type tlsFlags struct {
	CA   string `name:"ca" env:"CA" placeholder:"FILE" help:"${ca_help}"`
	Cert string `name:"cert" env:"CERT" placeholder:"FILE" help:"${cert_help}"`
	Key  string `name:"key" env:"KEY" placeholder:"FILE" help:"${key_help}"`
}

// given reports whether any file is set.
func (f tlsFlags) given() bool { return f != tlsFlags{} }

// config returns the settings of TLS. Errors name the flags of server, which is "mysql", "redis" or "kafka".
func (f tlsFlags) config(server string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flagName(server+"-ca"), err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: %s has no certificate in PEM", flagName(server+"-ca"), f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, fmt.Errorf("%s and %s need each other", flagName(server+"-cert"), flagName(server+"-key"))
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flagName(server+"-cert"), err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// flagName returns a flag and its variable, as messages name them.
func flagName(flag string) string {
	return fmt.Sprintf("--%s (or $LIKEWISE_%s)", flag, strings.ToUpper(strings.ReplaceAll(flag, "-", "_")))
}

// mysqlTLSName is the name under which the driver knows the settings of this process.
const mysqlTLSName = "likewise"

// withTLS returns the DSN with the files. A DSN that chooses the settings of TLS itself is returned as it is.
func (f tlsFlags) withTLS(dsn string) (string, error) {
	if !f.given() {
		return dsn, nil
	}
	config, err := f.config("mysql")
	if err != nil {
		return "", err
	}
	parsed, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", fmt.Errorf("%s is not of the form %s", flagName("mysql-dsn"), mysqlForm)
	}
	if parsed.TLSConfig != "" && parsed.TLSConfig != "true" {
		return "", fmt.Errorf("%s has tls=%s, which --mysql-ca, --mysql-cert and --mysql-key contradict",
			flagName("mysql-dsn"), parsed.TLSConfig)
	}
	if err := mysql.RegisterTLSConfig(mysqlTLSName, config); err != nil {
		return "", fmt.Errorf("settings of tls: %w", err)
	}
	parsed.TLSConfig = mysqlTLSName
	return parsed.FormatDSN(), nil
}

// redisOptions returns the options of a connection to Redis at url.
func (f tlsFlags) redisOptions(url string) ([]counters.Option, error) {
	if !f.given() {
		return nil, nil
	}
	if !strings.HasPrefix(url, "rediss") {
		return nil, fmt.Errorf("--redis-ca, --redis-cert and --redis-key need a URL with rediss in %s",
			flagName("redis"))
	}
	config, err := f.config("redis")
	if err != nil {
		return nil, err
	}
	return []counters.Option{counters.WithTLS(config)}, nil
}

// secret is a value that is never printed.
type secret string

// String returns a mark in place of the value.
func (s secret) String() string {
	if s == "" {
		return ""
	}
	return "…"
}

// GoString is like String.
func (s secret) GoString() string { return s.String() }

// saslFlags are the account at the brokers.
type saslFlags struct {
	KafkaSASL     string `name:"kafka-sasl" enum:"${sasl}" default:"none" env:"LIKEWISE_KAFKA_SASL" help:"${sasl_help}"`
	KafkaUser     string `env:"LIKEWISE_KAFKA_USER" placeholder:"NAME" help:"${kafka_user_help}"`
	KafkaPassword secret `env:"LIKEWISE_KAFKA_PASSWORD" placeholder:"PASSWORD" help:"${kafka_password_help}"`
}

// account returns the account at the brokers, or nil.
func (f saslFlags) account(overTLS bool) (*workers.SASL, error) {
	switch {
	case f.KafkaSASL == "none" || f.KafkaSASL == "":
		if f.KafkaUser != "" || f.KafkaPassword != "" {
			return nil, fmt.Errorf("--kafka-user and --kafka-password need %s", flagName("kafka-sasl"))
		}
		return nil, nil
	case f.KafkaUser == "" || f.KafkaPassword == "":
		return nil, fmt.Errorf("missing: %s or %s", flagName("kafka-user"), flagName("kafka-password"))
	case f.KafkaSASL == workers.SASLPlain && !overTLS:
		return nil, fmt.Errorf("%s=plain sends the password as it is: it needs %s", flagName("kafka-sasl"),
			flagName("kafka-tls"))
	}
	return &workers.SASL{Mechanism: f.KafkaSASL, User: f.KafkaUser, Password: string(f.KafkaPassword)}, nil
}

// settingFault explains an error of a connection to server that only another setting ends. It returns nil for all other
// errors, such as that of a server that is down.
func settingFault(server string, err error) error {
	flag := server
	if server == "mysql" {
		flag = "mysql-dsn"
	}
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var remote *net.OpError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("%s: the server's certificate is signed by an authority that is not trusted: %w",
			flagName(server+"-ca"), err)
	case errors.As(err, &name):
		return fmt.Errorf("%s: the server's certificate is for another name: %w", flagName(flag), err)
	case errors.As(err, &invalid):
		return fmt.Errorf("%s: the server's certificate is not valid: %w", flagName(flag), err)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return fmt.Errorf("%s: the server refuses the client's certificate, or its lack: %w",
			flagName(server+"-cert"), err)
	case errors.As(err, &plain), errors.Is(err, mysql.ErrNoTLS):
		return fmt.Errorf("%s: the server does not speak TLS: %w", flagName(flag), err)
	case refusesAccount(err):
		if server == "kafka" {
			flag = "kafka-password"
		}
		return fmt.Errorf("%s: the server refuses the user name or the password: %w", flagName(flag), err)
	}
	return nil
}

// mysqlDenied lists the numbers of MySQL and MariaDB: access denied, without a password, to the database, and a
// connection without TLS that the account or the server requires.
var mysqlDenied = []uint16{1045, 1698, 1044, 3159}

// refusesAccount reports whether a server has refused the account.
func refusesAccount(err error) bool {
	var denied *mysql.MySQLError
	if errors.As(err, &denied) && slices.Contains(mysqlDenied, denied.Number) {
		return true
	}
	return counters.RefusesAccount(err) || errors.Is(err, sarama.ErrSASLAuthenticationFailed) ||
		errors.Is(err, workers.ErrHungUp)
}

// checkTimeout bounds the first contact with a server that may be down.
const checkTimeout = 3 * time.Second

// checkRedis returns an error if only another setting lets Redis answer. If Redis is down, it returns nil.
func checkRedis(ctx context.Context, redis *counters.Redis) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return checkServer("redis", func() error { return redis.Ping(ctx) })
}

// checkKafka returns an error if only another setting lets Kafka answer. If Kafka is down, it returns nil.
func checkKafka(kafka workers.Kafka) error { return checkServer("kafka", kafka.Dial) }

// checkAttempts is how often a server that hangs up is asked. Fewer failures than these open no circuit breaker.
const checkAttempts = 4

// checkServer returns the fault of a setting that ask meets. In TLS 1.3 a server refuses the client's certificate after
// the client's handshake has ended. Its reason is lost if it resets the connection while the client writes, so a server
// that hangs up is asked again.
func checkServer(server string, ask func() error) error {
	for range checkAttempts {
		err := ask()
		if fault := settingFault(server, err); fault != nil {
			return fault
		}
		if !hungUp(err) {
			return nil
		}
	}
	return nil
}

func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
