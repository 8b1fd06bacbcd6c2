package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	unreadConnections = 200

	maxGrowth = 300 << 20 // bytes of resident memory
	maxSlower = 5.0       // times the p99 of the other client while nobody attacks
)

// largest returns the routes with content in their answers, and the token that each needs.
func (w worst) largest() []struct{ path, token string } {
	post, user := fmt.Sprintf("/v1/posts/%d", w.post), fmt.Sprintf("/v1/users/%d", w.author)
	chain := fmt.Sprintf("/v1/comments/%d", w.deepest)
	type route = struct{ path, token string }
	return []route{
		{"/v1/posts?limit=100", ""},
		{"/v1/posts?limit=100&sort=hot", ""},
		{"/v1/posts?limit=100&sort=top", ""},
		{"/v1/posts?limit=100&sort=active", ""},
		{"/v1/posts?limit=100&tag=attacked", ""},
		{"/v1/posts?limit=100&q=needle", ""},
		{"/v1/posts?limit=100&pinned=true", ""},
		{post, ""},
		{post + "/revisions?limit=100", ""},
		{post + "/comments?limit=100", ""},
		{post + "/comments?limit=100&sort=top", ""},
		{post + "/thread?limit=500&depth=10", ""},
		{post + "/likes?limit=100", ""},
		{chain, ""},
		{chain + "/ancestors?limit=100", ""},
		{user + "/posts?limit=100", ""},
		{user + "/comments?limit=100", ""},
		{user + "/likes?limit=100", ""},
		{user + "/likes?limit=100&type=comment", ""},
		{"/v1/tags?limit=100", ""},
		{"/v1/me/bookmarks?limit=100", w.token},
		{"/v1/me/likes?limit=100", w.token},
		{"/v1/feed?limit=100", w.token},
		{"/v1/admin/posts?limit=100", w.modToken},
		{"/v1/admin/comments?limit=100", w.modToken},
	}
}

// measureUnread requests the largest answer of each route on 200 connections at once, from some addresses, and does not
// read the answers.
func (a *attacked) measureUnread(ctx context.Context, s *Settings, addresses int) (list []bounded, err error) {
	if _, err := a.probeAlone(ctx, a.betweenRoutes); err != nil { // warms up the caches
		return nil, err
	}
	before, err := a.resident()
	if err != nil {
		return nil, err
	}
	for i, route := range a.data.largest() {
		name := "GET " + route.path
		if !s.isChosen(name) {
			continue
		}
		idle, err := a.probeAlone(ctx, a.betweenRoutes)
		if err != nil {
			return nil, err
		}
		started, err := a.resident()
		if err != nil {
			return nil, err
		}
		answers, peak, during, err := a.leaveUnread(ctx, route.path, route.token, i+1, addresses)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", route.path, err)
		}
		slower := during.P99 / idle.P99
		f := bounded{
			Name: name, Within: peak-before < maxGrowth && slower < maxSlower && during.refused == 0,
			Text: fmt.Sprintf(
				"memory %+4d MB (since the beginning %+4d MB); p99 %.1f ms, idle %.1f ms: %.1f times, %d refused; "+
					"answers %s",
				(peak-started)>>20, (peak-before)>>20, during.P99, idle.P99, slower, during.refused, answers,
			),
		}
		a.log.InfoContext(ctx, "bench measured", "scenario", name, "figure", f.Text)
		list = append(list, f)
	}
	return list, nil
}

// leaveUnread sends 200 requests at once for one path, and reads only the status of each answer. Meanwhile it watches
// the site. It returns the answers, the peak of the memory, and what the other client has noticed.
func (a *attacked) leaveUnread(
	ctx context.Context, path, token string, attack, addresses int,
) (answers *tally, peak int64, during probed, err error) {
	watching, stop := context.WithTimeout(ctx, a.unread)
	defer stop()
	var running sync.WaitGroup
	var probeErr, memoryErr, dialErr error
	running.Go(func() { during, probeErr = a.probe(watching) })
	running.Go(func() {
		for watching.Err() == nil && memoryErr == nil {
			var now int64
			now, memoryErr = a.resident()
			peak = max(peak, now)
			pause(watching, 20*time.Millisecond)
		}
	})
	connections := make([]net.Conn, unreadConnections)
	for i := range connections {
		connections[i], dialErr = a.dial(ctx, fmt.Sprintf("127.%d.%d.1", attack, i%addresses+1))
		if dialErr != nil {
			stop()
			break
		}
		defer connections[i].Close()
		// A small buffer makes the server wait earlier.
		_ = connections[i].(interface{ SetReadBuffer(bytes int) error }).SetReadBuffer(4 << 10)
	}
	request := "GET " + path + " HTTP/1.1\r\nHost: bench\r\n"
	if token != "" {
		request += "Authorization: Bearer " + token + "\r\n"
	}
	answers = &tally{}
	for _, conn := range slices.DeleteFunc(connections, func(c net.Conn) bool { return c == nil }) {
		running.Go(func() {
			status := "none yet"
			line := make([]byte, len("HTTP/1.1 200"))
			_ = conn.SetDeadline(time.Now().Add(a.unread))
			if _, err := io.WriteString(conn, request+"\r\n"); err == nil {
				if _, err := io.ReadFull(conn, line); err == nil {
					status = strings.TrimPrefix(string(line), "HTTP/1.1 ")
				}
			}
			answers.add(status)
		})
	}
	running.Wait()
	return answers, peak, during, errors.Join(probeErr, memoryErr, dialErr)
}
