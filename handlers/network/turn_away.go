package network

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// settleTime is how long a handshake that has begun may take until its connection can be accepted.
const settleTime = 200 * time.Millisecond

// ignoreSYN is a classic BPF program. On a listening socket it drops each segment that asks for a new connection, and
// passes the other segments of handshakes that have begun. It reads the flags of the TCP header (RFC 9293, section 3.1).
var ignoreSYN = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},                   // the byte of the flags
	{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: 0x02, Jt: 0, Jf: 1}, // SYN
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 31},
}

// TurnAway prepares ln to be closed. Closing a listener resets the connections that the kernel has established and that
// nobody has accepted: their clients may have sent a request, and cannot know whether it took effect. TurnAway lets no
// new connection begin, and returns when those that had begun were accepted. A client that connects meanwhile repeats
// its SYN after a second, and is then refused. On anything but a TCP listener, TurnAway does nothing.
func TurnAway(ctx context.Context, ln net.Listener) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return // it is closed
	}
	program := unix.SockFprog{Len: uint16(len(ignoreSYN)), Filter: &ignoreSYN[0]}
	controlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), syscall.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	})
	if controlErr != nil || err != nil {
		return // a kernel without filters: closing resets what is not accepted, as ever
	}
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
