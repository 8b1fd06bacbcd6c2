package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// console logs for people in a terminal: a request is one short line with its path, in columns. The handler within
// writes all other lines.
type console struct {
	slog.Handler
	w     io.Writer
	color bool
}

func newConsole(w io.Writer, level slog.Leveler, color bool) console {
	return console{
		tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: time.TimeOnly, NoColor: !color}), w, color,
	}
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// onConsole reports whether log is for people in a terminal.
func onConsole(log *slog.Logger) bool {
	delayed, ok := log.Handler().(delayedLog)
	if ok {
		_, ok = delayed.Handler.(console)
	}
	return ok
}

// Colors of a terminal (ECMA-48, SGR).
const (
	colorNone   = "0"
	colorFaint  = "2"
	colorRed    = "31"
	colorGreen  = "32"
	colorYellow = "33"
	colorCyan   = "36"
)

// Handle logs the record.
func (c console) Handle(ctx context.Context, r slog.Record) error {
	if r.Message != "request" {
		return c.Handler.Handle(ctx, r)
	}
	var method, path string
	var status int64
	var took time.Duration
	var rest []string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "method":
			method = a.Value.String()
		case "path":
			path = shown(a.Value.String())
		case "status":
			status = a.Value.Int64()
		case "duration_ms":
			took = time.Duration(a.Value.Float64() * float64(time.Millisecond))
		case "error", "request_id":
			if r.Level >= slog.LevelError {
				rest = append(rest, a.Key+"="+shown(a.Value.String()))
			}
		}
		return true
	})
	color := colorGreen
	switch {
	case status >= 500:
		color = colorRed
	case status >= 400:
		color = colorYellow
	case status >= 300:
		color = colorCyan
	}
	line := c.in(colorFaint, r.Time.Format(time.TimeOnly)) + fmt.Sprintf(" %-6s %-44s ", method, path) +
		c.in(color, fmt.Sprint(status)) + c.in(colorFaint, fmt.Sprintf(" %7s", shortDuration(took)))
	if len(rest) > 0 {
		line += " " + c.in(colorRed, strings.Join(rest, " "))
	}
	_, err := io.WriteString(c.w, line+"\n")
	return err
}

// WithAttrs returns the console: the attributes of a request are not its own, and not shown.
func (c console) WithAttrs(attrs []slog.Attr) slog.Handler {
	return console{c.Handler.WithAttrs(attrs), c.w, c.color}
}

// WithGroup is like WithAttrs.
func (c console) WithGroup(name string) slog.Handler {
	return console{c.Handler.WithGroup(name), c.w, c.color}
}

// in returns the text in a color.
func (c console) in(color, text string) string {
	if !c.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[" + colorNone + "m"
}

const maxShown = 200 // characters

// shown returns text that cannot control the terminal, and that has at most maxShown characters.
func shown(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > maxShown {
		return string(runes[:maxShown]) + "…"
	}
	return text
}

func shortDuration(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 9.95:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 999.5:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
