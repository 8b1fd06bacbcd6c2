package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"likewise/migrations"
	"likewise/models"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Create the schema, or apply pending migrations."`
	Status migrateStatusCmd `cmd:"" help:"List every migration with the time when it was applied."`
}

// migrateFlags name a database that need not be migrated yet.
type migrateFlags struct {
	MySQLDSN string `name:"mysql-dsn" env:"LIKEWISE_MYSQL_DSN" required:"" placeholder:"${dsn}" help:"${mysql_help}"`
}

// Validate reports a missing setting.
func (f migrateFlags) Validate() error { return required(mysqlSetting(f.MySQLDSN)) }

type migrateUpCmd struct {
	migrateFlags
	Shards int `env:"LIKEWISE_SHARDS" default:"0" help:"${shards_help}"`
}

// Run migrates.
func (m *migrateUpCmd) Run(ctx context.Context, out output) error {
	dsn, err := models.DSN(m.MySQLDSN)
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, dsn, m.Shards); err != nil {
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
	dsn, err := models.DSN(m.MySQLDSN)
	if err != nil {
		return err
	}
	list, err := migrations.Status(ctx, dsn)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', 0)
	for _, a := range list {
		at := "pending"
		if !a.At.IsZero() {
			at = a.At.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\n", a.Name, at)
	}
	return w.Flush()
}
