package testkit

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/go-sql-driver/mysql"

	"likewise/internal/servers"
)

// pool has databases that equal the template. A test has one to itself until it returns it. Copying the template takes
// three times as long as finding out what a test has changed, and undoing it.
type pool struct {
	*template

	mu       sync.Mutex
	returned []lent // oldest first
}

// lent is a database that a test has, or has had.
type lent struct {
	name     string // of the database, and of its account
	password string // another for each test
}

// newPool makes a template, and a pool of one database.
func newPool(ctx context.Context, db *sql.DB, dsn string) (*pool, error) {
	t, err := makeTemplate(ctx, db, dsn)
	if err != nil {
		return nil, err
	}
	p := &pool{template: t}
	first, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.defineAs(ctx, first.name); err != nil {
		return nil, err
	}
	return p, p.giveBack(ctx, first)
}

// dsn returns the data source name for the test.
func (l lent) dsn(server *servers.MySQL) string {
	c, _ := mysql.ParseDSN(server.DSN(l.name)) // which the driver has written
	c.User, c.Passwd = l.name, l.password
	return c.FormatDSN()
}

// take returns a database that equals the template: a returned one, or a new one.
func (p *pool) take(ctx context.Context) (lent, error) {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return lent{}, err
	}
	defer conn.Close()
	for {
		l, found, err := p.unused(ctx, conn)
		if err != nil {
			return lent{}, fmt.Errorf("look for a returned database: %w", err)
		}
		if !found {
			l = lent{"test_" + strconv.FormatInt(databases.Add(1), 10), rand.Text()}
			return l, p.copyTo(ctx, conn, l)
		}
		touched, sameSchema, err := p.compare(ctx, conn, l.name)
		if err != nil {
			return lent{}, fmt.Errorf("compare %s: %w", l.name, err)
		}
		if sameSchema {
			return l, p.restore(ctx, conn, l.name, touched)
		}
		if err := define(ctx, conn, "DROP DATABASE "+l.name); err != nil {
			return lent{}, err
		}
	}
}

// giveBack returns a database whose test has ended. The account gets another password, so that nothing the test has
// left running can connect to the database of the next test.
func (p *pool) giveBack(ctx context.Context, l lent) error {
	l.password = rand.Text()
	alter := fmt.Sprintf("ALTER USER '%s'@'127.0.0.1' IDENTIFIED BY '%s'", l.name, l.password)
	if _, err := p.db.ExecContext(ctx, alter); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.returned = append(p.returned, l)
	return nil
}

// unused removes a returned database to which nobody is connected. A connection can hold locks, and write. One that a
// test has closed ends soon after.
func (p *pool) unused(ctx context.Context, conn *sql.Conn) (l lent, found bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.returned) == 0 {
		return lent{}, false, nil
	}
	used, err := list(ctx, conn, `SELECT user FROM information_schema.processlist
		UNION SELECT db FROM information_schema.processlist WHERE db IS NOT NULL`)
	if err != nil {
		return lent{}, false, err
	}
	i := slices.IndexFunc(p.returned, func(l lent) bool { return !slices.Contains(used, l.name) })
	if i < 0 {
		return lent{}, false, nil
	}
	l = p.returned[i]
	p.returned = slices.Delete(p.returned, i, i+1)
	return l, true, nil
}

// define runs statements of DDL. MySQL 9 takes locks of its own data dictionary for them. About one of 300 is chosen as
// the victim of a deadlock with another database's CREATE or DROP, and changes nothing. All statements are repeated.
func define(ctx context.Context, conn *sql.Conn, statements string) error {
	const deadlock = 1213
	for attempt := 1; ; attempt++ {
		_, err := conn.ExecContext(ctx, statements)
		var refused *mysql.MySQLError
		if attempt == 5 || !errors.As(err, &refused) || refused.Number != deadlock {
			return err
		}
	}
}
