package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// expensive sends the requests that cost the database most, from one address and without a token.
var expensive = scenario{
	name: "expensive",
	help: "60 anonymous requests at once from one address, the most expensive ones, on a site with many posts",
	run:  runDear,
}

const (
	attackers    = 60
	attackFrom   = "127.77.0.1"
	attackFor    = 15 * time.Second
	attackPause  = 100 * time.Millisecond // after a refusal, so that most requests are executed
	attackSettle = time.Second            // after the attack; then all its statements must have ended

	maxWait = 100 * time.Millisecond // longest request of the other client
)

// expensivePaths returns the paths of the requests. Some have cursors deep in their lists.
func (s *site) expensivePaths(ctx context.Context, l large) ([]string, error) {
	words := "/v1/posts?limit=100&q=" + url.QueryEscape(l.words)
	tag, author, post := "/v1/posts?limit=100&tag="+l.tag, fmt.Sprintf(
		"/v1/posts?limit=100&author=%d",
		l.author,
	), fmt.Sprintf(
		"/v1/posts/%d",
		l.post,
	)
	var paths []string
	for _, sort := range []string{"new", "hot", "top", "active"} {
		paths = append(paths, tag+"&sort="+sort, words+"&sort="+sort)
	}
	paths = append(
		paths,
		words+"&sort=relevance",
		author+"&sort=top",
		words+fmt.Sprintf("&author=%d", l.author),
		words+"&tag="+l.tag,
		"/v1/posts?limit=100&sort=top&window=year",
		words+"&sort=top&window=year",
		"/v1/tags?limit=100&q="+l.prefix,
		"/v1/tags?limit=100&sort=name&q="+l.prefix,
		post+"/thread?limit=500&depth=10",
		post+"/thread?limit=500&depth=10&sort=top",
		post+"/comments?limit=100",
		post+"/comments?limit=100&sort=top",
	)
	for _, deep := range []struct {
		path  string
		pages int
	}{
		{"/v1/posts?limit=100&sort=top", 100},
		{tag + "&sort=hot", 20},
		{author + "&sort=top", 50},
		{words, 10},
		{words + "&sort=hot", 10},
		{post + "/comments?limit=100&sort=top", 40},
		{post + "/thread?limit=500&depth=10", 10},
	} {
		cursor, err := s.deepCursor(ctx, deep.path, deep.pages)
		if err != nil {
			return nil, err
		}
		paths = append(paths, deep.path+"&cursor="+url.QueryEscape(cursor))
	}
	return paths, nil
}

// deepCursor returns the cursor after some pages of a list.
func (s *site) deepCursor(ctx context.Context, path string, pages int) (cursor string, err error) {
	for i := range pages {
		next := path
		if cursor != "" {
			next += "&cursor=" + url.QueryEscape(cursor)
		}
		// Each page is requested from another address, because together the pages exceed the limit of one.
		client := s.client(fmt.Sprintf("127.76.%d.%d", s.walked/200, s.walked%200+1))
		s.walked++
		status, body, err := get(ctx, client, "http://"+s.api+next)
		client.CloseIdleConnections()
		if err != nil {
			return "", err
		}
		var page struct {
			NextCursor *string `json:"next_cursor"`
		}
		if status != http.StatusOK {
			return "", fmt.Errorf("page %d of %s: %d: %s", i+1, path, status, body)
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return "", err
		}
		if page.NextCursor == nil {
			return "", fmt.Errorf("%s ends after %d pages", path, i+1)
		}
		cursor = *page.NextCursor
	}
	return cursor, nil
}

// client returns a client that connects from a given loopback address.
func (s *site) client(from string) *http.Client {
	return &http.Client{
		Transport: &http.Transport{DialContext: s.dialer(from), MaxIdleConnsPerHost: attackers},
		Timeout:   30 * time.Second,
	}
}

func get(ctx context.Context, client *http.Client, address string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

func runDear(ctx context.Context, s *site, o options) ([]figure, error) {
	l, err := fillLarge(ctx, s.store, o.posts)
	if err != nil {
		return nil, err
	}
	paths, err := s.expensivePaths(ctx, l)
	if err != nil {
		return nil, err
	}
	idle, err := s.probeFor(ctx, attackFor, s.data.small)
	if err != nil {
		return nil, err
	}
	var during latencies
	var refused int
	var probeErr error
	probing, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { during, refused, probeErr = s.probe(probing, s.data.small) })
	answers, longest := s.ask(ctx, paths)
	select {
	case <-ctx.Done():
	case <-time.After(attackSettle):
	}
	stop()
	running.Wait() // so that no statement of the other client is counted
	left, err := s.statements(ctx)
	if err := errors.Join(err, probeErr, ctx.Err()); err != nil {
		return nil, err
	}
	for _, statement := range left {
		fmt.Fprintln(os.Stderr, "still runs:", statement)
	}
	worst := during.longest()
	return []figure{
		{
			"the other client",
			fmt.Sprintf(
				"max %.1f ms, p99 %.1f ms; idle max %.1f ms, p99 %.1f ms; %d of %d refused",
				milliseconds(worst),
				milliseconds(during.p99()),
				milliseconds(idle.longest()),
				milliseconds(idle.p99()),
				refused,
				len(during),
			),
			worst <= maxWait && refused == 0,
		},
		{"expensive requests", fmt.Sprintf("%s; the longest took %.1f s", answers, longest.Seconds()), true},
		{fmt.Sprintf("statements that still run %v later", attackSettle), strconv.Itoa(len(left)), len(left) == 0},
	}, nil
}

// ask sends the requests for attackFor. It returns the number of answers by status, and the longest time of a 200.
func (s *site) ask(ctx context.Context, paths []string) (answers string, longest time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, attackFor)
	defer cancel()
	client := s.client(attackFrom)
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	counts := map[string]int{}
	var turn atomic.Int64
	var running sync.WaitGroup
	for range attackers {
		running.Go(func() {
			for ctx.Err() == nil {
				path := paths[int(turn.Add(1)-1)%len(paths)]
				started := time.Now()
				status, _, err := get(ctx, client, "http://"+s.api+path)
				took, name := time.Since(started), strconv.Itoa(status)
				if err != nil && ctx.Err() != nil {
					name = "cancelled at the end"
				} else if err != nil {
					name = "broken"
				}
				mu.Lock()
				counts[name]++
				if err == nil && status == http.StatusOK {
					longest = max(longest, took)
				}
				mu.Unlock()
				if err != nil || status != http.StatusOK {
					select {
					case <-ctx.Done():
					case <-time.After(attackPause):
					}
				}
			}
		})
	}
	running.Wait()
	var words []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%d×%s", counts[name], name))
	}
	return strings.Join(words, " "), longest
}

// statements returns the statements that are running in the site's database, except its own.
func (s *site) statements(ctx context.Context) (list []string, err error) {
	rows, err := s.store.Pool().QueryContext(ctx, `
		SELECT COALESCE(info, state, command)
		FROM information_schema.processlist
		WHERE db = DATABASE()
		AND id <> CONNECTION_ID()
		AND command NOT IN ('Sleep', 'Daemon')`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, rows.Err()
}
