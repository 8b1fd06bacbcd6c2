package servers

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// post sends a mail with the client of the standard library.
func post(t *testing.T, m *Mail, header, body string) {
	t.Helper()
	text := strings.ReplaceAll(header+"\n\n"+body, "\n", "\r\n")
	at := strings.TrimPrefix(m.URL(), "smtp://")
	require.NoError(t, smtp.SendMail(at, nil, "forum@forum.example", []string{"ada@example.org"}, []byte(text)))
}

func TestMail_keepsEachAsAFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "mail")
	m, err := StartMail(dir, MailOptions{})
	require.NoError(t, err)
	for n := range 3 {
		post(t, m, fmt.Sprintf("Subject: Mail %d\nTo: ada@example.org", n), ".\nA line.\n")
	}
	require.NoError(t, m.Stop())
	require.NoError(t, m.Stop(), "a second time")
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 3)
	for n, file := range files {
		require.Equal(t, ".eml", filepath.Ext(file.Name()))
		info, err := file.Info()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		require.NoError(t, err)
		want := fmt.Sprintf("Subject: Mail %d\r\nTo: ada@example.org\r\n\r\n.\r\nA line.\r\n", n)
		require.Equal(t, want, string(text))
	}

	m, err = StartMail(dir, MailOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Stop()) }()
	list, err := m.Mails()
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, "Mail 2", list[2].Header.Get("Subject"))
	require.Equal(t, ".\nA line.\n", list[0].Body)
}

// The pages show what a mail says as text, whatever it is, with the links as links.
func TestMail_pages(t *testing.T) {
	m, err := StartMail(t.TempDir(), MailOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Stop()) }()
	site := httptest.NewServer(m.Pages("/dev/mail"))
	defer site.Close()
	get := func(path string) (int, string) {
		resp, err := http.Get(site.URL + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	status, text := get("/dev/mail")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "There are none yet.")

	const evil = "<script>alert(1)</script>"
	post(t, m, "Subject: =?utf-8?q?W=C3=A4hle?= "+evil+"\nTo: ada@example.org\nDate: Tue, 01 Dec 2026 10:00:00 +0000",
		evil+"\nOpen https://forum.example/reset?token=a&b=\"c or (http://forum.example/x).\njavascript:alert(1)\n")
	status, text = get("/dev/mail")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "2026-12-01 10:00:00<td>ada@example.org<td>")
	require.Contains(t, text, "Wähle &lt;script&gt;")
	require.NotContains(t, text, "<script")
	list, err := m.Mails()
	require.NoError(t, err)
	require.Contains(t, text, `href="/dev/mail/`+list[0].Name+`"`)

	status, text = get("/dev/mail/" + list[0].Name)
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, text, "<script")
	require.Equal(t, 3, strings.Count(text, "<a href="), text)
	require.Contains(t, text, `<a href="https://forum.example/reset?token=a&amp;b=" rel="noreferrer">`)
	require.Contains(t, text, `(<a href="http://forum.example/x" rel="noreferrer">http://forum.example/x</a>).`)

	secret := filepath.Join(m.dir, "..", "secret.eml")
	require.NoError(t, os.WriteFile(secret, []byte("Subject: no\r\n\r\n"), 0o600))
	for _, path := range []string{"/..%2fsecret.eml", "/%2e%2e%2fsecret.eml", "/none.eml", "/x"} {
		status, text = get("/dev/mail" + path)
		require.Equal(t, http.StatusNotFound, status, path)
		require.NotContains(t, text, "Subject", path)
	}
}
