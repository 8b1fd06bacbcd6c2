package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// settleTime is how long a handshake that has begun may take until its connection can be accepted.
const settleTime = 200 * time.Millisecond

// ignoreSYN is a classic BPF program. On a listening socket it drops each segment that asks for a new connection, and
// passes the other segments of handshakes that have begun. It reads the flags of the TCP header (RFC 9293, section
// 3.1).
var ignoreSYN = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},                   // the byte of the flags
	{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: 0x02, Jt: 0, Jf: 1}, // SYN
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 31},
}

// ListenTCP listens on address for TurnAway. Multipath TCP is off, because its sockets take no filter.
func ListenTCP(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	ln, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return ln, nil
}

// TurnAway prepares ln to be closed. Closing a listener resets the connections that the kernel has established and that
// nobody has accepted: their clients may have sent a request, and cannot know whether it took effect. TurnAway lets no
// new connection begin, and returns when those that had begun were accepted. A client that connects meanwhile repeats
// its SYN after a second, and is then refused. TurnAway returns an error if the kernel takes no filter.
func TurnAway(ctx context.Context, ln net.Listener) error {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return fmt.Errorf("turn connections away: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(ignoreSYN)), Filter: &ignoreSYN[0]}
	controlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), syscall.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	})
	if err = errors.Join(controlErr, err); err != nil {
		return fmt.Errorf("turn connections away: %w", err)
	}
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return nil
}
