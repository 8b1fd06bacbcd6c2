package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"likewise/models"
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
	if err := store.SwitchLikes(ctx, models.LikesGated); err != nil {
		return err
	}
	fmt.Fprintln(out.stdout, "likes are gated")
	return nil
}

type likesDirectCmd struct {
	mysqlFlags

	Redis string        `env:"LIKEWISE_REDIS" placeholder:"${redis}" help:"${redis_help}"`
	Wait  time.Duration `default:"1m" help:"${likes_wait_help}"`

	RedisTLS tlsFlags `embed:"" prefix:"redis-" envprefix:"LIKEWISE_REDIS_"`
}

// Validate reports missing settings.
func (l *likesDirectCmd) Validate() error {
	return required(l.setting(), redisSetting(l.Redis, l.RedisTLS))
}

// Run closes the gate, waits until MySQL has every like, and allows direct processes to start. If the likes do not
// arrive in time, the site stays closed to likes: the command can be run again, or undone with gated. If MySQL cannot
// have every like, the site becomes gated again.
func (l *likesDirectCmd) Run(ctx context.Context, out output) error {
	store, err := l.open(ctx, out.log, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	mode, err := store.LikesMode(ctx)
	if err != nil {
		return err
	}
	if mode != models.LikesDirect {
		if err := store.SwitchLikes(ctx, models.LikesDraining); err != nil {
			return err
		}
		err := l.drain(ctx, out)
		if models.ErrorCode(err) == models.CodeConflict {
			return errors.Join(fmt.Errorf("likes stay gated: %w", err), store.StopDraining(ctx))
		}
		if err != nil {
			return fmt.Errorf("likes are refused until this command succeeds, or `likewise likes gated` is run: %w",
				err)
		}
	}
	fmt.Fprintln(out.stdout, "likes are direct")
	return nil
}

// drain changes a site from draining to direct.
func (l *likesDirectCmd) drain(ctx context.Context, out output) error {
	c, err := openCore(ctx, out.log, l.mysqlFlags, gateAt(l.Redis, l.RedisTLS))
	if err != nil {
		return err
	}
	defer c.close()
	waiting, cancel := context.WithTimeout(ctx, l.Wait)
	defer cancel()
	if err := workers.Drain(waiting, c.redis, c.store); err != nil {
		return err
	}
	return c.store.SwitchLikes(ctx, models.LikesDirect)
}
