package stackexchange

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"likewise/models"
)

const user = `<row Id="1" CreationDate="2020-01-01T00:00:00.000" DisplayName="a"/>`

func TestScan_namesTheErrorAndItsRow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"empty":        {"", "it holds no <users>"},
		"another root": {"<posts></posts>", "it holds <posts>, not <users>"},
		"not XML":      {"Id,Name\n1,Ada\n", "it holds no <users>"},
		"HTML":         {"<html><body>404</body></html>", "it holds <html>, not <users>"},
		"cut off": {
			"<users>\n" + user + "\n<row Id=\"2\" Crea",
			"row 2 (line 3, column 17): XML syntax error",
		},
		"not closed": {
			"<users>\n" + user + "\n",
			"row 2 (line 3, column 1): XML syntax error on line 3: unexpected EOF",
		},
		"another element": {
			"<users>" + user + "<user/></users>",
			"row 2: expected a <row/>, found <user>",
		},
		"nested": {
			`<users><row Id="1" CreationDate="2020-01-01T00:00:00"><row/></row></users>`,
			"row 2: expected a <row/>, found",
		},
		"text":             {"<users>hello</users>", `row 1: expected a <row/>, found "hello"`},
		"another encoding": {`<?xml version="1.0" encoding="utf-16"?><users/>`, `encoding "utf-16" declared`},
		"endless row": {
			`<users>` + user + `<row Id="` + strings.Repeat("1", maxRow),
			"row 2: it is longer than 4 MiB",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := scan(t.Context(), strings.NewReader(c.text), "users", func(entry, int, *row) {})
			require.ErrorContains(t, err, c.want)
			require.True(t, utf8.ValidString(err.Error()))
		})
	}
}

func TestDump_leavesOutRowsThatItCannotRead(t *testing.T) {
	t.Parallel()
	for bad, want := range map[string]string{
		`<row CreationDate="2020-01-01T00:00:00.000"/>`:    "it has no Id",
		`<row Id="0" CreationDate="2020-01-01T00:00:00"/>`: `Id="0" is not a user`,
		`<row Id="9223372036854775808"/>`:                  `Id="9223372036854775808" is not a whole number`,
		`<row Id="2" CreationDate="&lol;"/>`:               `CreationDate="&lol;" is not a time`,
		`<row Id="2" CreationDate="9999-01-01T00:00:00"/>`: `"9999-01-01T00:00:00" is not a time from 1970 to 2037`,
		`<row Id="` + strings.Repeat("é",
			100) + `"/>`: `Id="éééééééééééééééééééé…" is not`,
		`<row Id="1" CreationDate="2021-01-01T00:00:00.000"/>`: "more than one row has the Id 1",
	} {
		dir := writeDump(t, map[string]string{"Users": user + "\n" + bad})
		d, err := openDump(t.Context(), dir, func(int64, int64) {})
		require.NoError(t, err, bad)
		require.NoError(t, d.Close())
		require.Len(t, d.users.rows, 1, bad)
		require.Equal(t, 1, d.unread, bad)
		require.Contains(t, d.examples[0], "Users.xml", bad)
		require.Contains(t, d.examples[0], want)
		require.True(t, utf8.ValidString(d.examples[0]))
	}
}

// A file holds what people once pasted, in every spelling. Rows after it are found at their place.
func TestScan_leavesOutWhatXMLDoesNotAllow(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		read    string
		illegal int
	}{
		"a&#x0E;b&#14;c&#x0000e;d":  {"abcd", 3},
		"a\x01\x0b\x1fb":            {"ab", 3},
		"a&#xFFFE;\uffffb&#xD800;":  {"ab", 3},
		"a&#x110000;&#99999999;b":   {"ab", 2},
		"caf\xe9 \xf0\x9f\x98":      {"caf\ufffd \ufffd\ufffd\ufffd", 4},
		"&#x41;&#66;&#x1F642;&#10;": {"AB🙂\n", 0},
		"R&D &foo; &eacute; &amp;":  {"R&D &foo; é &", 0},
		"é 日本 \U0010fffd":           {"é 日本 \U0010fffd", 0},
	} {
		text := `<users><row Id="1" Name="` + name + `"/>` + "\n" + `<row Id="2" Name="` + name + `" /></users>`
		var found []entry
		illegal, err := scan(t.Context(), strings.NewReader(text), "users", func(e entry, _ int, r *row) {
			require.Equal(t, want.read, r.optional("Name"))
			e.id = r.number("Id", 1, 2)
			found = append(found, e)
		})
		require.NoError(t, err, name)
		require.Equal(t, 2*want.illegal, illegal, name)
		require.Len(t, found, 2, name)
		path := filepath.Join(t.TempDir(), "Users.xml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		file, err := os.Open(path)
		require.NoError(t, err)
		again := table{name: "Users.xml", file: file, rows: found}
		for _, e := range found {
			r, err := again.read(e)
			require.NoError(t, err, name)
			require.Equal(t, want.read, r.optional("Name"))
			require.Equal(t, e.id, r.number("Id", 1, 2))
		}
		require.NoError(t, file.Close())
	}
}

// FuzzRow checks that every row is either refused or converted to content that the forum allows.
func FuzzRow(f *testing.F) {
	for _, seed := range []string{
		`<row Id="-1" CreationDate="2018-03-09T18:48:09.477" DisplayName="Ciro Santilli 新疆"/>`,
		`<row Id="1" PostTypeId="1" CreationDate="2018-03-12T17:00:45.567" LastEditDate="2018-03-12T18:00:45" ` +
			`Title="T" OwnerUserId="7" Body="&lt;p&gt;a&lt;sup&gt;1&lt;/sup&gt;&lt;/p&gt;"/>`,
		`<row Id="2" PostTypeId="2" ParentId="1" CreationDate="2018-03-12T17:00:45.567" ` +
			`Body="&lt;table&gt;&lt;tr&gt;&lt;td&gt;|"/>`,
		`<row Id="7" PostId="3" Score="2" Text="$\ket{0}$" CreationDate="2018-03-12T17:14:46.030" UserId="26"/>`,
		`<row Id="1" PostId="1" VoteTypeId="2" CreationDate="2018-03-12T00:00:00.000"/>`,
		`<row Id="1" Score="-5" PostId="99999999999999999999" CreationDate="0000-00-00"/>`,
	} {
		f.Add(seed)
	}
	conv := newHTMLConverter("site.stackexchange")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := xml.NewDecoder(strings.NewReader(text)).Token()
		start, ok := token.(xml.StartElement)
		if err != nil || !ok {
			return
		}
		if u, err := decodeUser(&row{attrs: start.Attr}); err == nil {
			require.NotZero(t, u.id)
			for _, name := range usernames(u.displayName, u.id) {
				require.NoError(
					t,
					models.Registration{
						Username: name,
						Email:    "a@example.org",
						Password: "difference engine",
					}.Validate(),
					name,
				)
			}
		}
		if p, err := decodePost(&row{attrs: start.Attr}); err == nil &&
			(p.kind == typeQuestion || p.kind == typeAnswer) {
			require.False(t, p.edited.Before(p.created))
			markdown, err := conv.markdown(p.body)
			if err == nil {
				text, _ := shortened(markdown)
				require.NoError(t, models.PostText{Title: title(p.title), Content: text}.Validate())
			}
		}
		if c, err := decodeComment(&row{attrs: start.Attr}); err == nil {
			require.Positive(t, c.id)
			require.GreaterOrEqual(t, c.score, int64(0))
			text, _ := shortened(c.text)
			require.NoError(t, models.CommentText{Content: text}.Validate())
		}
		if v, err := decodeVote(&row{attrs: start.Attr}); err == nil {
			require.Positive(t, v.post)
		}
	})
}
