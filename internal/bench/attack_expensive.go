package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	attackers    = 60
	attackFrom   = "127.77.0.1"
	attackPause  = 100 * time.Millisecond // after a refusal, so that most requests are executed
	attackSettle = time.Second            // after the attack; then all its statements must have ended

	maxWait = 100.0 // milliseconds: longest request of the other client
)

// expensivePaths returns the paths of the requests. Some have cursors deep in their lists.
func (a *attacked) expensivePaths(ctx context.Context, l large) ([]string, error) {
	words := "/v1/posts?limit=100&q=" + url.QueryEscape(l.words)
	tag, author := "/v1/posts?limit=100&tag="+l.tag, fmt.Sprintf("/v1/posts?limit=100&author=%d", l.author)
	post := postPath(l.post)
	var paths []string
	for _, sort := range []string{"new", "hot", "top", "active"} {
		paths = append(paths, tag+"&sort="+sort, words+"&sort="+sort)
	}
	paths = append(paths,
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
		{author + "&sort=top", min(50, l.authored/100-1)},
		{words, 10},
		{words + "&sort=hot", 10},
		{post + "/comments?limit=100&sort=top", 40},
		{post + "/thread?limit=500&depth=10", 10},
	} {
		cursor, err := a.deepCursor(ctx, deep.path, deep.pages)
		if err != nil {
			return nil, err
		}
		paths = append(paths, deep.path+"&cursor="+url.QueryEscape(cursor))
	}
	return paths, nil
}

// deepTries bounds how often a page is asked for that a busy database did not read in time, once a second.
const deepTries = 10

// deepCursor returns the cursor after some pages of a list.
func (a *attacked) deepCursor(ctx context.Context, path string, pages int) (cursor string, err error) {
	for i := range pages {
		next := path
		if cursor != "" {
			next += "&cursor=" + url.QueryEscape(cursor)
		}
		// Each page is requested from another address, because together the pages exceed the limit of one.
		client := a.client(fmt.Sprintf("127.76.%d.%d", a.walked/200, a.walked%200+1))
		a.walked++
		status, body, err := a.get(ctx, client, next)
		for tries := 1; status == http.StatusServiceUnavailable && tries < deepTries; tries++ {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(time.Second):
			}
			status, body, err = a.get(ctx, client, next)
		}
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

// measureExpensive sends the requests that cost the database most, from one address and without a token, to a site with
// many posts.
func (a *attacked) measureExpensive(ctx context.Context, s *Settings) ([]bounded, error) {
	l, err := fillLarge(ctx, a.store, slices.Max(s.Sizes))
	if err != nil {
		return nil, err
	}
	paths, err := a.expensivePaths(ctx, l)
	if err != nil {
		return nil, err
	}
	idle, err := a.probeAlone(ctx, a.expensive)
	if err != nil {
		return nil, err
	}
	var during probed
	var probeErr error
	probing, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { during, probeErr = a.probe(probing) })
	answers, longest := a.ask(ctx, paths)
	pause(ctx, attackSettle)
	stop()
	running.Wait() // so that no statement of the other client is counted
	left, err := a.statements(ctx)
	if err := errors.Join(err, probeErr, ctx.Err()); err != nil {
		return nil, err
	}
	for _, statement := range left {
		a.log.WarnContext(ctx, "bench found a statement that still runs", "statement", statement)
	}
	return []bounded{
		{
			Name: "the other client", Within: during.Max <= maxWait && during.refused == 0,
			Text: fmt.Sprintf("max %.1f ms, p99 %.1f ms; idle max %.1f ms, p99 %.1f ms; %d of %d refused",
				during.Max, during.P99, idle.Max, idle.P99, during.refused, during.requests),
		},
		{
			Name: "expensive requests", Within: true,
			Text: fmt.Sprintf("%s; the longest took %.1f s", answers, longest.Seconds()),
		},
		{
			Name: fmt.Sprintf("statements that still run %v later", attackSettle), Within: len(left) == 0,
			Text: strconv.Itoa(len(left)),
		},
	}, nil
}

// ask sends the requests for the length of the attack. It returns the answers, and the longest time of a 200.
func (a *attacked) ask(ctx context.Context, paths []string) (answers *tally, longest time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, a.expensive)
	defer cancel()
	client := a.client(attackFrom)
	defer client.CloseIdleConnections()
	answers = &tally{}
	var mu sync.Mutex
	var turn atomic.Int64
	var running sync.WaitGroup
	for range attackers {
		running.Go(func() {
			for ctx.Err() == nil {
				path := paths[int(turn.Add(1)-1)%len(paths)]
				began := time.Now()
				status, _, err := a.get(ctx, client, path)
				took := time.Since(began)
				switch {
				case err != nil && ctx.Err() != nil:
					answers.add("cancelled at the end")
				case err != nil:
					answers.add("broken")
				default:
					answers.add(strconv.Itoa(status))
				}
				if err == nil && status == http.StatusOK {
					mu.Lock()
					longest = max(longest, took)
					mu.Unlock()
					continue
				}
				pause(ctx, attackPause)
			}
		})
	}
	running.Wait()
	return answers, longest
}

// statements returns the statements that are running in the site's database, except its own.
func (a *attacked) statements(ctx context.Context) (list []string, err error) {
	rows, err := a.store.Pool().QueryContext(ctx, `
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
