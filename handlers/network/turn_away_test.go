package network_test

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers/network"
)

func TestTurnAway_servesWhoIsConnectedAndNobodyElse(t *testing.T) {
	t.Parallel()
	ln, err := network.ListenTCP(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	conns := make([]net.Conn, 50)
	for i := range conns {
		conns[i], err = net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		_, err = conns[i].Write([]byte("x"))
		require.NoError(t, err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("y"))
			_ = conn.Close()
		}
	})
	require.NoError(t, network.TurnAway(t.Context(), ln))

	_, err = net.DialTimeout("tcp", ln.Addr().String(), 100*time.Millisecond)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout, "a connection begins although the listener is about to be closed")
	require.True(t, timeout.Timeout(), "a new connection is neither begun nor refused: %v", err)
	require.NoError(t, ln.Close())
	serving.Wait()
	for _, conn := range conns {
		var answer [1]byte
		_, err := conn.Read(answer[:])
		assert.NoError(t, err, "a connection that was established was not served")
		conn.Close()
	}
	_, err = net.Dial("tcp", ln.Addr().String())
	var refused *net.OpError
	assert.True(t, errors.As(err, &refused) && !refused.Timeout(), "after the listener was closed: %v", err)
}
