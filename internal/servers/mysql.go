package servers

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	mysqlUser = "likewise"

	// chrootMount is where a server that runs in a folder tree of its own finds its data. The mount is made in a
	// namespace that only this process is in: it ends with it.
	chrootMount = "/mnt"
)

// MySQL is a private MariaDB or MySQL server: utf8mb4, UTC, every commit synced to disk, at most 500 connections. Its
// only account is an administrator with a random password that is kept in the server's folder.
type MySQL struct{ *Server }

// StartMySQL starts the server in dir, which is made when it does not exist; a new one takes a second (MySQL: several).
// Flags come after the server's own and win over them.
func StartMySQL(ctx context.Context, dir string, flags ...string) (*MySQL, error) {
	var m mysqld = mariadb{}
	name := "mariadbd"
	if choice := os.Getenv("LIKEWISE_SERVERS_MYSQL"); choice != "" {
		root, ok := strings.CutPrefix(choice, "chroot:")
		if !ok {
			return nil, fmt.Errorf("LIKEWISE_SERVERS_MYSQL is %q, not chroot:DIR", choice)
		}
		m = oracle{root}
		name = "mysqld"
	}
	s, err := start(ctx, program{
		name:    name,
		ports:   1,
		prepare: func(ctx context.Context, s *Server) error { return prepareMySQL(ctx, s, m) },
		command: func(s *Server) (*exec.Cmd, error) {
			return m.command(s.dir, append(mysqlFlags(s.ports[0]), flags...)...)
		},
		probe: probeMySQL,
	}, dir)
	if err != nil {
		return nil, err
	}
	return &MySQL{s}, nil
}

// DSN is the data source name of a database for go-sql-driver; without a name it selects none.
func (m *MySQL) DSN(database string) string {
	cfg := mysqlConfig(m.Server)
	cfg.DBName = database
	return cfg.FormatDSN()
}

func mysqlConfig(s *Server) *mysql.Config {
	password, _ := os.ReadFile(s.file("password")) // if it is not there, the server says so better than we could
	cfg := mysql.NewConfig()
	cfg.User = mysqlUser
	cfg.Passwd = string(password)
	cfg.Net = "tcp"
	cfg.Addr = s.Addr()
	cfg.ParseTime = true
	cfg.Loc = time.UTC
	cfg.InterpolateParams = true
	cfg.Params = map[string]string{"time_zone": "'+00:00'"}
	_ = cfg.Apply(mysql.Charset("utf8mb4", "utf8mb4_unicode_ci")) // only fails for options that connect
	return cfg
}

func mysqlFlags(port int) []string {
	return []string{
		"--bind-address=127.0.0.1",
		"--port=" + strconv.Itoa(port),
		"--skip-name-resolve",
		"--max-connections=500",
		"--character-set-server=utf8mb4",
		"--collation-server=utf8mb4_unicode_ci", // the best one that MySQL and MariaDB both have
		"--default-time-zone=+00:00",
		"--skip-log-bin",
		"--innodb-flush-log-at-trx-commit=1",
		"--innodb-buffer-pool-size=128M",
		"--performance-schema=OFF",
		"--table-open-cache=1000",
	}
}

func probeMySQL(ctx context.Context, s *Server) error {
	cfg := mysqlConfig(s)
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", s.program.name, err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	var one int
	if err := db.QueryRowContext(ctx, "SELECT 1").Scan(&one); err != nil {
		return fmt.Errorf("ask %s: %w", s.program.name, err)
	}
	return nil
}

// mysqld is the make of the server: they differ in how they are found and how they make a new data folder. Both work in
// a server's folder, whose subfolder data is theirs.
type mysqld interface {
	// command runs the server program on the folder.
	command(dir string, flags ...string) (*exec.Cmd, error)
	// initialize fills the subfolder data.new and runs the SQL.
	initialize(ctx context.Context, dir, sql string) error
}

// prepareMySQL makes the data under another name first, so that a half-made one is never taken for whole.
func prepareMySQL(ctx context.Context, s *Server, m mysqld) error {
	if _, err := os.Stat(s.file("data")); err == nil {
		return nil
	}
	fresh := s.file("data.new")
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("remove half-made data: %w", err)
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return fmt.Errorf("make data folder: %w", err)
	}
	password := rand.Text()
	if err := os.WriteFile(s.file("password"), []byte(password), 0o600); err != nil {
		return fmt.Errorf("write password: %w", err)
	}
	account := fmt.Sprintf("CREATE USER '%[1]s'@'127.0.0.1' IDENTIFIED BY '%[2]s';\n"+
		"GRANT ALL ON *.* TO '%[1]s'@'127.0.0.1' WITH GRANT OPTION;\n", mysqlUser, password)
	if err := m.initialize(ctx, s.dir, account); err != nil {
		return err
	}
	if err := os.Rename(fresh, s.file("data")); err != nil {
		return fmt.Errorf("put data in place: %w", err)
	}
	return nil
}

// temporaryFolder makes a server's own folder for temporary tables. In a shared one, a server that starts removes those
// of all others: it takes them for what an earlier run left.
func temporaryFolder(dir string) (string, error) {
	path := filepath.Join(dir, "tmp")
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("make folder for temporary tables: %w", err)
	}
	return path, nil
}

// mariadb is MariaDB as Debian installs it.
type mariadb struct{}

func (mariadb) path() (string, error) {
	return find("mariadbd", "apt-get install mariadb-server-core")
}

func (m mariadb) command(dir string, flags ...string) (*exec.Cmd, error) {
	return m.commandOn(dir, "data", flags...)
}

func (m mariadb) commandOn(dir, data string, flags ...string) (*exec.Cmd, error) {
	path, err := m.path()
	if err != nil {
		return nil, err
	}
	temporary, err := temporaryFolder(dir)
	if err != nil {
		return nil, err
	}
	flags = append(
		[]string{"--no-defaults", "--datadir=" + filepath.Join(dir, data), "--tmpdir=" + temporary, "--socket="},
		flags...)
	if os.Geteuid() == 0 {
		flags = append(flags, "--user=root") // a change of user would untie the child from our life
	}
	cmd := exec.Command(path, flags...)
	cmd.Env = environment()
	return cmd, nil
}

// initialize does what mariadb-install-db does, without the help texts and the sys schema, which take most of its time;
// and that script needs a program of the client package.
func (m mariadb) initialize(ctx context.Context, dir, account string) error {
	path, err := m.path()
	if err != nil {
		return err
	}
	script := bytes.NewBufferString("CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n")
	for _, name := range []string{"system_tables.sql", "performance_tables.sql", "system_tables_data.sql"} {
		text, err := readShared(filepath.Dir(filepath.Dir(path)), name)
		if err != nil {
			return err
		}
		script.Write(text)
	}
	// The scripts make password-less administrators; without FLUSH the bootstrap knows no accounts at all.
	script.WriteString(
		"DELETE FROM global_priv WHERE User = 'root';\nDELETE FROM proxies_priv;\nFLUSH PRIVILEGES;\n" + account,
	)
	cmd, err := m.commandOn(dir, "data.new", "--bootstrap", "--log-warnings=0",
		"--enforce-storage-engine=", "--max-allowed-packet=8M")
	if err != nil {
		return err
	}
	cmd.Stdin = script
	return runToEnd(ctx, cmd)
}

// readShared reads one of the scripts that come with MariaDB. Newer versions changed the folder and the prefix.
func readShared(prefix, name string) ([]byte, error) {
	for _, brand := range []string{"mariadb", "mysql"} {
		for _, folder := range []string{"mariadb", "mysql"} {
			text, err := os.ReadFile(filepath.Join(prefix, "share", folder, brand+"_"+name))
			if err == nil || !errors.Is(err, os.ErrNotExist) {
				return text, err
			}
		}
	}
	return nil, fmt.Errorf("no mysql_%s in %s/share/mysql: run %q", name, prefix, "apt-get install mariadb-server-core")
}

// oracle is Oracle's MySQL, installed in the folder tree root, with a C library of its own.
type oracle struct{ root string }

func (o oracle) command(dir string, flags ...string) (*exec.Cmd, error) {
	return o.commandOn(dir, "data", flags...)
}

func (o oracle) commandOn(dir, data string, flags ...string) (*exec.Cmd, error) {
	if _, err := os.Stat(filepath.Join(o.root, "usr/sbin/mysqld")); err != nil {
		return nil, fmt.Errorf("no mysqld in %s: run %q", o.root, "scripts/install-mysql.sh "+o.root)
	}
	// mysqld refuses to start without it, whatever secure-file-priv says.
	if err := os.MkdirAll(filepath.Join(o.root, "var/lib/mysql-files"), 0o700); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", o.root, err)
	}
	// A killed server leaves its socket, and the next one takes the process that is named in it for alive while it only
	// waits to be collected.
	for _, name := range []string{"socket", "socket.lock"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("remove old socket: %w", err)
		}
	}
	if _, err := temporaryFolder(dir); err != nil {
		return nil, err
	}
	const enter = `mount --bind "$1" "$2$3" && exec chroot "$2" /usr/sbin/mysqld "${@:4}"`
	args := append([]string{"-c", enter, "mysqld", dir, o.root, chrootMount,
		"--no-defaults",
		"--user=root", // a change of user would untie the child from our life
		"--datadir=" + filepath.Join(chrootMount, data),
		"--tmpdir=" + filepath.Join(chrootMount, "tmp"),
		"--socket=" + filepath.Join(chrootMount, "socket"),
		"--pid-file=" + filepath.Join(chrootMount, "mysqld.pid"),
		"--secure-file-priv=",
		"--mysqlx=OFF",
	}, flags...)
	cmd := exec.Command("bash", args...)
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd, nil
}

func (o oracle) initialize(ctx context.Context, dir, account string) error {
	initFile := filepath.Join(dir, "init.sql")
	if err := os.WriteFile(initFile, []byte(account), 0o600); err != nil {
		return fmt.Errorf("write accounts: %w", err)
	}
	defer os.Remove(initFile)
	cmd, err := o.commandOn(
		dir,
		"data.new",
		"--initialize-insecure",
		"--init-file="+filepath.Join(chrootMount, "init.sql"),
	)
	if err != nil {
		return err
	}
	return runToEnd(ctx, cmd)
}

// runToEnd runs a command that ends by itself; the error has the end of what it said.
func runToEnd(ctx context.Context, cmd *exec.Cmd) error {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	c, err := spawn(cmd)
	if err != nil {
		return err
	}
	select {
	case <-c.exited:
	case <-ctx.Done():
		c.kill()
		return fmt.Errorf("make the data: %w", ctx.Err())
	}
	if !cmd.ProcessState.Success() {
		text := said.Bytes()
		return fmt.Errorf("make the data: %w\n%s", c.err, text[max(0, len(text)-4096):])
	}
	return nil
}
