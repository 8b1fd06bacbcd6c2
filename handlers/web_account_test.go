//go:build web

package handlers_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A form that needs the password again keeps what was typed, asks for the password, and is carried out with it.
func TestWeb_asksForThePasswordAgain(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := withPassword(t, s.api)
	s.proveAt(t, ada.Token, nil)
	v := s.as(t, ada)
	d := v.see("/settings/tokens").submit("/settings/tokens", "name", "a bot", "scope", "read")
	require.Equal(t, 403, d.status, d.text())
	d.has("Enter your password again").has("What you typed is kept.").wellFormed()
	assert.Equal(t, "a bot", d.form("/settings/tokens").Get("name"))
	d = d.submit("/settings/tokens", "proof_password", "battery staple")
	require.Equal(t, 403, d.status, d.text())
	d.has("The password is wrong.").hasNot("shown only now").wellFormed()
	assert.NotContains(t, d.body, "battery staple")
	d.done("/settings/tokens", "proof_password", "correct horse").has("shown only now").has("a bot")
	v.see("/settings/tokens").done("/settings/tokens", "name", "b", "scope", "read").has("shown only now")
}

func TestWeb_asksForThePasswordBeforeTheArchive(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := withPassword(t, s.api)
	s.proveAt(t, ada.Token, nil)
	v := s.as(t, ada)
	v.see("/settings/data")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/v1/me/export", nil)
	require.NoError(t, err)
	req.Header.Set("Sec-Fetch-Mode", "navigate")
	req.Header.Set("Accept-Language", "zh-CN")
	d := v.open(req)
	require.Equal(t, 403, d.status, d.text())
	d.has("再次输入密码").wellFormed()
	d = d.submit("/prove", "proof_password", "battery staple")
	require.Equal(t, 403, d.status, d.text())
	d.has("The password is wrong.")
	d.done("/prove", "proof_password", "correct horse").has("It is being made.")
}
