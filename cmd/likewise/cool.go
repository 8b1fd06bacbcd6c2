package main

import (
	"context"
	"fmt"
	"time"

	"likewise/models"
	"likewise/workers"
)

// coolCmd evicts a target from Redis after a change by hand in MySQL.
type coolCmd struct {
	mysqlFlags

	Redis  string        `env:"LIKEWISE_REDIS" placeholder:"${redis}" help:"${redis_help}"`
	Target string        `arg:"" help:"${cool_target_help}"`
	Wait   time.Duration `default:"1m" help:"${cool_wait_help}"`

	RedisTLS tlsFlags `embed:"" prefix:"redis-" envprefix:"LIKEWISE_REDIS_"`
}

// Validate reports missing settings, and what is not a target.
func (c *coolCmd) Validate() error {
	if err := required(c.setting(), redisSetting(c.Redis, c.RedisTLS)); err != nil {
		return err
	}
	_, err := models.ParseTarget(c.Target)
	return err
}

// Run evicts the target.
func (c *coolCmd) Run(ctx context.Context, out output) error {
	target, err := models.ParseTarget(c.Target)
	if err != nil {
		return err
	}
	core, err := openCore(ctx, out.log, c.mysqlFlags, gateAt(c.Redis, c.RedisTLS))
	if err != nil {
		return err
	}
	defer core.close()
	waiting, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	if err := workers.Cool(waiting, core.redis, core.store, target); err != nil {
		return err
	}
	fmt.Fprintf(out.stdout, "%s is cold: its next like or claim reads it from MySQL\n", target)
	return nil
}
