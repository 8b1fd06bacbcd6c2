package handlers_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// browser opens a page of the API in headless Chromium until the test ends.
func (a *api) browser(t *testing.T, path string) context.Context {
	t.Helper()
	program, err := exec.LookPath("chromium")
	require.NoError(t, err, "make test installs the package chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.NoSandbox) // the sandbox refuses root
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, closePage := chromedp.NewContext(ctx)
	t.Cleanup(closePage)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(a.url+path)))
	return ctx
}

// visitor is a script that does what a visitor of /docs does: visit opens an operation, presses "Try it out", replaces
// the body if there is one, presses "Execute" and returns what the page then shows. Authorize enters a token.
const visitor = `
	const until = async (find) => {
		for (;;) {
			const found = find();
			if (found) return found;
			await new Promise((resolve) => setTimeout(resolve, 10));
		}
	};
	const enter = (field, text) => { // as React notices
		Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), "value").set.call(field, text);
		field.dispatchEvent(new Event("input", { bubbles: true }));
	};
	window.visit = async (operation, body) => {
		const block = await until(() => document.getElementById("operations-" + operation));
		if (!block.querySelector(".opblock-body")) block.querySelector(".opblock-summary-control").click();
		const tryIt = await until(() => block.querySelector(".try-out__btn"));
		if (!block.querySelector(".execute")) tryIt.click();
		const execute = await until(() => block.querySelector(".execute"));
		if (body) enter(await until(() => block.querySelector("textarea.body-param__text")), body);
		block.querySelector(".btn-clear")?.click();
		await until(() => !block.querySelector(".live-responses-table .response"));
		execute.click();
		const response = await until(() => block.querySelector(".live-responses-table .response"));
		return {
			Status: response.querySelector(".response-col_status").innerText.trim(),
			Body: response.querySelector(".response-col_description").innerText,
			Request: block.querySelector(".curl").innerText,
			URL: block.querySelector(".request-url pre").innerText,
		};
	};
	window.authorize = async (token) => {
		document.querySelector(".auth-wrapper .authorize").click();
		enter(await until(() => document.querySelector(".auth-container input")), token);
		document.querySelector(".auth-btn-wrapper .authorize").click();
		(await until(() => document.querySelector(".auth-btn-wrapper .btn-done"))).click();
	};`

// A visitor of /docs registers twice, logs in, authorizes, posts twice and lists, and changes nothing but the bodies.
func TestDocs_workTheSecondTime(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ctx := a.browser(t, "/docs")
	require.NoError(t, chromedp.Do(ctx, chromedp.Evaluate[chromedp.Void](visitor)))
	type shown struct{ Status, Body, Request, URL string }
	visit := func(script string) shown {
		t.Helper()
		s, err := chromedp.Run(ctx, chromedp.Evaluate[shown](script, chromedp.EvalAwaitPromise))
		require.NoError(t, err)
		return s
	}
	keys := map[string]bool{}
	created := func(s shown) {
		t.Helper()
		require.Equal(t, "201", s.Status, s.Body)
		_, key, _ := strings.Cut(s.Request, "Idempotency-Key: ")
		key, _, _ = strings.Cut(key, "'")
		assert.GreaterOrEqual(t, len(key), 16, s.Request)
		assert.False(t, keys[key], "the key %s comes twice", key)
		keys[key] = true
	}
	register := func(name string) shown {
		return visit(`visit("accounts-register", '{"username": "` + name + `", "email": "` + name +
			`@example.org", "password": "` + password + `"}')`)
	}
	created(register("ada"))
	created(register("bob"))
	taken := register("bob")
	assert.Equal(t, "409", taken.Status)

	login := visit(`visit("sessions-login", '{"login": "ada", "password": "` + password + `"}')`)
	require.Equal(t, "200", login.Status, login.Body)
	_, token, _ := strings.Cut(login.Body, `"token": "`)
	token, _, _ = strings.Cut(token, `"`)
	require.NoError(t, chromedp.Do(ctx,
		chromedp.Evaluate[chromedp.Void](`authorize("`+token+`")`, chromedp.EvalAwaitPromise)))
	for range 2 {
		created(visit(`visit("posts-createPost")`))
	}
	posts := visit(`visit("posts-listPosts")`)
	assert.Equal(t, "200", posts.Status, posts.Body)
	assert.Equal(t, a.url+"/v1/posts", posts.URL, "optional parameters are empty")
	assert.Equal(t, 2, strings.Count(posts.Body, `"comments_count"`), posts.Body)
	notifications := visit(`visit("notifications-listNotifications")`)
	assert.Equal(t, "200", notifications.Status, notifications.Body)
	assert.Equal(t, a.url+"/v1/notifications", notifications.URL)
}
