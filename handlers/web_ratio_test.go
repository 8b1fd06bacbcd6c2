//go:build web && webbench

package handlers_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"likewise/web"
)

// What pages cost against the answers of the API that they are made from: `make bench-web` prints it. Loader, pages, API
// and servers share the machine.
func TestWebRatios(t *testing.T) {
	s := newForum(t)
	apiURL, err := url.Parse(s.api.url)
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	public := &url.URL{Scheme: "http", Host: ln.Addr().String()}
	pages, err := web.New(web.Config{API: apiURL, PublicURL: public}) // without the judge
	require.NoError(t, err)
	server := &httptest.Server{Listener: ln, Config: &http.Server{Handler: pages}}
	server.Start()
	defer server.Close()

	ada, bob := s.account(t), s.account(t)
	var id int64
	for i := range 40 {
		id = s.publish(t, ada, fmt.Sprintf("What do you think of the %dth thing that happened here?", i))
	}
	for i := range 100 {
		s.say(t, bob, id, nil, fmt.Sprintf("This is comment %d, which has *two* sentences. Here is the other one.", i))
	}
	front := "/v1/posts?limit=30&pinned=once&sort=hot"
	thread := fmt.Sprintf("/v1/posts/%d/thread?depth=5&include=post%%2Cdrops%%2Cdraft&limit=100&sort=old", id)
	s.must(t, 200, ada, "PUT", fmt.Sprintf("/v1/posts/%d/read", id), obj{})
	type load struct {
		name string
		urls []string
		as   account
	}
	loads := []load{
		{"list of the API, anonymous", []string{s.api.url + front}, account{}},
		{"front page, anonymous", []string{public.String() + "/"}, account{}},
		{"thread and account of the API, signed in", []string{s.api.url + thread, s.api.url + "/v1/me"}, ada},
		{"thread page, signed in", []string{fmt.Sprintf("%s/posts/%d", public, id)}, ada},
	}
	rates := map[string][]float64{}
	for range 3 {
		for _, l := range loads {
			rates[l.name] = append(rates[l.name], measure(t, l.urls, l.as))
		}
	}
	median := func(i int) float64 { list := slices.Sorted(slices.Values(rates[loads[i].name])); return list[1] }
	for i, l := range loads {
		t.Logf("%-42s %8.0f/s  of %.0f", l.name, median(i), rates[l.name])
	}
	t.Logf("front page against the list: %.2f", median(1)/median(0))
	t.Logf("thread page against its requests: %.2f", median(3)/median(2))
}

// measure returns how often a second 64 connections get all URLs, one after the other.
func measure(t *testing.T, urls []string, as account) float64 {
	t.Helper()
	client := &fasthttp.Client{MaxConnsPerHost: 64}
	defer client.CloseIdleConnections()
	var done atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	end := begin.Add(4 * time.Second)
	for range 64 {
		all.Go(func() {
			req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			for time.Now().Before(end) {
				for _, u := range urls {
					req.Reset()
					req.SetRequestURI(u)
					req.Header.Set("Accept-Encoding", "gzip")
					if as.Token != "" {
						req.Header.Set("Cookie", "session="+as.Token)
						if strings.Contains(u, "/v1/") {
							req.Header.Set("Authorization", "Bearer "+as.Token)
						}
					}
					if err := client.Do(req, resp); err != nil || resp.StatusCode() != http.StatusOK {
						t.Errorf("%s: %d %v", u, resp.StatusCode(), err)
						return
					}
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(begin).Seconds()
}
