package servers

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"time"
)

// Build builds the product into the file path. It has the race detector if this program has. flags are those of
// `go build`.
func Build(ctx context.Context, path string, flags ...string) error {
	args := []string{"build", "-ldflags=-s -w", "-o", path} // as go test links
	info, ok := debug.ReadBuildInfo()
	if ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	args = append(append(args, flags...), "likewise/cmd/likewise")
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the product: %w: %s", err, out)
	}
	return nil
}

// Product is a process of the product that has both listeners.
type Product struct {
	*Process
	Name           string // for messages
	Address, Admin string // of the listeners, as host:port

	log string // path
}

// StartProduct starts `program args` with listeners on free ports and with variables in addition to those of this
// process. The process writes its log to a file. StartProduct returns when the process is ready.
func StartProduct(
	ctx context.Context, name, program, log string, variables []string, args ...string,
) (*Product, error) {
	p := &Product{Name: name, log: log}
	ports := chooseFree(2)
	p.Address, p.Admin = loopback(ports[0]), loopback(ports[1])
	file, err := openLog(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), variables...)
	cmd.Env = append(cmd.Env, "LIKEWISE_LISTEN="+p.Address, "LIKEWISE_ADMIN_LISTEN="+p.Admin)
	cmd.Stdout, cmd.Stderr = file, file
	if p.Process, err = Spawn(cmd); err != nil {
		return nil, err
	}
	if err := p.awaitReady(ctx); err != nil {
		p.Kill()
		return nil, fmt.Errorf("%s is not ready: %w\n%s", name, err, tail(log, 4096))
	}
	return p, nil
}

// awaitReady waits until /readyz answers 200.
func (p *Product) awaitReady(ctx context.Context) error {
	ctx, cancel := withDefaultTimeout(ctx, startTimeout)
	defer cancel()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		body, err := p.Ask(ctx, "/readyz")
		if err == nil {
			return body.Close()
		}
		select {
		case <-p.exited:
			return fmt.Errorf("it has ended: %s", p.State())
		case <-ctx.Done():
			return err
		case <-poll.C:
		}
	}
}

// Ask requests a path of the admin listener, and returns the body of an answer 200. The caller closes it.
func (p *Product) Ask(ctx context.Context, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Admin+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", p.Name, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", p.Name, err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("ask %s: %s: %s", p.Name, path, response.Status)
	}
	return response.Body, nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
