// Command likewise is the whole product in one binary: the API, the workers, the cron jobs and the tools.
//
// It is built twice. Without build tags it is the production binary, likewise. With the tag dev it is likewise-dev,
// which also holds the commands dev and bench and the private servers that they start. In the production binary these
// two commands replace the process by likewise-dev.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"likewise/images"
)

// cli is the command line. Every flag that configures something can be set by an environment variable instead; nothing
// but this struct reads the environment.
type cli struct {
	LogFormat string `enum:"auto,text,json" default:"auto" env:"LIKEWISE_LOG_FORMAT" help:"${log_format_help}"`
	LogLevel  string `enum:"debug,info,warn,error" default:"info" env:"LIKEWISE_LOG_LEVEL" help:"${log_level_help}"`
	NoColor   string `env:"NO_COLOR" placeholder:"1" help:"${no_color_help}"`

	Version versionFlag `help:"Print the version."`

	API         apiCmd         `cmd:"" name:"api" help:"Serve the JSON API."`
	Web         webCmd         `cmd:"" help:"Serve the pages of the forum, on the API alone."`
	Worker      workerCmd      `cmd:"" help:"Move likes and claims from Redis through Kafka to MySQL."`
	Cron        cronCmd        `cmd:"" help:"Run the background jobs on schedule, or one of them once."`
	Migrate     migrateCmd     `cmd:"" help:"Create or update the schema."`
	Import      importCmd      `cmd:"" help:"Import content."`
	User        userCmd        `cmd:"" help:"Manage accounts and tokens."`
	Verify      verifyCmd      `cmd:"" help:"Compare rows, counts and Redis for every post, comment and drop."`
	Cool        coolCmd        `cmd:"" help:"${cool_help}"`
	Likes       likesCmd       `cmd:"" help:"Switch the site between gated and direct likes."`
	Healthcheck healthcheckCmd `cmd:"" help:"${healthcheck_help}"`

	devCommands
}

// output is where a command reads and writes.
type output struct {
	stdout io.Writer
	stdin  io.Reader
	log    *slog.Logger // to standard error; set by run
}

func main() {
	images.ServeApart()
	serveBroker()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	os.Exit(run(ctx, os.Args[1:], output{stdout: os.Stdout, stdin: os.Stdin}, os.Stderr))
}

// errDiffers sets the exit status to 1 after a command has printed everything.
var errDiffers = errors.New("differences were found")

// run parses args and runs the command until it is done or ctx ends. It returns the exit status. Without args it prints
// the help.
func run(ctx context.Context, args []string, out output, stderr io.Writer) int {
	var c cli
	exit := -1
	stdout := &checkedWriter{w: out.stdout}
	out.stdout = stdout
	parser, err := kong.New(&c, kong.Name("likewise"), kong.UsageOnError(),
		kong.Description("The backend of a forum: posts, comments, and likes that are never lost and counted once."),
		kong.Writers(out.stdout, stderr), kong.Exit(func(code int) { exit = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}), kong.Help(printHelp), commandTexts())
	if err != nil {
		fmt.Fprintln(stderr, "likewise:", err)
		return 2
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if exit >= 0 { // --help or --version
		if stdout.err != nil {
			fmt.Fprintln(stderr, "likewise: write the output:", stdout.err)
			return 1
		}
		return exit
	}
	if err != nil {
		fmt.Fprintf(stderr, "likewise: %s\n", capitalNames(err.Error()))
		if stdout.err != nil {
			return 1 // the help was not written
		}
		return 2
	}
	lines := &lineBuffer{w: stderr}
	defer lines.flush()
	out.log = slog.New(delayedLog{c.logHandler(lines, isTerminal(stderr)), lines})
	slog.SetDefault(out.log) // for go-redis and net/http, whose loggers belong to the process
	command.BindTo(ctx, (*context.Context)(nil))
	err = command.Run(out)
	if stdout.err != nil && !errors.Is(err, stdout.err) {
		err = errors.Join(err, fmt.Errorf("write the output: %w", stdout.err))
	}
	if err != nil {
		if !errors.Is(err, errDiffers) || stdout.err != nil {
			fmt.Fprintf(stderr, "likewise %s: %v\n", command.Command(), err)
		}
		return 1
	}
	return 0
}

func (c *cli) logHandler(w io.Writer, terminal bool) slog.Handler {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // kong has checked it against the enum
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: logAttr}
	switch {
	case c.LogFormat == "json":
		return slog.NewJSONHandler(w, options)
	case c.LogFormat == "auto" && terminal:
		return newConsole(w, level, c.NoColor == "")
	}
	return slog.NewTextHandler(w, options)
}
