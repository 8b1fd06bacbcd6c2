//go:build dev

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sethvargo/go-retry"

	"likewise/counters"
	"likewise/handlers"
	"likewise/handlers/network"
	"likewise/internal/sample"
	"likewise/internal/servers"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/workers"
)

// devCommands are the commands that start private servers. See exec.go for those of the production binary.
type devCommands struct {
	Dev   devCmd   `cmd:"" help:"${dev_help}"`
	Bench benchCmd `cmd:"" help:"${bench_help}"`
}

// serveBroker serves Kafka, and does not return, in a process that was started as the embedded broker.
func serveBroker() { servers.Main() }

type devCmd struct {
	originFlags
	accountFlags
	Data   string `env:"LIKEWISE_DATA" default:".data" type:"path" help:"Folder of the servers' data."`
	Listen string `env:"LIKEWISE_LISTEN" default:"127.0.0.1:8080" help:"Address of the API."`
	Web    string `env:"LIKEWISE_WEB_LISTEN" default:"127.0.0.1:8083" help:"Address of the pages."`
	// Port 0 is any free one.
	AdminListen string `env:"LIKEWISE_ADMIN_LISTEN" default:"127.0.0.1:0" help:"${admin_dev_help}"`
	// The only client is the developer, whose scripts may be fast.
	Limits float64 `env:"LIKEWISE_LIMITS" default:"0" help:"${limits_dev_help}"`
	Empty  bool    `help:"Begin without the sample forum. Only the first start on a folder writes it."`
}

// Validate reports invalid settings.
func (d *devCmd) Validate() error {
	return errors.Join(d.originFlags.check(), d.door().check())
}

func (d *devCmd) door() doorFlags {
	// The pages name their visitors.
	return doorFlags{Limits: d.Limits, TrustedProxies: []string{"127.0.0.1", "::1"}, accountFlags: d.accountFlags}
}

// Run runs the servers and every role until ctx ends.
func (d *devCmd) Run(ctx context.Context, out output) error {
	// First, so that a second `likewise dev` fails at once.
	listener, err := network.ListenTCP(ctx, d.Listen)
	if err != nil {
		return fmt.Errorf("--listen (or $LIKEWISE_LISTEN): %w", err)
	}
	defer listener.Close()
	pages, err := network.ListenTCP(ctx, d.Web)
	if err != nil {
		return fmt.Errorf("--web (or $LIKEWISE_WEB_LISTEN): %w", err)
	}
	defer pages.Close()
	admin, err := listenAdmin(d.AdminListen)
	if err != nil {
		return err
	}
	defer admin.Close()
	all, err := servers.StartAll(ctx, d.Data)
	if err != nil {
		return err
	}
	err = d.serve(ctx, out, all, doors{listener, pages, admin})
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if err = errors.Join(err, all.Stop(stopping)); err == nil {
		fmt.Fprintln(out.stdout, "Likewise has stopped. Its data is in "+shortPath(d.Data)+".")
	}
	return err
}

// doors are the listeners of the roles.
type doors struct{ api, web, admin net.Listener }

func (d *devCmd) serve(ctx context.Context, out output, all *servers.All, listen doors) error {
	dsn, err := all.MySQL.Migrate(ctx, "likewise")
	if err != nil {
		return err
	}
	if dsn, err = db.DSN(dsn); err != nil {
		return err
	}
	kafka := workers.Kafka{Brokers: all.Kafka.Brokers(), Topic: "likewise.likes"}
	c, err := openCore(ctx, out.log, mysqlFlags{MySQLDSN: dsn, MySQLConns: 32}, gateAt(all.Redis.URL(), tlsFlags{}))
	if err != nil {
		return err
	}
	defer c.close()
	c.export(roleAPI, roleWorker, roleCron, roleWeb)
	c.pingKafka(kafka)
	env, err := d.writeEnv(dsn, listen, all)
	if err != nil {
		return err
	}

	pictures := filepath.Join(d.Data, "images")
	if err := os.MkdirAll(pictures, 0o750); err != nil {
		return err
	}
	objects, err := imageFlags{pictures}.open(ctx)
	if err != nil {
		return err
	}

	config := handlers.Config{Local: true, PrivateWebhooks: true, Images: objects, Mail: true}
	if d.openFrontEnd(&config); d.PublicURL == "" {
		config.PublicURL = local(listen.web)
	}
	post, mails, err := d.startMail()
	if err != nil {
		return err
	}
	defer func() { _ = post.Stop() }() // what it has kept is in files
	mailer, err := mails.mailer(c, config.PublicURL)
	if err != nil {
		return err
	}
	if config.SecretKey, err = mails.key(); err != nil {
		return err
	}

	// The roles stop in the order in which a like passes them, so that each hands its likes to the next.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var roles sync.WaitGroup
	relay := c.relay(kafka)
	roles.Go(func() { c.work(background, kafka, relay, mailer) })
	defer roles.Wait()
	defer stop()

	if err := c.awaitOpen(ctx, relay); err != nil {
		return err
	}
	// Jobs start once the shards are open: to flush, shards that open slowly, as after a kill, seem to lack a worker.
	roles.Go(func() { c.jobs(kafka, workers.DefaultCoolAfter, true, objects).Serve(background) })
	login, err := d.fill(ctx, c)
	if err != nil {
		return err
	}
	front := webCmd{API: "http://" + listen.api.Addr().String(), PublicURL: config.PublicURL, siteFlags: d.siteFlags}
	forum, err := front.open(out.log, c.registry, localMail(post, config.PublicURL))
	if err != nil {
		return err
	}
	roles.Go(func() {
		if err := forum.Serve(background, listen.web, 0); err != nil {
			out.log.ErrorContext(background, "web failed", "error", err)
		}
	})
	if err := d.door().open(&config, gateAt(all.Redis.URL(), tlsFlags{}), c.registry); err != nil {
		return err
	}
	defer closeLimiter(c.log, config.Limiter)
	c.local = true
	return c.withAdmin(ctx, listen.admin, func() error {
		d.greet(out, config.PublicURL, listen, env, login)
		return c.serveAPI(ctx, listen.api, config, 0)
	})
}

// mailPath is the path of the mails on the listener of the pages.
const mailPath = "/dev/mail"

// startMail starts the server of mails, and returns the settings of a mailer that uses it. The caller stops it.
func (d *devCmd) startMail() (*servers.Mail, mailFlags, error) {
	f := mailFlags{
		MailFrom: "forum@likewise.example", secretKeyFlag: secretKeyFlag{filepath.Join(d.Data, "secret.key")},
	}
	key, _ := models.NewToken()
	if err := writeKey(f.SecretKeyFile, key); err != nil {
		return nil, f, err
	}
	post, err := servers.StartMail(filepath.Join(d.Data, "mail"), servers.MailOptions{})
	if err != nil {
		return nil, f, err
	}
	f.SMTP = post.URL()
	return post, f, nil
}

// localMail returns the pages of the mails. Their links open accounts, so a page of another site must not read them.
func localMail(post *servers.Mail, publicURL string) http.Handler {
	pages := post.Pages(mailPath)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !handlers.CheckHost(r.Host, publicURL) {
			http.Error(w, "This is a development server.", http.StatusForbidden)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// awaitOpen waits until every shard accepts likes, so that the first request after the greeting does not get a 503.
// It also waits until the relay has logged that it has opened the shards, so that the greeting is last.
func (c *core) awaitOpen(ctx context.Context, relay *workers.Relay) error {
	poll := retry.WithMaxDuration(30*time.Second, retry.NewConstant(10*time.Millisecond))
	err := retry.Do(ctx, poll, func(ctx context.Context) error {
		infos, err := c.redis.ShardInfos(ctx)
		closed := slices.DeleteFunc(infos, func(info counters.ShardInfo) bool { return info.Open })
		if len(closed) > 0 {
			err = fmt.Errorf("%d shards are closed", len(closed))
		} else if relay.Opening() > 0 {
			err = fmt.Errorf("the relay has yet to check %d shards", relay.Opening())
		}
		return retry.RetryableError(err)
	})
	if err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "some shards do not accept likes yet", "error", err)
		return nil
	}
	return err
}

// quote quotes s for a shell, if that is needed.
func quote(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("./_-", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// writeEnv writes the settings of the running servers for a shell, readable by the owner alone.
func (d *devCmd) writeEnv(dsn string, listen doors, all *servers.All) (path string, err error) {
	path = filepath.Join(d.Data, "dev.env")
	text := "# Settings of the running development servers: set -a; . " + quote(path) + "; set +a\n" +
		"LIKEWISE_MYSQL_DSN=" + quote(dsn) + "\n" +
		"LIKEWISE_REDIS=" + quote(all.Redis.URL()) + "\n" +
		"LIKEWISE_KAFKA=" + quote(strings.Join(all.Kafka.Brokers(), ",")) + "\n" +
		"LIKEWISE_API=" + quote("http://"+listen.api.Addr().String()) + "\n" +
		"LIKEWISE_ADMIN_URL=" + quote("http://"+listen.admin.Addr().String()) + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write settings: %w", err)
	}
	return path, nil
}

// login is what the greeting says about accounts.
type login struct {
	password string   // of the administrator; "" if it exists already
	file     string   // that has the password
	names    []string // other accounts with the same password
}

// fill creates the administrator and the sample on the first start.
func (d *devCmd) fill(ctx context.Context, c *core) (l login, err error) {
	l.file = filepath.Join(d.Data, "admin.txt")
	if l.password, err = c.firstAdmin(ctx, l.file); err != nil {
		return l, err
	}
	if l.password != "" && !d.Empty {
		if err := sample.Begin(ctx, c.store); err != nil {
			return l, err
		}
	}
	wanted, err := sample.Wanted(ctx, c.store)
	if err != nil || !wanted {
		return l, err
	}
	admin, err := accounts.New(c.store).UserByLogin(ctx, adminName)
	if err != nil {
		return l, err
	}
	if l.names, err = sample.Names(); err != nil {
		return l, err
	}
	return l, sample.Create(ctx, sample.Forum{
		Store: c.store, Likes: c.gate, Claims: c.claims, IDs: counters.NewIDs(c.redis, c.store),
		PasswordHash: admin.PasswordHash, Now: c.store.Now(),
	})
}

// writeKey writes a new key into a file, unless the file exists. The file is complete when it has its name.
func writeKey(path, key string) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	part := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part")
	if err := os.WriteFile(part, []byte(key+"\n"), 0o600); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}

const adminName = "admin"

// firstAdmin creates the administrator if there are no accounts, and returns its password. The password is written into
// file first, so that it is never lost.
func (c *core) firstAdmin(ctx context.Context, file string) (password string, err error) {
	ids, err := accounts.New(c.store).UserIDs(ctx, 1)
	if err != nil || len(ids) > 0 {
		return "", err
	}
	password, _ = models.NewToken()
	text := fmt.Sprintf("# The administrator of the first start. A later change of the password is not noted here.\n"+
		"username: %s\npassword: %s\n", adminName, password)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write login: %w", err)
	}
	admin := models.Registration{Username: adminName, Email: "admin@likewise.example", Password: password}
	_, err = createUser(ctx, c.store, admin, "admin")
	return password, err
}

// greet prints the addresses and paths.
func (d *devCmd) greet(out output, forum string, listen doors, env string, l login) {
	url, adminURL := "http://"+listen.api.Addr().String(), "http://"+listen.admin.Addr().String()
	program := "likewise"
	if self, err := os.Executable(); err == nil {
		program = shortPath(filepath.Join(filepath.Dir(self), "likewise"))
	}
	account := "the first one is in " + shortPath(l.file)
	if l.password != "" {
		account = "password " + l.password + " (also in " + shortPath(l.file) + ")"
	}
	fmt.Fprintf(out.stdout, `
Likewise runs. Open %[6]s in a browser.

  forum      %[6]s
  docs       %[1]s/docs
  API        %[1]s/v1/posts
  readiness  %[2]s/readyz
  metrics    %[2]s/metrics
  data       %[3]s
  mails      %[6]s%[7]s (also in %[8]s)
  login      %[4]s, %[5]s
`, url, adminURL, shortPath(d.Data), adminName, account, forum, mailPath,
		shortPath(filepath.Join(d.Data, "mail")))
	if len(l.names) > 0 {
		fmt.Fprintf(out.stdout, "  people     %s: the same password\n", strings.Join(l.names, ", "))
	}
	fmt.Fprintf(out.stdout, `
To import a forum, unpack a Stack Exchange data dump into a folder DIR, and in a second terminal:

  set -a; . %s; set +a
  %s import stackexchange DIR

Stop it with Ctrl-C.

`, quote(shortPath(env)), program)
}

// shortPath returns path as seen from the working folder if that is below it.
func shortPath(path string) string {
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	short, err := filepath.Rel(here, path)
	if err != nil || !filepath.IsLocal(short) {
		return path
	}
	return short
}
