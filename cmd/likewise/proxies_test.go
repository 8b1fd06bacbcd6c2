package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// proxied is a site of two apis and two webs behind a real proxy, which runs a file of docs/proxies.
type proxied struct {
	*site
	listen, admin       [2]string // of the apis
	webListen, webAdmin [2]string
	apis, webs          [2]*process
	images              string
	ca                  *authority
	secure              string // port of the proxy
	api, forum          string // URLs of the API and the pages at the proxy
	plain               string // URL of the proxy without TLS; may be empty
	client              *http.Client
	users               []account
}

// The hosts of the proxy, which stand for those of its file.
const forumHost, apiHost = "127.0.0.1", "127.0.0.2"

// The address that the clients connect from, which the apis must see.
const clientAddress = "127.0.0.9"

func TestProxies(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*proxied) *exec.Cmd{
		"nginx": (*proxied).nginx,
		"caddy": (*proxied).caddy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t, run)
			p.seesClients()
			for _, at := range []string{p.api, p.forum} {
				p.takesPhotos(at)
				p.streams(at)
			}
			p.restarts()
		})
	}
}

// freePort returns a port that is free on all loopback addresses.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "0.0.0.0:0")
	require.NoError(t, err)
	defer ln.Close()
	return strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
}

func newProxied(t *testing.T, run func(*proxied) *exec.Cmd) *proxied {
	t.Helper()
	p := &proxied{site: newSite(t), images: t.TempDir(), ca: newAuthority(t, "proxies"), secure: freePort(t)}
	p.api, p.forum = "https://"+apiHost+":"+p.secure, "https://"+forumHost+":"+p.secure
	p.start("worker")
	p.users = p.accounts(60)
	port, adminPort, webPort, webAdminPort := freePort(t), freePort(t), freePort(t), freePort(t)
	for i := range p.apis {
		host := fmt.Sprintf("127.0.0.%d:", i+1)
		p.listen[i], p.admin[i] = host+port, host+adminPort
		p.webListen[i], p.webAdmin[i] = host+webPort, host+webAdminPort
		p.startBoth(i)
	}
	p.awaitOpen()
	startCommand(t, nil, run(p))
	pool := x509.NewCertPool()
	pool.AddCert(p.ca.cert)
	p.client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext:     (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(clientAddress)}}).DialContext,
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 20,
	}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(p.client.CloseIdleConnections)
	testkit.Eventually(t, patience, func() (bool, string) {
		r, err := p.send(account{}, "GET", p.api+"/healthz", nil)
		if err == nil && r.status == http.StatusOK {
			r, err = p.send(account{}, "GET", p.forum+"/", nil)
		}
		return err == nil && r.status == http.StatusOK, fmt.Sprintf("the proxy answers %s, %v", r, err)
	})
	return p
}

// startBoth starts an api and a web with the defaults of production, and waits until they serve.
func (p *proxied) startBoth(i int) {
	p.t.Helper()
	p.webs[i] = start(p.t, []string{"SSL_CERT_FILE=" + p.ca.file}, "web", "--listen="+p.webListen[i],
		"--admin-listen="+p.webAdmin[i], "--drain=5s", "--trusted-proxies=127.0.0.1", "--api="+p.api,
		"--public-url="+publicURL)
	p.apis[i] = p.start("api", "--listen="+p.listen[i], "--admin-listen="+p.admin[i], "--drain=5s", "--limits=1",
		"--trusted-proxies=127.0.0.1", "--images="+p.images, "--public-url=https://forum.example")
	p.apis[i].awaitPrint(apiAddress)
	p.webs[i].awaitPrint(webAddress)
}

// awaitRequests returns once the proxy sends requests to an api and a web that were restarted.
func (p *proxied) awaitRequests(i int) {
	p.t.Helper()
	testkit.Eventually(p.t, patience, func() (bool, string) {
		reached := func(admin, route string) bool {
			for name, value := range scrape(p.t, "http://"+admin) {
				if strings.Contains(name, `route="`+route) && value > 0 {
					return true
				}
			}
			return false
		}
		return reached(p.admin[i], "/v1/") && reached(p.webAdmin[i], "/posts/"), "no requests reach them"
	})
}

// file returns a file of docs/proxies with the addresses of this test.
func (p *proxied) file(name string, replace ...string) string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs/proxies", name))
	require.NoError(p.t, err)
	replace = append(replace, "10.0.0.11:8080", p.listen[0], "10.0.0.12:8080", p.listen[1],
		"10.0.0.11:8083", p.webListen[0], "10.0.0.12:8083", p.webListen[1])
	for i := 0; i < len(replace); i += 2 {
		require.Contains(p.t, string(text), replace[i], name)
	}
	return strings.NewReplacer(replace...).Replace(string(text))
}

// proxyProgram returns the path of a program that scripts/install-proxies.sh has unpacked.
func proxyProgram(t *testing.T, name string) string {
	t.Helper()
	cache := os.Getenv("LIKEWISE_CACHE")
	if cache == "" {
		cache = "../../.cache"
	}
	dir, err := filepath.Abs(filepath.Join(cache, "proxies"))
	require.NoError(t, err)
	path := filepath.Join(dir, name)
	require.FileExists(t, path, "run scripts/install-proxies.sh "+dir)
	return path
}

// certificate returns one for both hosts.
func (p *proxied) certificate() pair {
	return p.ca.issue(time.Now().Add(time.Hour), forumHost, apiHost)
}

func (p *proxied) nginx() *exec.Cmd {
	p.t.Helper()
	dir, cert, plain := p.t.TempDir(), p.certificate(), freePort(p.t)
	p.plain = "http://127.0.0.1:" + plain
	site := p.file("nginx.conf", "listen 80;", "listen 127.0.0.1:"+plain+";",
		"listen 443 ", "listen "+p.secure+" ",
		"server_name forum.example;", "server_name "+forumHost+";",
		"server_name api.forum.example;", "server_name "+apiHost+";",
		"/etc/ssl/forum.example.pem", cert.cert, "/etc/ssl/forum.example.key", cert.key)
	text := "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr warn;\nevents {}\n" +
		"http {\naccess_log off;\n"
	for _, name := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		text += name + "_temp_path " + filepath.Join(dir, name) + ";\n"
	}
	config := filepath.Join(dir, "nginx.conf")
	require.NoError(p.t, os.WriteFile(config, []byte(text+site+"}\n"), 0o600))
	return exec.Command(proxyProgram(p.t, "usr/sbin/nginx"), "-p", dir, "-e", "stderr", "-c", config)
}

func (p *proxied) caddy() *exec.Cmd {
	p.t.Helper()
	dir, cert := p.t.TempDir(), p.certificate()
	_, adminPort, err := net.SplitHostPort(p.admin[0])
	require.NoError(p.t, err)
	_, webAdminPort, err := net.SplitHostPort(p.webAdmin[0])
	require.NoError(p.t, err)
	tls := " {\n\ttls " + cert.cert + " " + cert.key
	site := p.file("Caddyfile", "\nforum.example {", "\n"+p.forum+tls, "\napi.forum.example {", "\n"+p.api+tls,
		"health_port 9080", "health_port "+adminPort, "health_port 9083", "health_port "+webAdminPort,
		"trusted_proxies 10.0.0.11 10.0.0.12", "trusted_proxies 127.0.0.1")
	config := filepath.Join(dir, "Caddyfile")
	text := "{\n\tadmin off\n\tauto_https off\n\tstorage file_system " + dir + "\n}\n" + site
	require.NoError(p.t, os.WriteFile(config, []byte(text), 0o600))
	return exec.Command(proxyProgram(p.t, "usr/bin/caddy"), "run", "--adapter", "caddyfile", "--config", config)
}

// do sends a request through the proxy: to the API with the token, to the pages with a session. Its X-Forwarded-For
// names another address.
func (p *proxied) do(as account, method, at, kind string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(context.Background(), method, at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	p.identify(request, as)
	request.Header.Set("X-Forwarded-For", "203.0.113.7")
	return p.client.Do(request)
}

// identify makes the request one of a user's program, or of a user's browser if it is for the pages.
func (p *proxied) identify(request *http.Request, as account) {
	forum := strings.HasPrefix(request.URL.String(), p.forum)
	if forum {
		request.Header.Set("Origin", publicURL)
	}
	switch {
	case as.token == "":
	case forum:
		request.AddCookie(&http.Cookie{Name: "__Host-session", Value: as.token})
	default:
		request.Header.Set("Authorization", "Bearer "+as.token)
	}
}

// send sends JSON, a form, or nothing, and reads the answer.
func (p *proxied) send(as account, method, at string, body any) (reply, error) {
	var text []byte
	kind := ""
	if form, ok := body.(url.Values); ok {
		kind, text = "application/x-www-form-urlencoded", []byte(form.Encode())
	} else if body != nil {
		kind = "application/json"
		var err error
		if text, err = json.Marshal(body); err != nil {
			return reply{}, err
		}
	}
	response, err := p.do(as, method, at, kind, text)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(answer)}, err
}

// seesClients checks that limits and records have the address of the client, and that pages link to https.
func (p *proxied) seesClients() {
	p.t.Helper()
	r, err := p.send(account{}, "POST", p.api+"/v1/auth/register", obj{
		"username": "visitor", "email": "visitor@example.org", "password": "a password of mine",
	})
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusCreated, r.status, "%s", r)
	assert.NotEmpty(p.t, r.header.Get("RateLimit"), "limits are on")
	r, err = p.send(account{}, "POST", p.forum+"/sign-up", url.Values{
		"username": {"newcomer"}, "email": {"newcomer@example.org"}, "password": {"a password of mine"},
	})
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusSeeOther, r.status, "%s", r)
	assert.Regexp(p.t, `^__Host-session=.+; Secure; SameSite=Lax$`, r.header.Get("Set-Cookie"))
	assert.Equal(p.t, 2, p.count("SELECT COUNT(*) FROM security_log WHERE address<>''"))
	assert.Equal(p.t, []string{clientAddress},
		p.column("SELECT DISTINCT address FROM security_log WHERE address<>''"))
	for _, api := range p.apis {
		assert.NotContains(p.t, api.stderr.String(), "X-Forwarded-For is ignored")
	}
	for _, at := range []string{p.api, p.forum} {
		r, err = p.send(account{}, "GET", at+"/v1/feeds/new", nil)
		require.NoError(p.t, err)
		assert.Contains(p.t, r.body, "https://forum.example/")
		assert.NotContains(p.t, r.body, "http://forum.example")
	}
	if p.plain != "" {
		client := http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		redirect, err := client.Get(p.plain + "/v1/posts")
		require.NoError(p.t, err)
		redirect.Body.Close()
		assert.Equal(p.t, "https://127.0.0.1/v1/posts", redirect.Header.Get("Location"))
	}
}

// takesPhotos uploads an image of several megabytes.
func (p *proxied) takesPhotos(at string) {
	p.t.Helper()
	picture := image.NewNRGBA(image.Rect(0, 0, 1000, 900))
	noise := rand.NewChaCha8([32]byte{})
	_, _ = noise.Read(picture.Pix) // it cannot fail
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "photo.png")
	require.NoError(p.t, err)
	require.NoError(p.t, png.Encode(part, picture))
	require.NoError(p.t, form.Close())
	require.Greater(p.t, body.Len(), 3<<20)
	response, err := p.do(p.users[0], "POST", at+"/v1/images", form.FormDataContentType(), body.Bytes())
	require.NoError(p.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	assert.Equal(p.t, http.StatusCreated, response.StatusCode, "%s", text)
}

// streams checks that an event of a stream arrives while the stream is open.
func (p *proxied) streams(at string) {
	p.t.Helper()
	post := p.newPost()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("%s/v1/stream?posts=%d", at, post.ID), nil)
	require.NoError(p.t, err)
	p.identify(request, p.users[2])
	client := http.Client{Transport: p.client.Transport} // without a timeout
	response, err := client.Do(request)
	require.NoError(p.t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	await := func(text string) {
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		p.t.Fatalf("the stream ends before %s: %v", text, lines.Err())
	}
	await(`"likes_count":0`)
	r, err := p.send(p.users[1], "PUT", at+post.path()+"/like", nil)
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusOK, r.status, "%s", r)
	await(`"likes_count":1`)
}

func (p *proxied) newPost() (post contentJSON) {
	p.t.Helper()
	r, err := p.send(p.users[0], "POST", p.api+"/v1/posts", obj{"title": "A post", "content": "With text."})
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusCreated, r.status, "%s", r)
	require.NoError(p.t, json.Unmarshal([]byte(r.body), &post))
	return post
}

// restarts stops and starts the api and the web of one machine after the other, under 40 requests a second, or fewer on
// a busy machine: an address may not have many unread answers. No client may notice, and no comment may be written
// twice.
func (p *proxied) restarts() {
	p.t.Helper()
	post := p.newPost()
	request := func(n int) (reply, error) {
		const kinds = 6
		if n/kinds > 120 {
			n = n/kinds*kinds + n%4 // an address may not write more than 300 comments at once
		}
		as := p.users[n/kinds%len(p.users)]
		forum := p.forum + strings.TrimPrefix(post.path(), "/v1")
		switch n % kinds {
		case 0:
			return p.send(as, "GET", p.api+"/v1/posts", nil)
		case 1:
			return p.send(account{}, "GET", p.api+post.path(), nil)
		case 2:
			return p.send(as, likeMethod(n/kinds/len(p.users)%2 == 0), p.api+post.path()+"/like", nil)
		case 3:
			return p.send(as, "GET", forum, nil)
		case 4:
			return p.send(as, "POST", forum+"/comments", url.Values{"content": {fmt.Sprintf("Form %d.", n)}})
		}
		return p.send(as, "POST", p.api+post.path()+"/comments", obj{"content": fmt.Sprintf("Comment %d.", n)})
	}
	var sent, wrong, comments atomic.Int64
	restarted := make(chan struct{})
	places := make(chan struct{}, 8) // of requests in flight
	var load sync.WaitGroup
	load.Go(func() {
		beat := time.NewTicker(time.Second / 40)
		defer beat.Stop()
		for n := 0; ; n++ {
			select {
			case <-restarted:
				return
			case <-beat.C:
			}
			select {
			case places <- struct{}{}:
			default:
				continue
			}
			load.Go(func() {
				defer func() { <-places }()
				sent.Add(1)
				r, err := request(n)
				if err != nil || r.status >= 400 {
					wrong.Add(1)
					p.t.Errorf("request %d: %v %s", n, err, r)
				}
				if r.status == http.StatusCreated || r.status == http.StatusSeeOther {
					comments.Add(1)
				}
			})
		}
	})
	for i := range p.apis {
		p.webs[i].term()
		p.apis[i].stop()
		require.Zero(p.t, p.webs[i].await())
		p.startBoth(i)
		p.awaitRequests(i) // otherwise the proxy may see the next one stop before it sees this one
	}
	close(restarted)
	load.Wait()
	p.t.Logf("%d requests, %d of them failed; %d comments", sent.Load(), wrong.Load(), comments.Load())
	assert.Greater(p.t, sent.Load(), int64(100))
	assert.EqualValues(p.t, comments.Load(), p.count("SELECT COUNT(*) FROM comments WHERE post_id=?", post.ID))
}
