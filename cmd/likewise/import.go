package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"likewise/cmd/likewise/stackexchange"
)

type importCmd struct {
	StackExchange importStackExchangeCmd `cmd:"" name:"stackexchange" help:"${import_help}"`
}

type importStackExchangeCmd struct {
	mysqlFlags
	likesFlags
	Dir  string `arg:"" type:"existingdir" help:"Folder with Users.xml, Posts.xml, Comments.xml and Votes.xml."`
	Site string `placeholder:"NAME" help:"${site_help}"`
}

// Validate reports missing settings.
func (i *importStackExchangeCmd) Validate() error {
	return required(i.mysqlFlags.setting(), i.likesFlags.setting())
}

// Run imports the dump and prints a summary.
func (i *importStackExchangeCmd) Run(ctx context.Context, out output) error {
	c, err := openCore(ctx, out.log, i.mysqlFlags, i.likesFlags)
	if err != nil {
		return err
	}
	options := stackexchange.Options{Dir: i.Dir, Site: i.Site, Store: c.store, Likes: c.likes}
	return errors.Join(importStackExchange(ctx, options, out.stdout, os.Stderr), c.close())
}

func importStackExchange(
	ctx context.Context, options stackexchange.Options, stdout io.Writer, stderr *os.File,
) error {
	options.Progress = progressLines(stderr, time.Now)
	if term.IsTerminal(int(stderr.Fd())) {
		options.Progress = progressBars(stderr)
	}
	summary, err := stackexchange.Import(ctx, options)
	if summary.Users.Read > 0 {
		err = errors.Join(err, summary.Print(stdout))
	}
	if err != nil && summary.Users.Read > 0 {
		return fmt.Errorf("%w\nEverything written so far is kept. Run the same command again to continue", err)
	}
	return err
}

// progressBars shows one bar per stage.
func progressBars(w io.Writer) func(stackexchange.Stage, int64, int64) {
	var bar *progressbar.ProgressBar
	var shown stackexchange.Stage
	return func(stage stackexchange.Stage, done, total int64) {
		if stage != shown {
			shown = stage
			bar = progressbar.NewOptions64(total,
				progressbar.OptionSetWriter(w),
				progressbar.OptionSetDescription(fmt.Sprintf("%-16s", stage)),
				progressbar.OptionSetWidth(30),
				progressbar.OptionShowCount(),
				progressbar.OptionShowBytes(stage == stackexchange.StageRead),
				progressbar.OptionThrottle(100*time.Millisecond),
				progressbar.OptionOnCompletion(func() { fmt.Fprintln(w) }))
		}
		_ = bar.Set64(done) // an import does not fail for its progress bar
	}
}

// lineEvery is the interval between two progress lines if the output is not a terminal.
const lineEvery = 5 * time.Second

func progressLines(w io.Writer, now func() time.Time) func(stackexchange.Stage, int64, int64) {
	last, printed := now(), ""
	return func(stage stackexchange.Stage, done, total int64) {
		t := now()
		if done < total && t.Sub(last) < lineEvery {
			return
		}
		if line := fmt.Sprintf("%s: %d of %d\n", stage, done, total); line != printed {
			last, printed = t, line
			_, _ = io.WriteString(w, line) // an import does not fail for its progress line
		}
	}
}
