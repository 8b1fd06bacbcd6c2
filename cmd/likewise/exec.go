//go:build !dev

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// devCommands are the commands that start private servers. This is the production binary, which holds no servers: it
// replaces itself by the program likewise-dev, with the same arguments and under the same process id.
type devCommands struct {
	Dev   execCmd `cmd:"" passthrough:"" help:"${dev_help} Needs likewise-dev."`
	Bench execCmd `cmd:"" passthrough:"" help:"${bench_help} Needs likewise-dev."`
}

type execCmd struct {
	Args []string `arg:"" optional:"" help:"See likewise-dev --help."`
}

// Run does not return unless it fails.
func (*execCmd) Run() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	program, err := devProgram(self)
	if err != nil {
		return err
	}
	if err := syscall.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	return nil
}

const devName = "likewise-dev"

// devProgram returns the path of likewise-dev: beside the program self, else in PATH.
func devProgram(self string) (string, error) {
	if filepath.Base(self) == devName {
		return "", errors.New("likewise-dev was built without its servers: run `make build`")
	}
	if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), devName)); err == nil {
		return beside, nil
	}
	program, err := exec.LookPath(devName)
	if err != nil {
		return "", errors.New(
			"likewise-dev is neither beside likewise nor in PATH, and this command needs it: run `make build`",
		)
	}
	return filepath.Abs(program)
}

// serveBroker does nothing: only development servers run as this program.
func serveBroker() {}
