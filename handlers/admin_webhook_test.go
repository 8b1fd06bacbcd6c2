package handlers_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/models"
	"likewise/models/webhooks"
)

type webhook struct {
	ID      int64
	URL     string
	Events  []string
	Active  bool
	Secret  string
	Version int64

	PreviousUntil *string `json:"previous_secret_until"`
}

type delivery struct {
	ID       int64
	EventID  string `json:"event_id"`
	Type     string
	ObjectID string `json:"object_id"`
	State    string
	Log      []struct{ Status *int }
}

const webhooksPath = "/v1/admin/webhooks"

func TestWebhooks_areManagedByAdmins(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.promoted(t, a.account(t), models.RoleAdmin)
	body := obj{"url": "https://hooks.example.org/in", "events": []string{"post.created", "post.deleted"}}
	key := header{"Idempotency-Key", "register it once"}
	made := read[webhook](t, a.must(t, 201, ada, "POST", webhooksPath, body, key))
	secret, ok := strings.CutPrefix(made.Secret, "whsec_")
	if bytes, err := base64.StdEncoding.DecodeString(secret); !ok || err != nil || len(bytes) != 32 {
		t.Errorf("the secret is %q", made.Secret)
	}
	again := a.must(t, 201, ada, "POST", webhooksPath, body, key)
	if read[webhook](t, again).ID != made.ID || !strings.Contains(again.String(), `"secret":null`) {
		t.Errorf("a repeated request returns %s after %+v", again, made)
	}
	path := fmt.Sprintf("%s/%d", webhooksPath, made.ID)
	list := a.must(t, 200, ada, "GET", webhooksPath, nil)
	if items := read[page[webhook]](t, list).Items; len(items) != 1 || items[0].URL != made.URL || !items[0].Active {
		t.Errorf("%+v", items)
	}
	for _, r := range []reply{list, a.must(t, 200, ada, "GET", path, nil)} {
		if strings.Contains(r.String(), secret) {
			t.Errorf("the secret is shown again: %s", r)
		}
	}

	for field, wrong := range map[string]obj{
		"url":    {"url": "http://hooks.example.org", "events": []string{"post.created"}},
		"events": {"url": "https://hooks.example.org", "events": []string{"post.read"}},
	} {
		a.refusedField(t, 422, "invalid", field, ada, "POST", webhooksPath, wrong)
	}
	a.refusedField(t, 422, "invalid", "url", ada, "POST", webhooksPath,
		obj{"url": "https://169.254.169.254/latest/meta-data", "events": []string{"post.created"}})
	a.refused(t, 428, "if_match_required", ada, "PATCH", path, obj{"active": false})
	a.refused(t, 412, "precondition_failed", ada, "PATCH", path, obj{"active": false}, header{"If-Match", `"v7"`})
	changed := read[webhook](t, a.must(t, 200, ada, "PATCH", path, obj{"events": []string{"comment.created"}},
		header{"If-Match", `"v0"`}))
	if changed.Version != 1 || changed.URL != made.URL || !slices.Equal(changed.Events, []string{"comment.created"}) {
		t.Errorf("%+v", changed)
	}
	a.must(t, 204, ada, "DELETE", path, nil)
	for method, path := range map[string]string{"GET": path, "DELETE": path, "POST": path + "/ping"} {
		a.refused(t, 404, "not_found", ada, method, path, nil)
	}
	a.refused(t, 404, "not_found", ada, "GET", path+"/deliveries", nil)
}

func TestWebhooks_rotateTheirSecrets(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.promoted(t, a.account(t), models.RoleAdmin)
	made := read[webhook](t, a.must(t, 201, ada, "POST", webhooksPath,
		obj{"url": "https://hooks.example.org/in", "events": []string{"post.created"}}))
	path := fmt.Sprintf("%s/%d", webhooksPath, made.ID)
	key := header{"Idempotency-Key", "rotate it once"}
	rotated := read[webhook](t, a.must(t, 200, ada, "POST", path+"/rotate-secret", nil, key))
	if rotated.Secret == made.Secret || !strings.HasPrefix(rotated.Secret, "whsec_") || rotated.PreviousUntil == nil {
		t.Errorf("%+v after %+v", rotated, made)
	}
	again := a.must(t, 200, ada, "POST", path+"/rotate-secret", nil, key)
	if read[webhook](t, again).ID != made.ID || !strings.Contains(again.String(), `"secret":null`) {
		t.Errorf("a repeated request returns %s after %+v", again, rotated)
	}
	a.refused(t, 409, "conflict", ada, "POST", path+"/rotate-secret", nil)
	seen := a.must(t, 200, ada, "GET", path, nil)
	if read[webhook](t, seen).PreviousUntil == nil || strings.Contains(seen.String(), "whsec_") {
		t.Errorf("%s", seen)
	}
	for range 2 {
		a.must(t, 204, ada, "DELETE", path+"/previous-secret", nil)
		if w := read[webhook](t, a.must(t, 200, ada, "GET", path, nil)); w.PreviousUntil != nil || w.Version != 2 {
			t.Errorf("%+v", w)
		}
	}
	last := read[webhook](t, a.must(t, 200, ada, "POST", path+"/rotate-secret", nil))
	if last.Secret == rotated.Secret {
		t.Error("the secret stays")
	}
	for method, path := range map[string]string{"POST": "/rotate-secret", "DELETE": "/previous-secret"} {
		a.refused(t, 404, "not_found", ada, method, webhooksPath+"/999"+path, nil)
	}
}

func TestWebhooks_showAndReplayDeliveries(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.PrivateWebhooks = true })
	ada := a.promoted(t, a.account(t), models.RoleAdmin)
	made := read[webhook](t, a.must(t, 201, ada, "POST", webhooksPath,
		obj{"url": "http://127.0.0.1:1/in", "events": []string{"post.created"}}))
	path := fmt.Sprintf("%s/%d", webhooksPath, made.ID)
	post := a.newPost(t, ada)
	key := header{"Idempotency-Key", "ping it once"}
	ping := read[delivery](t, a.must(t, 202, ada, "POST", path+"/ping", nil, key))
	if again := read[delivery](t, a.must(t, 202, ada, "POST", path+"/ping", nil, key)); again.ID != ping.ID {
		t.Errorf("%+v, and again %+v", ping, again)
	}
	list := func(query string) (got []string) {
		t.Helper()
		for _, d := range read[page[delivery]](t, a.must(t, 200, ada, "GET", path+"/deliveries"+query, nil)).Items {
			got = append(got, d.Type+" "+d.ObjectID+" "+d.State)
		}
		return got
	}
	created := fmt.Sprintf("post.created %d pending", post.ID)
	pinged := fmt.Sprintf("ping %d pending", made.ID)
	if got := list(""); !slices.Equal(got, []string{pinged, created}) {
		t.Errorf("%v", got)
	}
	first := read[page[delivery]](t, a.must(t, 200, ada, "GET", path+"/deliveries?limit=1", nil))
	if rest := list("?limit=1&cursor=" + *first.NextCursor); !slices.Equal(rest, []string{created}) {
		t.Errorf("%v", rest)
	}
	d, err := webhooks.New(a.store).DeliveryByID(t.Context(), made.ID, ping.ID)
	require.NoError(t, err)
	require.NoError(t, webhooks.New(a.store).RecordAttempt(t.Context(), made.ID, d, models.Attempt{Status: 204}, 0))
	if got := list("?state=delivered"); !slices.Equal(got, []string{fmt.Sprintf("ping %d delivered", made.ID)}) {
		t.Errorf("%v", got)
	}
	replayed := read[delivery](t, a.must(t, 202, ada, "POST",
		fmt.Sprintf("%s/deliveries/%d/replay", path, ping.ID), nil))
	if replayed.State != "pending" || replayed.EventID != ping.EventID || *replayed.Log[0].Status != 204 {
		t.Errorf("%+v", replayed)
	}
	a.refused(t, 404, "not_found", ada, "POST", path+"/deliveries/999/replay", nil)
	a.refusedField(t, 422, "invalid", "state", ada, "GET", path+"/deliveries?state=lost", nil)
	a.must(t, 200, ada, "PATCH", path, obj{"active": false}, header{"If-Match", "*"})
	a.refused(t, 409, "conflict", ada, "POST", path+"/ping", nil)
	a.refused(t, 409, "conflict", ada, "POST", fmt.Sprintf("%s/deliveries/%d/replay", path, ping.ID), nil)
}
