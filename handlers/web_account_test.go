//go:build web

package handlers_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
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

func TestWeb_changesTheUsername(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := withPassword(t, s.api)
	v := s.as(t, ada)
	s.proveAt(t, ada.Token, nil)
	d := v.see("/settings").submit("/settings/username", "username", "lovelace")
	require.Equal(t, 403, d.status, d.text())
	d.done("/settings/username", "proof_password", "correct horse").has("Saved.").has("@lovelace")
	d = v.see("/settings").submit("/settings/username", "username", "countess")
	require.Equal(t, 409, d.status, d.text())
	d.has("A username can be changed once in 30 days.").wellFormed()
	assert.Equal(t, "countess", d.form("/settings/username").Get("username"))
	for _, who := range []*guest{v, s.guest(t)} {
		for _, path := range []string{"", "/comments"} {
			d = who.see("/users/" + ada.Name + path)
			assert.Equal(t, "/users/lovelace"+path, d.url.Path)
			d.has("lovelace")
		}
	}
	mod := s.as(t, s.promoted(t, s.account(t), models.RoleModerator))
	mod.see(fmt.Sprintf("/moderate/users/%d", ada.ID)).has("formerly @" + ada.Name)
}
