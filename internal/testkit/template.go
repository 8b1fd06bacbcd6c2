package testkit

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"likewise/migrations"
)

// template is a migrated database. Copying its tables is much faster than migrating each test's database.
type template struct {
	db      *sql.DB // of an administrator, for several statements at once
	objects []string
	tables  []table
}

type table struct {
	name       string
	definition string // the statement that creates it
	columns    string // comma-separated, without generated ones
	rows       string // all of them
}

const templateName = "likewise_template"

// makeTemplate migrates a database. db has its server; dsn is the database's name for migrations.
func makeTemplate(ctx context.Context, db *sql.DB, dsn string) (*template, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "CREATE DATABASE "+templateName); err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, dsn, migrations.DefaultShards); err != nil {
		return nil, err
	}
	t := &template{db: db}
	if t.objects, err = objects(ctx, conn, templateName); err != nil {
		return nil, err
	}
	names, err := list(ctx, conn,
		"SELECT table_name FROM information_schema.tables WHERE table_schema = ?", templateName)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		columns, err := list(ctx, conn, "SELECT CONCAT('`', column_name, '`') FROM information_schema.columns"+`
			WHERE table_schema = ? AND table_name = ? AND COALESCE(generation_expression, '') = ''`, templateName, name)
		if err != nil {
			return nil, err
		}
		t.tables = append(t.tables, table{name: name, columns: strings.Join(columns, ",")})
	}
	for i := range t.tables { // so that all rows are read
		t.tables[i].rows = "not known"
	}
	definitions, rows, err := t.state(ctx, conn, templateName)
	if err != nil {
		return nil, err
	}
	for i := range t.tables {
		t.tables[i].definition, t.tables[i].rows = definitions[i], rows[i]
	}
	return t, nil
}

// defineAs takes the definitions of tables from a copy. MySQL shows more of the table that its own text has defined.
func (t *template) defineAs(ctx context.Context, database string) error {
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	definitions, _, err := t.state(ctx, conn, database)
	if err != nil {
		return err
	}
	for i := range t.tables {
		t.tables[i].definition = definitions[i]
	}
	return nil
}

func (t *table) empty() bool { return t.rows == "" }

// fill returns the statement that copies the template's rows into a database.
func (t *table) fill(database string) string {
	return fmt.Sprintf("INSERT INTO %s.%s (%s) SELECT %s FROM %s.%s",
		database, t.name, t.columns, t.columns, templateName, t.name)
}

// copyTo creates a database and its account, which is an administrator's.
func (t *template) copyTo(ctx context.Context, conn *sql.Conn, l lent) error {
	statements := []string{
		fmt.Sprintf("CREATE USER '%s'@'127.0.0.1' IDENTIFIED BY '%s'", l.name, l.password),
		fmt.Sprintf("GRANT ALL ON *.* TO '%s'@'127.0.0.1' WITH GRANT OPTION", l.name),
		"CREATE DATABASE " + l.name,
		"USE " + l.name,
		"SET foreign_key_checks = 0", // the tables are not ordered by their keys
	}
	for _, tab := range t.tables {
		statements = append(statements, tab.definition)
		if !tab.empty() {
			statements = append(statements, tab.fill(l.name))
		}
	}
	// The connection must not count as one of those that use the database.
	statements = append(statements, "SET foreign_key_checks = 1", "USE "+templateName)
	for _, s := range statements {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", strings.SplitN(s, "\n", 2)[0], err)
		}
	}
	return nil
}

// compare reports whether a database has the schema of the template, and returns the tables whose rows, next ids or
// statistics differ. If a test has inserted rows and deleted them, or rolled back, the next id or nothing is left.
func (t *template) compare(ctx context.Context, conn *sql.Conn, database string) (
	touched []table, sameSchema bool, err error,
) {
	found, err := objects(ctx, conn, database)
	if err != nil || !slices.Equal(found, t.objects) {
		return nil, false, err
	}
	definitions, rows, err := t.state(ctx, conn, database)
	if err != nil {
		return nil, false, err
	}
	estimated, err := list(ctx, conn,
		"SELECT table_name FROM mysql.innodb_table_stats WHERE database_name = ? AND n_rows > 0", database)
	if err != nil {
		return nil, false, err
	}
	for i, tab := range t.tables {
		if withoutNextID(definitions[i]) != withoutNextID(tab.definition) {
			return nil, false, nil
		}
		if definitions[i] != tab.definition || rows[i] != tab.rows ||
			tab.empty() && slices.Contains(estimated, tab.name) {
			touched = append(touched, tab)
		}
	}
	return touched, true, nil
}

// restore replaces the rows of tables by those of the template. TRUNCATE resets next ids and statistics as well.
func (t *template) restore(ctx context.Context, conn *sql.Conn, database string, touched []table) error {
	if len(touched) == 0 {
		return nil
	}
	statements := []string{"SET foreign_key_checks = 0"}
	for _, tab := range touched {
		statements = append(statements, fmt.Sprintf("TRUNCATE TABLE %s.%s", database, tab.name))
		if !tab.empty() {
			statements = append(statements, tab.fill(database))
		}
	}
	statements = append(statements, "SET foreign_key_checks = 1")
	return define(ctx, conn, strings.Join(statements, ";"))
}

// objects returns the collation of a database, and the names of its tables, views, triggers, routines and events.
func objects(ctx context.Context, conn *sql.Conn, database string) ([]string, error) {
	names, err := list(ctx, conn, `
		SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = ?
		UNION ALL SELECT table_name FROM information_schema.tables WHERE table_schema = ?
		UNION ALL SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = ?
		UNION ALL SELECT routine_name FROM information_schema.routines WHERE routine_schema = ?
		UNION ALL SELECT event_name FROM information_schema.events WHERE event_schema = ?`,
		database, database, database, database, database)
	slices.Sort(names)
	return names, err
}

// state returns the definition of each table of the template in a database, with its next id, and its rows. Of a table
// that is empty in the template, it reads one row. CHECKSUM TABLE would not do: it adds the checksums of rows, and the
// same change of all 16 shards leaves the sum as it was.
func (t *template) state(ctx context.Context, conn *sql.Conn, database string) (definitions, rows []string, err error) {
	var show, read []string
	for _, tab := range t.tables {
		show = append(show, "SHOW CREATE TABLE "+database+"."+tab.name)
		query := "SELECT " + tab.columns + " FROM " + database + "." + tab.name
		if tab.empty() {
			query += " LIMIT 1"
		}
		read = append(read, query)
	}
	shown, err := results(ctx, conn, strings.Join(show, ";"))
	if err != nil {
		return nil, nil, err
	}
	for _, result := range shown {
		definitions = append(definitions, result[0][1])
	}
	all, err := results(ctx, conn, strings.Join(read, ";"))
	if err != nil {
		return nil, nil, err
	}
	for _, result := range all {
		text := ""
		for _, row := range result {
			text += fmt.Sprintf("%q\n", row)
		}
		rows = append(rows, text)
	}
	return definitions, rows, nil
}

var nextID = regexp.MustCompile(` AUTO_INCREMENT=\d+`)

func withoutNextID(definition string) string { return nextID.ReplaceAllString(definition, "") }

// list returns the only column of a query.
func list(ctx context.Context, conn *sql.Conn, query string, args ...any) ([]string, error) {
	all, err := results(ctx, conn, query, args...)
	if err != nil {
		return nil, err
	}
	var values []string
	for _, row := range all[0] {
		values = append(values, row[0])
	}
	return values, nil
}

// results returns the rows of each query. NULL is a byte that no text has.
func results(ctx context.Context, conn *sql.Conn, queries string, args ...any) (all [][][]string, err error) {
	rows, err := conn.QueryContext(ctx, queries, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for more := true; more; more = rows.NextResultSet() {
		columns, err := rows.Columns()
		if err != nil {
			return nil, err
		}
		cells := make([]sql.RawBytes, len(columns))
		targets := make([]any, len(columns))
		for i := range cells {
			targets[i] = &cells[i]
		}
		var result [][]string
		for rows.Next() {
			if err := rows.Scan(targets...); err != nil {
				return nil, err
			}
			row := make([]string, len(cells))
			for i, cell := range cells {
				if row[i] = string(cell); cell == nil {
					row[i] = "\xff"
				}
			}
			result = append(result, row)
		}
		all = append(all, result)
	}
	return all, rows.Err()
}
