package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"likewise/migrations"
	"likewise/models/db"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Create the schema, or apply pending migrations."`
	Status migrateStatusCmd `cmd:"" help:"List every migration with the time when it was applied."`

	Restored migrateRestoredCmd `cmd:"" help:"${restored_help}"`
}

// migrateFlags name a database that need not be migrated yet.
type migrateFlags struct {
	MySQLDSN string `name:"mysql-dsn" env:"LIKEWISE_MYSQL_DSN" required:"" placeholder:"${dsn}" help:"${mysql_help}"`

	MySQLTLS tlsFlags `embed:"" prefix:"mysql-" envprefix:"LIKEWISE_MYSQL_"`
}

// Validate reports a missing setting.
func (f migrateFlags) Validate() error { return required(mysqlSetting(f.MySQLDSN, f.MySQLTLS)) }

// dsn returns the DSN with all settings.
func (f migrateFlags) dsn() (string, error) {
	dsn, err := f.MySQLTLS.withTLS(f.MySQLDSN)
	if err != nil {
		return "", err
	}
	return db.DSN(dsn)
}

// explain returns err, or in its place the setting that causes it.
func (migrateFlags) explain(err error) error {
	if fault := settingFault("mysql", err); fault != nil {
		return fault
	}
	return err
}

type migrateUpCmd struct {
	migrateFlags
	Shards int `env:"LIKEWISE_SHARDS" default:"0" help:"${shards_help}"`
}

// Run migrates.
func (m *migrateUpCmd) Run(ctx context.Context, out output) error {
	dsn, err := m.dsn()
	if err != nil {
		return err
	}
	done, err := migrations.Run(ctx, dsn, m.Shards)
	w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', 0)
	for _, a := range done {
		fmt.Fprintf(w, "%s\tapplied in %v\n", a.Name, a.Took.Round(time.Millisecond))
	}
	if err := errors.Join(err, w.Flush()); err != nil {
		return m.explain(err)
	}
	return printSchema(ctx, dsn, out)
}

// printSchema prints how the schema compares with this version of the program.
func printSchema(ctx context.Context, dsn string, out output) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return fmt.Errorf("mysql dsn: %w", err)
	}
	defer db.Close()
	switch err := migrations.Check(ctx, db); {
	case errors.Is(err, migrations.ErrNewerSchema), errors.Is(err, migrations.ErrOlderSchema):
		fmt.Fprintln(out.stdout, err)
		return nil
	case err != nil:
		return err
	}
	fmt.Fprintln(out.stdout, "the schema is up to date")
	return nil
}

type migrateStatusCmd struct {
	migrateFlags
}

// Run lists migrations.
func (m *migrateStatusCmd) Run(ctx context.Context, out output) error {
	dsn, err := m.dsn()
	if err != nil {
		return err
	}
	list, err := migrations.Status(ctx, dsn)
	if err != nil {
		return m.explain(err)
	}
	w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', 0)
	for _, a := range list {
		at, name := "pending", a.Name
		if !a.At.IsZero() {
			at = a.At.UTC().Format(time.RFC3339)
		}
		if name == "" {
			name = fmt.Sprintf("%05d of a newer version", a.Version)
		}
		fmt.Fprintf(w, "%s\t%s\n", name, at)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return printSchema(ctx, dsn, out)
}

type migrateRestoredCmd struct {
	migrateFlags
}

// Run raises ids and epochs.
func (m *migrateRestoredCmd) Run(ctx context.Context, out output) error {
	dsn, err := m.dsn()
	if err != nil {
		return err
	}
	raised, err := migrations.Restored(ctx, dsn)
	if err != nil {
		return m.explain(err)
	}
	w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', 0)
	for _, r := range raised {
		fmt.Fprintf(w, "%s\tnext id %d\n", r.Table, r.Next)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	fmt.Fprintln(out.stdout, "no id or epoch is issued again; now empty Redis, and start the workers")
	return nil
}
