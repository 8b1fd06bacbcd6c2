package handlers_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
	"likewise/internal/testkit"
)

// executioner is a proxy between a process and MySQL. Once armed, it forwards the COMMIT that completes the effect of a
// request with an Idempotency-Key, waits until MySQL has carried it out, and kills the process instead of forwarding
// the answer.
type executioner struct {
	listener net.Listener
	server   *mysql.Config
	armed    atomic.Bool
	kill     func() // ends the process; set before the proxy is armed
	links    sync.WaitGroup
}

// newExecutioner returns a proxy for one process, and the data source name that leads through it.
func newExecutioner(t *testing.T, dsn string) (e *executioner, through string) {
	t.Helper()
	server, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e = &executioner{listener: listener, server: server}
	e.links.Go(e.serve)
	config := server.Clone()
	config.Net, config.Addr = "tcp", listener.Addr().String()
	return e, config.FormatDSN()
}

// close waits until all connections are closed. The process has ended by then.
func (e *executioner) close() {
	e.listener.Close()
	e.links.Wait()
}

func (e *executioner) serve() {
	for {
		client, err := e.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial(e.server.Net, e.server.Addr)
		if err != nil {
			client.Close()
			continue
		}
		var last atomic.Bool // the answer to the COMMIT comes next
		e.links.Go(func() {
			defer server.Close()
			_ = e.statements(client, server, &last) // an end is closed
		})
		e.links.Go(func() {
			defer client.Close()
			e.answers(server, client, &last)
		})
	}
}

// statements forwards packets of the MySQL protocol and sets last before the last COMMIT of the process.
func (e *executioner) statements(client io.Reader, server io.Writer, last *atomic.Bool) error {
	const head = 4 // bytes: the length of the packet in three, and its number
	in := bufio.NewReader(client)
	effect := false // whether the transaction records the effect of the request
	for {
		size, err := in.Peek(head)
		if err != nil {
			return err
		}
		packet := make([]byte, head+int(binary.LittleEndian.Uint32(size)&0xffffff))
		if _, err := io.ReadFull(in, packet); err != nil {
			return err
		}
		switch statement := packet[head:]; {
		case bytes.Equal(statement, []byte("\x03COMMIT")):
			if effect && e.armed.CompareAndSwap(true, false) {
				last.Store(true)
			}
			effect = false
		case bytes.Equal(statement, []byte("\x03ROLLBACK")):
			effect = false
		case bytes.Contains(statement, []byte("UPDATE idempotency_keys")) &&
			bytes.Contains(statement, []byte(`\"done\":true`)):
			effect = true
		}
		if _, err := server.Write(packet); err != nil {
			return err
		}
	}
}

func (e *executioner) answers(server io.Reader, client io.Writer, last *atomic.Bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		if last.Load() {
			e.kill()
			return
		}
		if n > 0 {
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// buildProduct returns the path of the product's program, which has the race detector if the tests have.
func buildProduct(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "likewise")
	require.NoError(t, servers.Build(t.Context(), path))
	return path
}

// mortalAPI is `likewise api` as a process of its own, in direct mode.
type mortalAPI struct {
	*executioner
	*servers.Process
	url string
}

var serving = regexp.MustCompile(`api serves.* address=(\S+)`)

// startMortal starts the program on the world's database.
func (w *world) startMortal(program string) *mortalAPI {
	w.t.Helper()
	e, dsn := newExecutioner(w.t, w.dsn)
	log := &logBuffer{}
	cmd := exec.Command(program, "api", "--likes=direct", "--limits=0", "--listen=127.0.0.1:0",
		"--admin-listen=127.0.0.1:0",
		"--staff-second-factor=optional", "--smtp=smtp://127.0.0.1", "--public-url=http://127.0.0.1",
		"--mysql-dsn="+dsn, "--avatar-hosts=example.com")
	cmd.Stdout, cmd.Stderr = log, log
	process, err := servers.Spawn(cmd)
	if err != nil {
		e.close()
		w.t.Fatal(err)
	}
	m := &mortalAPI{executioner: e, Process: process}
	e.kill = func() { m.Signal(syscall.SIGKILL) }
	w.t.Cleanup(func() {
		m.Kill()
		e.close()
		if strings.Contains(log.String(), "DATA RACE") {
			w.t.Error("the process has a race")
		}
		if w.t.Failed() {
			w.t.Logf("log of the process:\n%s", log.tail())
		}
	})
	testkit.Eventually(w.t, time.Minute, func() (bool, string) {
		found := serving.FindStringSubmatch(log.String())
		if found == nil {
			return false, "the process does not serve: " + log.tail()
		}
		m.url = "http://" + found[1]
		return true, ""
	})
	return m
}

// ended reports whether the process has ended.
func (m *mortalAPI) ended() bool {
	select {
	case <-m.Exited():
		return true
	default:
		return false
	}
}

// to returns the world with its requests sent to the process.
func (w *world) to(m *mortalAPI) *world {
	v := *w
	v.api = &api{store: w.store, url: m.url, client: w.client}
	return &v
}

// takesKey reports whether requests of the operation may have an Idempotency-Key.
func (o operation) takesKey() bool {
	return slices.ContainsFunc(o.params, func(p node) bool { return o.k.follow(p).value["name"] == "Idempotency-Key" })
}

// TestIdempotency_survivesSIGKILLOfEveryPOST sends every POST of the contract that takes an Idempotency-Key to a
// process that is killed after the COMMIT of the effect and before its answer, and again to a process that was started
// since. The effect is there once, and the answer is that of the request to a process that lives.
//
// For a POST that fails here see TestIdempotency_everyPOSTIsCarriedOutOnce, whose process dies after every COMMIT of a
// request, within this one.
func TestIdempotency_survivesSIGKILLOfEveryPOST(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	program := buildProduct(t)
	living := w.startMortal(program)
	deaths := 0
	for _, o := range operations(t) {
		if o.method != http.MethodPost || !o.takesKey() {
			continue
		}
		dying := living
		living = w.startMortal(program)
		t.Run(o.id, func(t *testing.T) {
			w := w.in(t)
			try := w.newTry(o)
			before := w.totals()
			want := w.to(dying).sendTry(try)
			effect := w.effect(before)
			if want.Status >= 300 || len(effect) == 0 {
				t.Fatalf("it changes %v and is answered with %s; it has to have an effect: see staged", effect, want)
			}

			try = w.newTry(o)
			before = w.totals()
			dying.armed.Store(true)
			var body any
			if try.body != nil {
				body = try.body
			}
			if r, err := w.to(dying).try(try.as, o.method, try.path, body, try.headers...); err == nil {
				t.Fatalf("the process that is to die answers %s", r)
			}
			testkit.Eventually(t, time.Minute,
				func() (bool, string) { return dying.ended(), "the process is not killed" })
			if carriedOut := w.effect(before); !maps.Equal(carriedOut, effect) {
				t.Errorf("the killed process changed %v, want %v", carriedOut, effect)
			}
			w.to(living).repeats("SIGKILL after the COMMIT", try, want, effect, before)
			deaths++
		})
	}
	if deaths == 0 && !t.Failed() {
		t.Error("no process died")
	}
	t.Logf("%d deaths", deaths)
}
