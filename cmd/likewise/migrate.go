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
	Up     migrateUpCmd     `cmd:"" help:"Apply what is missing."`
	Status migrateStatusCmd `cmd:"" help:"List every migration and when it was applied."`
}

// migrateFlags do not ask for a migrated database, as mysqlFlags do.
type migrateFlags struct {
	MySQLDSN string `name:"mysql-dsn" env:"LIKEWISE_MYSQL_DSN" required:"" placeholder:"USER:PASSWORD@tcp(HOST:3306)/DATABASE" help:"MySQL, MariaDB or TiDB database."`
}

// Validate asks for what is missing.
func (f migrateFlags) Validate() error { return required(mysqlSetting(f.MySQLDSN)) }

type migrateUpCmd struct {
	migrateFlags
	Shards int `env:"LIKEWISE_SHARDS" default:"0" help:"Shards that likes are spread over, fixed by the first run; 0: ${shards}, or what is installed."`
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
