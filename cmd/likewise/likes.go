package main

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/workers"
)

// likesCmd switches a site between gated and direct likes.
type likesCmd struct {
	Gated  likesGatedCmd  `cmd:"" help:"${likes_gated_help}"`
	Direct likesDirectCmd `cmd:"" help:"${likes_direct_help}"`
}

type likesGatedCmd struct{ mysqlFlags }

// Validate reports missing settings.
func (l *likesGatedCmd) Validate() error { return required(l.setting()) }

// Run allows gated processes to start. Shards evict what Redis still has when they are opened.
func (l *likesGatedCmd) Run(ctx context.Context, out output) error {
	store, err := l.open(ctx, out.log, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := likes.New(store).SwitchToGated(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out.stdout, "likes are gated")
	return nil
}

type likesDirectCmd struct {
	mysqlFlags

	Redis string `env:"LIKEWISE_REDIS" placeholder:"${redis}" help:"${redis_help}"`

	RedisTLS tlsFlags `embed:"" prefix:"redis-" envprefix:"LIKEWISE_REDIS_"`
}

// Validate reports missing settings.
func (l *likesDirectCmd) Validate() error {
	return required(l.setting(), redisSetting(l.Redis, l.RedisTLS))
}

// Run allows direct processes to start, if MySQL has every like and claim. If it has not, the site stays gated.
func (l *likesDirectCmd) Run(ctx context.Context, out output) error {
	store, err := l.open(ctx, out.log, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := l.leaveGate(ctx, out, store); err != nil {
		return err
	}
	fmt.Fprintln(out.stdout, "likes are direct")
	return nil
}

// leaveGate changes a gated site to a direct one.
func (l *likesDirectCmd) leaveGate(ctx context.Context, out output, store *db.DB) error {
	mode, err := store.LikesMode(ctx)
	if err != nil || mode == models.LikesDirect {
		return err
	}
	if mode == "" {
		return likes.ErrNoMode
	}
	c, err := openCore(ctx, out.log, l.mysqlFlags, gateAt(l.Redis, l.RedisTLS))
	if err != nil {
		return err
	}
	defer c.close()
	err = workers.LeaveGate(ctx, c.redis, c.gate, c.store, func(d models.Difference) { fmt.Fprintln(out.stdout, d) })
	if err != nil {
		return fmt.Errorf("likes stay gated: %w", err)
	}
	return nil
}
