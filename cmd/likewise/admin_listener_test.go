package main

import (
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Roles that run side by side with their defaults must not collide, and nobody elsewhere may read their metrics.
func TestAdminListen_isOnLoopbackAndApartByDefault(t *testing.T) {
	t.Parallel()
	checkAdminListen(t, map[string]any{
		"api": apiCmd{}, "worker": workerCmd{}, "cron": cronServeCmd{}, "web": webCmd{},
	})
}

func checkAdminListen(t *testing.T, roles map[string]any) {
	t.Helper()
	ports := map[string]string{}
	for role, command := range roles {
		field, ok := reflect.TypeOf(command).FieldByName("AdminListen")
		require.True(t, ok, role)
		host, port, err := net.SplitHostPort(field.Tag.Get("default"))
		require.NoError(t, err, role)
		assert.True(t, netip.MustParseAddr(host).IsLoopback(), role)
		assert.NotContains(t, ports, port, role)
		ports[port] = role
	}
}

func TestAdminListener_hasWhatThePublicOneHasNot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	api, url := s.api()
	for _, path := range []string{"/metrics", "/readyz"} {
		r, err := send(t, url, account{}, "GET", path, nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusNotFound, r.status, "%s on the public listener: %s", path, r)
	}
	admin := api.admin()
	awaitReady(t, admin, "ok", http.StatusOK)
	assert.Positive(t, scrape(t, admin)["likewise_http_requests_total"])
	succeed(t, nil, "healthcheck", admin+"/healthz")
	succeed(t, nil, "healthcheck", url+"/healthz")
	for _, role := range []string{"worker", "cron"} {
		awaitReady(t, s.start(role).admin(), "ok", http.StatusOK)
	}
	_, taken, err := net.SplitHostPort(admin[len("http://"):])
	require.NoError(t, err)
	assert.Contains(
		t,
		fail(t, 1, s.env, "api", "--admin-listen=127.0.0.1:"+taken),
		"--admin-listen (or $LIKEWISE_ADMIN_LISTEN)",
	)
}
