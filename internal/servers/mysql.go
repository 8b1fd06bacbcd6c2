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

	"likewise/migrations"
)

const (
	mysqlUser = "likewise"

	// chrootMount is where a server in its own folder tree finds its data. The mount is in a namespace of the server's
	// process, and ends with it.
	chrootMount = "/mnt"
)

// MySQL is a private MariaDB or MySQL server. It uses utf8mb4 and UTC, syncs every commit to disk, and allows 500
// connections. Its only account is an administrator with a random password, which is stored in the server's folder.
type MySQL struct{ *Server }

// StartMySQL starts the server in dir. If dir does not exist, StartMySQL creates it, which takes a second with MariaDB
// and several with MySQL. flags override the server's own flags.
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

// DSN returns the data source name of a database, for go-sql-driver. With an empty name, it selects no database.
func (m *MySQL) DSN(database string) string {
	cfg := mysqlConfig(m.Server)
	cfg.DBName = database
	return cfg.FormatDSN()
}

// Migrate creates a database unless it exists, migrates its schema, and returns its data source name.
func (m *MySQL) Migrate(ctx context.Context, name string) (dsn string, err error) {
	db, err := sql.Open("mysql", m.DSN(""))
	if err != nil {
		return "", fmt.Errorf("open mysql: %w", err)
	}
	defer db.Close()
	create := fmt.Sprintf("CREATE DATABASE IF NOT EXISTS %s CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", name)
	if _, err := db.ExecContext(ctx, create); err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	return m.DSN(name), migrations.Up(ctx, m.DSN(name), 0)
}

func mysqlConfig(s *Server) *mysql.Config {
	password, _ := os.ReadFile(s.file("password")) // if it is missing, the server refuses the connection
	cfg := mysql.NewConfig()
	cfg.User = mysqlUser
	cfg.Passwd = string(password)
	cfg.Net = "tcp"
	cfg.Addr = s.Addr()
	cfg.ParseTime = true
	cfg.Loc = time.UTC
	cfg.InterpolateParams = true
	cfg.Params = map[string]string{"time_zone": "'+00:00'"}
	_ = cfg.Apply(mysql.Charset("utf8mb4", "utf8mb4_unicode_ci")) // this option cannot fail
	return cfg
}

func mysqlFlags(port int) []string {
	return []string{
		"--bind-address=127.0.0.1",
		"--port=" + strconv.Itoa(port),
		"--skip-name-resolve",
		"--max-connections=500",
		"--character-set-server=utf8mb4",
		"--collation-server=utf8mb4_unicode_ci", // the best that both MySQL and MariaDB have
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
	var item int
	if err := db.QueryRowContext(ctx, "SELECT 1").Scan(&item); err != nil {
		return fmt.Errorf("ask %s: %w", s.program.name, err)
	}
	return nil
}

// mysqld is the kind of server, which determines the program and how a new data folder is created. A server's data are
// in the subfolder data of its folder.
type mysqld interface {
	// command runs the server program on the folder.
	command(dir string, flags ...string) (*exec.Cmd, error)
	// initialize fills the subfolder data.new and runs the SQL.
	initialize(ctx context.Context, dir, sql string) error
}

// prepareMySQL creates the data under another name first, so that incomplete data are never used.
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

// temporaryFolder creates a server's own folder for temporary tables. In a shared folder, a server that starts would
// remove the tables of other servers, because it takes them for leftovers.
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
		flags = append(flags, "--user=root") // a change of user would clear the parent-death signal
	}
	cmd := exec.Command(path, flags...)
	cmd.Env = environment()
	return cmd, nil
}

// initialize does the work of mariadb-install-db, except for the help texts and the sys schema, which take most of its
// time. The script itself needs a program of the client package.
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
	// The scripts create administrators without a password. Without FLUSH, the bootstrap does not know any accounts.
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

// readShared reads one of MariaDB's scripts. Newer versions have another folder and another prefix.
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

// oracle is Oracle's MySQL, installed in the folder tree root with its own C library.
type oracle struct{ root string }

func (o oracle) command(dir string, flags ...string) (*exec.Cmd, error) {
	return o.commandOn(dir, "data", flags...)
}

func (o oracle) commandOn(dir, data string, flags ...string) (*exec.Cmd, error) {
	if _, err := os.Stat(filepath.Join(o.root, "usr/sbin/mysqld")); err != nil {
		return nil, fmt.Errorf("no mysqld in %s: run %q", o.root, "scripts/install-mysql.sh "+o.root)
	}
	// mysqld does not start without this folder, regardless of secure-file-priv.
	if err := os.MkdirAll(filepath.Join(o.root, "var/lib/mysql-files"), 0o700); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", o.root, err)
	}
	// A killed server leaves the lock file of its socket. Until its process is reaped, the next server would take it
	// for running.
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
		"--user=root", // a change of user would clear the parent-death signal
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
	cmd, err := o.commandOn(dir, "data.new", "--initialize-insecure",
		"--init-file="+filepath.Join(chrootMount, "init.sql"))
	if err != nil {
		return err
	}
	return runToEnd(ctx, cmd)
}

// runToEnd runs a command that ends by itself. Its error includes the end of the command's output.
func runToEnd(ctx context.Context, cmd *exec.Cmd) error {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	c, err := Spawn(cmd)
	if err != nil {
		return err
	}
	select {
	case <-c.exited:
	case <-ctx.Done():
		c.killGroup()
		return fmt.Errorf("make the data: %w", ctx.Err())
	}
	if !cmd.ProcessState.Success() {
		text := said.Bytes()
		return fmt.Errorf("make the data: %s\n%s", c.State(), text[max(0, len(text)-4096):])
	}
	return nil
}
