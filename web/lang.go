package web

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/text/feature/plural"
	xlang "golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/message/catalog"
)

// language is a language of the pages. The English texts are the keys of the others.
type language struct {
	name    string
	dir     string // of the text: ltr or rtl
	printer *message.Printer
	pages   map[string]*template.Template
	texts   map[string]string // translations; nil for English
	kept    *otter.Cache[commentKey, string]
}

// languageTags are those of the languages. The one of Chinese names the script, by which browsers choose a font.
var languageTags = []xlang.Tag{xlang.English, xlang.SimplifiedChinese}

// simplified is the name of Chinese in simplified characters.
const simplified = "zh-Hans"

var matcher = xlang.NewMatcher(languageTags)

func newLanguages(s *Server) ([]*language, error) {
	texts, err := newCatalog()
	if err != nil {
		return nil, err
	}
	var list []*language
	for _, tag := range languageTags {
		l := &language{name: tag.String(), dir: "ltr", printer: message.NewPrinter(tag, message.Catalog(texts))}
		if tag == xlang.SimplifiedChinese {
			l.texts = chinese
		}
		if l.kept, err = newCommentCache(); err != nil {
			return nil, err
		}
		if l.pages, err = s.parse(l); err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

func newCatalog() (catalog.Catalog, error) {
	b := catalog.NewBuilder(catalog.Fallback(xlang.English))
	for key, p := range plurals {
		form := plural.Selectf(1, "%d", plural.One, p, plural.Other, key)
		if err := b.Set(xlang.English, key, form); err != nil {
			return nil, fmt.Errorf("set the text %q: %w", key, err)
		}
	}
	for key, text := range chinese {
		if err := b.SetString(xlang.SimplifiedChinese, key, text); err != nil {
			return nil, fmt.Errorf("set the text %q: %w", key, err)
		}
	}
	return b, nil
}

// plurals has the singular of English texts with a number as their first argument.
var plurals = map[string]string{
	"%d comments":       "%d comment",
	"%d likes":          "%d like",
	"%d replies":        "%d reply",
	"%d posts":          "%d post",
	"%d new comments":   "%d new comment",
	"%d new posts":      "%d new post",
	"%d followers":      "%d follower",
	"%d left":           "%d left",
	"%d reports":        "%d report",
	"%d bytes left":     "%d byte left",
	"%d bytes too many": "%d byte too many",

	"%d bytes":                                      "%d byte",
	"Continue: %d replies":                          "Continue: %d reply",
	"on %d occasions":                               "on %d occasion",
	"Evidence of %d occasions":                      "Evidence of %d occasion",
	"Delete %d posts and comments":                  "Delete %d post or comment",
	"Void %d likes":                                 "Void %d like",
	"%d differences":                                "%d difference",
	"Repair %d differences":                         "Repair %d difference",
	"%d open gaps: the job reconcile repairs them.": "%d open gap: the job reconcile repairs it.",
	"%d dead letters wait for you.":                 "%d dead letter waits for you.",
}

// words returns the texts of scripts as JSON. Those with a number are in the singular and the plural.
func (l *language) words() (string, error) {
	texts := map[string]any{
		"mine": l.text("you like this"), "bell": l.text("Notifications"), "saved": l.text("Draft saved"),
		"request": l.text("Request"),
		"away":    l.text("The forum does not answer. Nothing that you typed is lost. Try again in a moment."),
		"apart":   l.text("This draft was changed in another place. Yours is saved beside it, as a draft of its own."),
	}
	for name, text := range map[string]string{
		"comments": "%d comments", "replies": "%d replies", "likes": "%d likes", "left": "%d left",
		"fresh": "%d new comments", "posts": "%d new posts", "room": "%d bytes left", "over": "%d bytes too many",
		"unread": "%d unread",
	} {
		texts[name] = [2]string{
			strings.Replace(l.text(text, 1), "1", "%d", 1), strings.Replace(l.text(text, 2), "2", "%d", 1),
		}
	}
	encoded, err := json.Marshal(texts)
	return string(encoded), err
}

// languageOf returns the language that the visitor has chosen, or else the one that the browser prefers.
func (s *Server) languageOf(r *http.Request) *language {
	chosen := s.cookie(r, "lang")
	for _, l := range s.languages {
		if l.name == chosen {
			return l
		}
	}
	tags, _, err := xlang.ParseAcceptLanguage(r.Header.Get("Accept-Language"))
	if err != nil {
		return s.languages[0]
	}
	_, i, _ := matcher.Match(tags...)
	return s.languages[i]
}

// text translates a text with its arguments. A text without arguments needs no printer, which takes longer than all the
// rest of a page with a hundred comments. A text that is not known, such as an error of the API, stays as it is.
func (l *language) text(text string, args ...any) string {
	if len(args) > 0 {
		return l.printer.Sprintf(text, args...)
	}
	if known, ok := l.texts[text]; ok {
		return known
	}
	return text
}

// number returns a number with its thousands apart.
func (l *language) number(n int64) string {
	if n >= 0 && n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return l.printer.Sprint(n)
}

// date returns a date with the time, in UTC.
func (l *language) date(t time.Time) string {
	if l.name == simplified {
		return t.UTC().Format("2006年1月2日 15:04 UTC")
	}
	return t.UTC().Format("2 January 2006, 15:04 UTC")
}

// ago returns the age of something that happened at t: short, because it stands in every line.
func (l *language) ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d < -time.Minute:
		return l.in(-d)
	case d < time.Minute:
		return l.text("now")
	case d < time.Hour:
		return l.text("%d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return l.text("%d h", int(d.Hours()))
	case d < 30*24*time.Hour:
		return l.text("%d d", int(d.Hours()/24))
	case t.UTC().Year() == now.UTC().Year():
		if l.name == simplified {
			return t.UTC().Format("1月2日")
		}
		return t.UTC().Format("2 Jan")
	case l.name == simplified:
		return t.UTC().Format("2006年1月")
	}
	return t.UTC().Format("Jan 2006")
}

func (l *language) in(d time.Duration) string {
	switch {
	case d < time.Hour:
		return l.text("in %d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return l.text("in %d h", int(d.Hours()))
	}
	return l.text("in %d d", int(d.Hours()/24))
}

// reason returns a reason of a report in words.
func (l *language) reason(code string) string {
	switch code {
	case "spam":
		return l.text("Spam")
	case "abuse":
		return l.text("Abuse")
	case "off_topic":
		return l.text("Off topic")
	case "illegal":
		return l.text("Illegal")
	case "other":
		return l.text("Something else")
	}
	return code
}
