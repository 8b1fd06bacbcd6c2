package stackexchange

import (
	"encoding/xml"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"likewise/models"
)

func TestScan_namesTheErrorAndItsRow(t *testing.T) {
	const user = `<row Id="1" CreationDate="2020-01-01T00:00:00.000" DisplayName="a"/>`
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
		"entity":           {`<users><row Id="1" CreationDate="&lol;"/></users>`, "invalid character entity &lol;"},
		"control":          {`<users><row Id="1" DisplayName="&#1;"/></users>`, "illegal character code U+0001"},
		"no id": {
			"<users>\n<row CreationDate=\"2020-01-01T00:00:00.000\"/></users>",
			"row 1 (line 2): it has no Id",
		},
		"id 0": {`<users><row Id="0" CreationDate="2020-01-01T00:00:00"/></users>`, `Id="0" is not a user`},
		"id too big": {
			`<users><row Id="9223372036854775808"/></users>`,
			`Id="9223372036854775808" is not a whole number`,
		},
		"year 9999": {
			`<users><row Id="1" CreationDate="9999-01-01T00:00:00"/></users>`,
			`CreationDate="9999-01-01T00:00:00" is not a time from 1970 to 2037`,
		},
		"long value": {
			`<users><row Id="` + strings.Repeat("é", 100) + `"/></users>`,
			`Id="éééééééééééééééééééé…" is not`,
		},
		"endless row": {
			`<users>` + user + `<row Id="` + strings.Repeat("1", maxRow),
			"row 2: it is longer than 4 MiB",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := scan(t.Context(), strings.NewReader(c.text), "users", new(dump).addUser)
			require.ErrorContains(t, err, c.want)
			require.True(t, utf8.ValidString(err.Error()))
		})
	}
}

func TestTable_refusesDuplicateIDs(t *testing.T) {
	list := table{rows: []entry{{id: 1, created: 5}, {id: 2, created: 1}, {id: 1, created: 3}}}
	require.ErrorContains(t, list.sort(), "two rows have the Id 1")
	list = table{rows: []entry{{id: 1, created: 5}, {id: 2, created: 1}}}
	require.NoError(t, list.sort())
	require.Equal(t, int64(2), list.rows[0].id, "the oldest first")
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
				text, _ := content(markdown)
				require.NoError(t, models.PostText{Title: title(p.title), Content: text}.Validate())
			}
		}
		if c, err := decodeComment(&row{attrs: start.Attr}); err == nil {
			require.Positive(t, c.id)
			require.GreaterOrEqual(t, c.score, int64(0))
			text, _ := content(c.text)
			require.NoError(t, models.CommentText{Content: text}.Validate())
		}
		if v, err := decodeVote(&row{attrs: start.Attr}); err == nil {
			require.Positive(t, v.post)
		}
	})
}
