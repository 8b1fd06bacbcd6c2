package main

import (
	"database/sql"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
	"likewise/internal/testkit"
)

// keyFile writes a file with a key and a mode.
func keyFile(t *testing.T, key string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret.key")
	require.NoError(t, os.WriteFile(path, []byte(key), 0o600))
	require.NoError(t, os.Chmod(path, mode))
	return path
}

// withMail returns the flags of a worker that sends mails to the server.
func withMail(t *testing.T, server string) []string {
	t.Helper()
	return []string{
		"--smtp=" + server, "--mail-from=forum@forum.example", "--public-url=https://forum.example",
		"--secret-key-file=" + keyFile(t, strings.Repeat("k", minKey), 0o600),
	}
}

// Each flag is checked before anything starts. Errors name the flag, and never show the password.
func TestMail_flagsAreChecked(t *testing.T) {
	t.Parallel()
	env := []string{
		"LIKEWISE_MYSQL_DSN=u:of-the-database@tcp(127.0.0.1:1)/likewise", "LIKEWISE_REDIS=redis://127.0.0.1:1",
		"LIKEWISE_KAFKA=127.0.0.1:1",
	}
	good := map[string]string{
		"smtp": "smtp://forum:secret@mail.forum.example", "mail-from": "Forum <forum@forum.example>",
		"public-url": "https://forum.example", "secret-key-file": keyFile(t, strings.Repeat("k", minKey), 0o600),
	}
	for _, c := range []struct{ flag, value, says string }{
		{"smtp", "smtp://forum:secret@mail.forum.example/", "--smtp (or $LIKEWISE_SMTP) has more than a host"},
		{"smtp", "mail:secret", "--smtp (or $LIKEWISE_SMTP) does not begin with smtp:// or smtps://"},
		{"mail-from", "", "missing: --mail-from (or $LIKEWISE_MAIL_FROM), which --smtp needs"},
		{"mail-from", "forum", "--mail-from (or $LIKEWISE_MAIL_FROM): \"forum\" is not an address"},
		{"public-url", "", "missing: --public-url (or $LIKEWISE_PUBLIC_URL), which --smtp needs"},
		{"public-url", "forum.example", "--public-url (or $LIKEWISE_PUBLIC_URL): \"forum.example\" is not of the form"},
		{"secret-key-file", "", "missing: --secret-key-file (or $LIKEWISE_SECRET_KEY_FILE), which --smtp needs"},
		{"secret-key-file", "/nowhere/key", "(or $LIKEWISE_SECRET_KEY_FILE): stat /nowhere/key: no such"},
		{"secret-key-file", "/dev/null", "/dev/null is not a file"},
		{"secret-key-file", keyFile(t, strings.Repeat("k", minKey-1)+"\n", 0o600), "has fewer than 32 bytes"},
		{"secret-key-file", keyFile(t, strings.Repeat("k", maxKey+1), 0o600), "is too large for a key"},
		{"secret-key-file", keyFile(t, strings.Repeat("k", minKey), 0o604), "has the mode 0604"},
		{"secret-key-file", keyFile(t, strings.Repeat("k", minKey), 0o620), "has the mode 0620"},
	} {
		args := []string{"worker"}
		for flag, value := range good {
			if flag == c.flag {
				value = c.value
			}
			if value != "" {
				args = append(args, "--"+flag+"="+value)
			}
		}
		said := fail(t, 2, env, args...)
		assert.Contains(t, said, c.says, "%s %q", c.flag, c.value)
		assert.NotContains(t, said, "secret@", c.says)
		assert.NotContains(t, said, "mail:secret", c.says)
	}
	assert.Contains(t, fail(t, 2, env, "api", "--smtp=smtp://"), "--smtp (or $LIKEWISE_SMTP) has no host")
	assert.Contains(t, fail(t, 2, env, "api", "--smtp=smtp://mail.forum.example"), "missing: --public-url (or ")
}

func TestMail_keyIsThatOfTheFile(t *testing.T) {
	t.Parallel()
	for _, mode := range []os.FileMode{0o600, 0o400, 0o640, 0o440} { // systemd and Kubernetes use the last
		f := secretKeyFlag{keyFile(t, "\n"+strings.Repeat("k", minKey)+" \r\n", mode)}
		key, err := f.key()
		require.NoError(t, err, "%04o", mode)
		assert.Equal(t, strings.Repeat("k", minKey), string(key))
	}
}

var resetLink = regexp.MustCompile(`https?://\S+/reset\?token=(\S+)`)

// A mail goes from the row that the API writes to the recipient. The token of its link is nowhere else: neither in the
// logs of the processes nor in MySQL.
func TestMail_isSentByTheWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	post, err := servers.StartMail(t.TempDir(), servers.MailOptions{User: "forum", Password: "correct horse"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, post.Stop()) })
	s.env = append(s.env, "LIKEWISE_LOG_LEVEL=debug")
	api, url := s.api("--smtp="+post.URL(), "--public-url=https://forum.example")
	worker := s.start(append([]string{"worker"}, withMail(t, post.URL())...)...)
	s.awaitOpen()
	s.exec("INSERT INTO users (username, email, password_hash) VALUES ('ada', 'ada@example.org', '')")
	call(t, url, account{}, "POST", "/v1/auth/password-reset", obj{"email": "ada@example.org"},
		http.StatusAccepted, nil)
	var list []servers.KeptMail
	testkit.Eventually(t, patience, func() (bool, string) {
		list, err = post.Mails()
		require.NoError(t, err)
		return len(list) == 1, "no mail"
	})
	link := resetLink.FindStringSubmatch(list[0].Body)
	require.NotNil(t, link, list[0].Body)
	assert.True(t, strings.HasPrefix(link[0], "https://forum.example/reset?"))
	testkit.Eventually(t, patience, func() (bool, string) {
		return scrape(t, worker.admin())[`likewise_mails_total{outcome="sent"}`] == 1, "the mail is not recorded"
	})
	require.NotContains(t, dump(t, s.db), link[1])
	call(t, url, account{}, "POST", "/v1/auth/password-reset/confirm",
		obj{"token": link[1], "password": "three words and a number 7"}, http.StatusNoContent, nil)
	for _, p := range []*process{api, worker} {
		p.stop()
		assert.NotEmpty(t, p.stderr.String())
		for _, secret := range []string{link[1], "ada@example.org", "correct horse", "correct%20horse"} {
			assert.NotContains(t, p.stdout.String()+p.stderr.String(), secret)
		}
	}
}

// A site whose likes are direct has no worker: its cron sends the mails.
func TestMail_isSentByCronInDirectMode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	post, err := servers.StartMail(t.TempDir(), servers.MailOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, post.Stop()) })
	_, url := s.api("--likes=direct", "--smtp="+post.URL(), "--public-url=https://forum.example")
	assert.Contains(t, fail(t, 2, s.env, "cron", "--likes=direct", "--smtp="+post.URL()), "missing: --public-url")
	s.start(append([]string{"cron", "--likes=direct"}, withMail(t, post.URL())...)...)
	s.exec("INSERT INTO users (username, email, password_hash) VALUES ('ada', 'ada@example.org', '')")
	call(t, url, account{}, "POST", "/v1/auth/password-reset", obj{"email": "ada@example.org"},
		http.StatusAccepted, nil)
	testkit.Eventually(t, patience, func() (bool, string) {
		list, err := post.Mails()
		require.NoError(t, err)
		return len(list) == 1, "no mail"
	})
}

// dump returns what MySQL has of mails and links.
func dump(t *testing.T, db *sql.DB) string {
	t.Helper()
	const read = `
		SELECT CONCAT_WS(' ', kind, address, detail, outcome, failure)
		FROM mails
		UNION ALL
		SELECT CONCAT_WS(' ', token_hash, kind, address)
		FROM account_links
		UNION ALL
		SELECT CONCAT_WS(' ', kind, login_hash, user_agent, detail)
		FROM security_log`
	rows, err := db.QueryContext(t.Context(), read)
	require.NoError(t, err)
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var row []byte
		require.NoError(t, rows.Scan(&row))
		b.Write(append(row, '\n'))
	}
	require.NoError(t, rows.Err())
	require.Contains(t, b.String(), "ada@example.org")
	return b.String()
}
