//go:build dev

package main

import (
	"context"
	"fmt"
	"os"

	"likewise/internal/bench"
)

// benchCmd measures on its own private servers, never on those of a site.
type benchCmd struct{ bench.Options }

// Run measures this program.
func (b *benchCmd) Run(ctx context.Context, out output) (err error) {
	if b.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	return b.Options.Run(ctx, out.stdout, out.log)
}
