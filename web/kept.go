package web

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// keptForm is a form that could not be carried out, and whose page cannot be shown again: its session has ended, or the
// API does not answer.
type keptForm struct {
	Path   string     `json:"path"`
	Values url.Values `json:"values"`
}

// keptField is a field of a form as it is shown again.
type keptField struct {
	Name, Value string
	Label       string // "" for a hidden field
	Long        bool
}

// typedFields are the fields that people type into, in the order in which they are shown again.
var typedFields = []keptField{
	{Name: "title", Label: "Title"},
	{Name: "content", Label: "Text", Long: true},
	{Name: "tags", Label: "Tags, separated by spaces"},
	{Name: "name", Label: "Name"},
	{Name: "display_name", Label: "Name"},
	{Name: "bio", Label: "About you", Long: true},
	{Name: "stock", Label: "How many are there?"},
	{Name: "ends_at", Label: "Ends (UTC), if it does"},
	{Name: "confirm_within", Label: "Minutes to confirm a claim, if it must be confirmed"},
	{Name: "url", Label: "URL"},
	{Name: "target", Label: "Number"},
	{Name: "shard", Label: "Shard"},
	{Name: "since", Label: "Since the day (UTC)"},
	{Name: "drop_id", Label: "Number of the offer; empty for all"},
	{Name: "detail", Label: "Details for the moderators", Long: true},
	{Name: "reason", Label: "Reason"},
}

// isSecret reports whether a field must not be in a page.
func isSecret(name string) bool {
	return strings.Contains(name, "password") || strings.Contains(name, "secret") || strings.Contains(name, "token") ||
		name == "code" || name == "uri" || name == "challenge"
}

func withoutSecrets(form url.Values) url.Values {
	form = maps.Clone(form)
	maps.DeleteFunc(form, func(name string, _ []string) bool { return isSecret(name) })
	return form
}

// typed reports whether somebody typed a text into a form.
func typed(form url.Values) bool {
	return slices.ContainsFunc(typedFields, func(f keptField) bool { return strings.TrimSpace(form.Get(f.Name)) != "" })
}

type keptPage struct {
	view

	Action  string
	Button  string
	Fields  []keptField
	Problem *problem // nil for a form that waited for a session
}

// showKept shows a form that was sent without a session, filled.
func (v *visit) showKept(kept string) error {
	var form keptForm
	if err := json.Unmarshal([]byte(kept), &form); err != nil || localPath(form.Path, "") == "" {
		return v.redirect("/")
	}
	v.renderKept(http.StatusOK, form, nil)
	return nil
}

// renderKept shows a form with all its fields but secrets, and the button that sent it.
func (v *visit) renderKept(status int, form keptForm, p *problem) {
	page := &keptPage{Action: form.Path, Button: buttonOf(form), Fields: keptFields(form.Values, p), Problem: p}
	page.Title = "Send it now"
	if page.Here = v.back("/"); p == nil {
		page.Here = "/"
	}
	v.render(status, "kept", page)
}

// keptFields returns the fields of a form: those with a text first. After a problem, the form may need another key.
func keptFields(form url.Values, p *problem) []keptField {
	form = withoutSecrets(form)
	if key := form.Get("key"); key != "" && p != nil {
		form["key"] = []string{keyAfter(key, p)}
	}
	var list []keptField
	for _, f := range typedFields {
		values, ok := form[f.Name]
		if f.Name == "reason" && form.Has("detail") { // of a report, whose reason was chosen
			continue
		}
		for _, f.Value = range values {
			list = append(list, f)
		}
		if ok {
			delete(form, f.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(form)) {
		for _, value := range form[name] {
			list = append(list, keptField{Name: name, Value: value})
		}
	}
	return list
}

// buttonOf returns the text of the button with which a form was sent, as far as it has to be known.
func buttonOf(form keptForm) string {
	segments := strings.Split(form.Path, "/")
	switch do := form.Values.Get("do"); {
	case do == "preview":
		return "Preview"
	case do == "retry":
		return "Send it again"
	case do == "discard":
		return "Discard it"
	case do == "repair":
		return "Repair it"
	case form.Path == "/moderate/reports/resolve":
		return manyActs["cases."+form.Values.Get("action")].Button
	case len(segments) == 5 && segments[1] == "moderate":
		return acts[strings.TrimSuffix(segments[2], "s")+"."+segments[4]].Button
	}
	return ""
}
