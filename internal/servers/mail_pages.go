package servers

import (
	"html/template"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// mailsShown bounds the list of mails.
const mailsShown = 200

// Pages returns the pages of the mails below path, such as /dev/mail: a list, and each mail with its links. Nothing in
// a mail is HTML to them.
func (m *Mail) Pages(path string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { m.list(w, path) })
	mux.HandleFunc("GET "+path+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		m.show(w, path, r.PathValue("name"))
	})
	return mux
}

// mailPage is a page of the mails.
type mailPage struct {
	Path  string // of the list
	Dir   string
	Mails []shownMail
	Mail  *shownMail // nil: the list is shown
}

// shownMail is a mail as a page has it.
type shownMail struct {
	Name, Date, From, To, Subject string
	Parts                         []mailPart
}

// mailPart is text, or a link.
type mailPart struct{ Text, Link string }

func (m *Mail) list(w http.ResponseWriter, path string) {
	names, err := m.names()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	page := mailPage{Path: path, Dir: m.dir}
	for _, name := range slices.Backward(names) {
		if len(page.Mails) == mailsShown {
			break
		}
		kept, err := m.read(name)
		if err != nil {
			continue // it was deleted meanwhile
		}
		page.Mails = append(page.Mails, shown(kept))
	}
	write(w, page)
}

func (m *Mail) show(w http.ResponseWriter, path, name string) {
	names, err := m.names()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if !slices.Contains(names, name) { // so that a name cannot leave the folder
		http.Error(w, "There is no such mail.", http.StatusNotFound)
		return
	}
	kept, err := m.read(name)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	one := shown(kept)
	write(w, mailPage{Path: path, Dir: m.dir, Mail: &one})
}

func shown(kept *KeptMail) shownMail {
	field := func(name string) string {
		text, err := new(mime.WordDecoder).DecodeHeader(kept.Header.Get(name))
		if err != nil {
			return kept.Header.Get(name)
		}
		return text
	}
	s := shownMail{
		Name: kept.Name, From: field("From"), To: field("To"), Subject: field("Subject"), Parts: linked(kept.Body),
	}
	if date, err := kept.Header.Date(); err == nil {
		s.Date = date.UTC().Format(time.DateTime)
	}
	return s
}

var linkPattern = regexp.MustCompile(`https?://[^\s<>"]+`)

// linked splits a text at its links.
func linked(text string) (parts []mailPart) {
	for {
		at := linkPattern.FindStringIndex(text)
		if at == nil {
			return append(parts, mailPart{Text: text})
		}
		link := strings.TrimRight(text[at[0]:at[1]], ".,)")
		parts = append(parts, mailPart{Text: text[:at[0]]}, mailPart{Link: link})
		text = text[at[0]+len(link):]
	}
}

func write(w http.ResponseWriter, page mailPage) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	_ = mailTemplate.Execute(w, page) // the client has left
}

var mailTemplate = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
{{with .Mail}}<title>{{.Subject}}</title>
<p><a href="{{$.Path}}">Mails</a></p>
<h1>{{.Subject}}</h1>
<table>
<tr><th align="left">Date<td>{{.Date}} UTC
<tr><th align="left">From<td>{{.From}}
<tr><th align="left">To<td>{{.To}}
<tr><th align="left">File<td>{{.Name}}
</table>
<pre>{{range .Parts}}{{if .Link}}<a href="{{.Link}}" rel="noreferrer">{{.Link}}</a>{{else}}{{.Text}}{{end}}{{end}}</pre>
{{else}}<title>Mails</title>
<h1>Mails</h1>
<p>Nothing is delivered. Each mail is a file in {{.Dir}}.</p>
<table>
{{range .Mails}}<tr><td>{{.Date}}<td>{{.To}}<td><a href="{{$.Path}}/{{.Name}}">{{or .Subject "(no subject)"}}</a>
{{else}}<tr><td>There are none yet.
{{end}}</table>
{{end}}</html>
`))
