package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// version is that of a release: go build -ldflags "-X main.version=v1.2.3". Otherwise it comes from the repository that
// the program was built in.
var version string

// versionFlag prints the version.
type versionFlag bool

// BeforeReset prints the version, before anything that is required can be missing.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	_, err := fmt.Fprintln(app.Stdout, versionText())
	app.Exit(0)
	return err
}

// versionText returns the version, the commit and the platform.
func versionText() string {
	name, commit := version, ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if name == "" {
			name = info.Main.Version
		}
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if commit = settings["vcs.revision"]; len(commit) > 12 {
			commit = commit[:12]
		}
		if commit != "" && settings["vcs.modified"] == "true" {
			commit += ", modified"
		}
	}
	if name == "" || name == "(devel)" {
		name = "development"
	}
	if commit != "" {
		commit = "commit " + commit + ", "
	}
	return fmt.Sprintf("likewise %s (%s%s %s/%s)", name, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
