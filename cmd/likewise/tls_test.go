package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"likewise/counters"
	"likewise/internal/servers"
	"likewise/workers"
)

const securePassword = "a-secret-of-the-servers"

// secured is a site whose servers require TLS, a client's certificate and a password.
type secured struct {
	*site
	ca     *authority
	client pair

	certificate atomic.Pointer[tls.Certificate] // of Kafka
	reload      []func(pair)                    // sets the certificate of each server
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	ca := newAuthority(t, "likewise")
	s := &secured{ca: ca, client: ca.good()}
	dsn, admin := s.startMySQL(t)
	url, plain := s.startRedis(t)
	broker := s.startKafka(t)
	s.site = makeSite(t, admin, plain, nil, "")
	s.env = []string{
		"LIKEWISE_MYSQL_DSN=" + dsn, "LIKEWISE_REDIS=" + url, "LIKEWISE_KAFKA=" + broker,
		"LIKEWISE_KAFKA_SASL=plain", "LIKEWISE_KAFKA_USER=plain", "LIKEWISE_KAFKA_PASSWORD=" + securePassword,
	}
	for _, server := range []string{"MYSQL", "REDIS", "KAFKA"} {
		s.env = append(s.env, "LIKEWISE_"+server+"_CA="+ca.file, "LIKEWISE_"+server+"_CERT="+s.client.cert,
			"LIKEWISE_"+server+"_KEY="+s.client.key)
	}
	s.serve(ca.good())
	return s
}

// serve changes the certificate of all servers.
func (s *secured) serve(p pair) {
	for _, reload := range s.reload {
		reload(p)
	}
}

// copyFile copies a file, which only this user can read.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, text, 0o600))
}

// startMySQL returns the DSN of an account that requires a certificate, and one of an administrator.
func (s *secured) startMySQL(t *testing.T) (dsn, admin string) {
	t.Helper()
	dir := t.TempDir()
	seen := dir
	if os.Getenv("LIKEWISE_SERVERS_MYSQL") != "" {
		seen = "/mnt" // the folder in the server's own tree
	}
	put := func(p pair) {
		copyFile(t, s.ca.file, filepath.Join(dir, "ca.pem"))
		copyFile(t, p.cert, filepath.Join(dir, "cert.pem"))
		copyFile(t, p.key, filepath.Join(dir, "key.pem"))
	}
	put(s.ca.good())
	server, err := servers.StartMySQL(t.Context(), dir, "--ssl-ca="+seen+"/ca.pem", "--ssl-cert="+seen+"/cert.pem",
		"--ssl-key="+seen+"/key.pem")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Kill()) })
	db, err := sql.Open("mysql", server.DSN(""))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	run := func(statement string) error {
		_, err := db.ExecContext(context.Background(), statement)
		return err
	}
	s.reload = append(s.reload, func(p pair) {
		put(p)
		reload := "FLUSH SSL"
		if os.Getenv("LIKEWISE_SERVERS_MYSQL") != "" {
			reload = "ALTER INSTANCE RELOAD TLS"
		}
		require.NoError(t, run(reload))
	})
	for _, statement := range []string{
		"CREATE DATABASE likewise CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
		"CREATE USER 'secure'@'127.0.0.1' IDENTIFIED BY '" + securePassword + "' REQUIRE X509",
		"GRANT ALL ON likewise.* TO 'secure'@'127.0.0.1'",
	} {
		require.NoError(t, run(statement))
	}
	return "secure:" + securePassword + "@tcp(" + server.Addr() + ")/likewise", server.DSN("likewise")
}

// startRedis returns a URL with TLS, and one without.
func (s *secured) startRedis(t *testing.T) (url, plain string) {
	t.Helper()
	port, first := freePort(t), s.ca.good()
	server, err := servers.StartRedis(t.Context(), t.TempDir(), "--tls-port", port, "--tls-auth-clients", "yes",
		"--tls-cert-file", first.cert, "--tls-key-file", first.key, "--tls-ca-cert-file", s.ca.file,
		"--user", "secure", "on", ">"+securePassword, "~*", "&*", "+@all")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Kill()) })
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	s.reload = append(s.reload, func(p pair) {
		require.NoError(t, client.Do(context.Background(), "CONFIG", "SET", "tls-cert-file", p.cert,
			"tls-key-file", p.key).Err())
	})
	return "rediss://secure:" + securePassword + "@127.0.0.1:" + port + "/0", server.URL()
}

func (s *secured) startKafka(t *testing.T) (address string) {
	t.Helper()
	s.reload = append(s.reload, func(p pair) {
		cert, err := tls.LoadX509KeyPair(p.cert, p.key)
		require.NoError(t, err)
		s.certificate.Store(&cert)
	})
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.cert)
	options := []kfake.Opt{kfake.NumBrokers(1), kfake.EnableSASL(), kfake.TLS(&tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate.Load(), nil },
	})}
	for _, mechanism := range workers.SASLMechanisms() {
		options = append(options, kfake.Superuser(strings.ToUpper(mechanism), mechanism, securePassword))
	}
	cluster, err := kfake.NewCluster(options...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster.ListenAddrs()[0]
}

// Likes pass through servers that require TLS, a certificate of the client and a password, by each mechanism of SASL.
// A mistake in a setting keeps a role from starting, and the message names the setting.
func TestTLS_ofAllServers(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	assert.Contains(t, s.succeed("migrate", "up"), "the schema is up to date")
	s.succeed("migrate", "status")
	users := s.accounts(4)
	for i, mechanism := range workers.SASLMechanisms() {
		sasl := []string{"LIKEWISE_KAFKA_SASL=" + mechanism, "LIKEWISE_KAFKA_USER=" + mechanism}
		worker := start(t, append(s.env, sasl...), "worker")
		s.awaitOpen()
		api, url := s.api()
		post := newPost(t, url, users[0])
		assert.Equal(t, likeJSON{true, 1}, like(t, url, users[i+1], post.path(), true))
		succeed(t, append(s.env, sasl...), "cron", "run", "flush", "--timeout=1m")
		assert.Equal(t, i+1, s.count("SELECT COUNT(*) FROM post_likes"), mechanism)
		api.stop()
		worker.stop()
	}
	s.succeed("verify")
	s.mistakes()
}

// mistakes starts a worker with each mistake.
func (s *secured) mistakes() {
	s.t.Helper()
	other := newAuthority(s.t, "other")
	dsn, url, broker := s.env[0], s.env[1], s.env[2]
	local := func(setting string) string { return strings.Replace(setting, "127.0.0.1", "localhost", 1) }
	wrong := func(setting string) string { return strings.Replace(setting, securePassword, "another-secret", 1) }
	s.refuses("LIKEWISE_MYSQL_CA="+other.file, "--mysql-ca (or $LIKEWISE_MYSQL_CA): .*authority")
	s.refuses("LIKEWISE_REDIS_CA="+other.file, "--redis-ca (or $LIKEWISE_REDIS_CA): .*authority")
	s.refuses("LIKEWISE_KAFKA_CA="+other.file, "--kafka-ca (or $LIKEWISE_KAFKA_CA): .*authority")
	s.refuses(local(dsn), "--mysql-dsn (or $LIKEWISE_MYSQL_DSN): .*another name")
	s.refuses(local(url), "--redis (or $LIKEWISE_REDIS): .*another name")
	s.refuses(local(broker), "--kafka (or $LIKEWISE_KAFKA): .*another name")
	s.refuses(wrong(dsn), "--mysql-dsn (or $LIKEWISE_MYSQL_DSN): .*refuses the user name or the password")
	s.refuses(wrong(url), "--redis (or $LIKEWISE_REDIS): .*refuses the user name or the password")
	for _, mechanism := range workers.SASLMechanisms() {
		s.refuses(
			"LIKEWISE_KAFKA_PASSWORD=another-secret\nLIKEWISE_KAFKA_SASL="+mechanism+"\nLIKEWISE_KAFKA_USER="+mechanism,
			"--kafka-password (or $LIKEWISE_KAFKA_PASSWORD): .*refuses the user name or the password",
		)
	}
	for _, server := range []string{"REDIS", "KAFKA"} {
		s.refuses(fmt.Sprintf("LIKEWISE_%[1]s_CERT=\nLIKEWISE_%[1]s_KEY=", server),
			fmt.Sprintf("--%s-cert (or $LIKEWISE_%s_CERT): .*client's certificate", strings.ToLower(server), server))
	}
	// A worker connects to Kafka first, then to MySQL, then to Redis.
	ends := time.Now().Add(5 * time.Second) // MySQL loads no certificate that has expired
	s.serve(s.ca.issue(ends, "127.0.0.1"))
	<-time.After(time.Until(ends) + time.Second)
	for i, server := range []string{"kafka", "mysql-dsn", "redis"} {
		s.refuses("", flagName(server)+": .*not valid.*expired")
		s.reload[[]int{2, 0, 1}[i]](s.ca.good())
	}
}

// refuses starts a worker with other settings, which must end with a message that matches the pattern. Only ".*" in it
// stands for other text.
func (s *secured) refuses(settings, pattern string) {
	s.t.Helper()
	said := fail(s.t, 1, append(slices.Clip(s.env), strings.Fields(settings)...), "worker")
	for _, part := range strings.Split(pattern, ".*") {
		assert.Contains(s.t, said, part, settings)
	}
	assert.NotContains(s.t, said, securePassword)
}

func TestTLS_settingsAreChecked(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "likewise")
	good := ca.good()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	base := []string{"worker", "--mysql-dsn=u:p@tcp(127.0.0.1:1)/db", "--kafka=127.0.0.1:1",
		"--redis=rediss://127.0.0.1:1"}
	for args, want := range map[string]string{
		"--redis-ca=/nowhere":                               "--redis-ca (or $LIKEWISE_REDIS_CA): open /nowhere",
		"--redis-ca=" + empty:                               "has no certificate in PEM",
		"--redis=redis://127.0.0.1:1 --redis-ca=" + ca.file: "need a URL with rediss",
		"--mysql-cert=" + good.cert:                         "--mysql-key (or $LIKEWISE_MYSQL_KEY) need each other",
		"--kafka-key=" + good.key:                           "--kafka-key (or $LIKEWISE_KAFKA_KEY) need each other",
		"--kafka-sasl=scram-sha-256":                        "missing: --kafka-user (or $LIKEWISE_KAFKA_USER)",
		"--kafka-user=me":                                   "need --kafka-sasl",
		"--kafka-sasl=kerberos":                             "--kafka-sasl",
		"--kafka-sasl=plain --kafka-user=me --kafka-password=" + securePassword: "needs --kafka-tls",
	} {
		said := fail(t, 2, nil, append(slices.Clip(base), strings.Fields(args)...)...)
		assert.Contains(t, said, want, args)
		assert.NotContains(t, said, securePassword)
	}
	assert.Equal(t, "… …", fmt.Sprintf("%v %#v", secret(securePassword), secret(securePassword)))
}

// A server's refusal of the client's certificate is lost if it resets the connection at once.
func TestTLS_aRefusalMayBeLostAtFirst(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "likewise")
	good := ca.good()
	own, err := tls.LoadX509KeyPair(good.cert, good.key)
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var resets atomic.Int32
	const lost = 3
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			c := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}}
			reset := resets.Add(1) <= lost
			if !reset {
				c.ClientAuth = tls.RequireAnyClientCert
			}
			_ = tls.Server(conn, c).HandshakeContext(t.Context()) // fails if a certificate is required
			if tcp, ok := conn.(*net.TCPConn); ok && reset {
				_ = tcp.SetLinger(0)
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { assert.NoError(t, listener.Close()) })
	options, err := tlsFlags{CA: ca.file}.redisOptions("rediss://" + listener.Addr().String())
	require.NoError(t, err)
	client, err := counters.Open("rediss://"+listener.Addr().String(), 1, options...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	require.ErrorContains(t, checkRedis(t.Context(), client), "--redis-cert (or $LIKEWISE_REDIS_CERT)")
	assert.Greater(t, resets.Load(), int32(lost))
}
