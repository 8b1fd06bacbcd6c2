package network

import (
	"log/slog"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// failing is a listener whose first calls of Accept return errs.
type failing struct {
	net.Listener

	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, err
	}
	return f.Listener.Accept()
}

func TestAccept_retriesAfterTransientErrors(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := Listen(&failing{ln, []error{syscall.EMFILE, syscall.ECONNABORTED}}, Config{
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Open:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "open", Help: "Open connections."}),
		Refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "refused_total", Help: "Refused connections."}),
	})
	client, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	conn, err := l.Accept()
	require.NoError(t, err)
	assert.NoError(t, conn.Close())

	require.NoError(t, l.Close())
	_, err = l.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
}
