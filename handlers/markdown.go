package handlers

import (
	"bytes"
	"context"
	"fmt"

	"github.com/maypok86/otter/v2"
	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"

	"likewise/models"
)

// markdown renders content, GitHub's dialect, to HTML that is safe to put into a page: raw HTML is left out by the
// renderer, and what is left passes the sanitiser all the same. What was rendered is cached by version, so an edit
// needs no invalidation.
type markdown struct {
	parser goldmark.Markdown
	policy *bluemonday.Policy
	cache  *otter.Cache[markdownKey, string]
}

type markdownKey struct {
	models.Target
	version int64
}

// maxMarkdown bounds the HTML that is cached, in bytes.
const maxMarkdown = 64 << 20

func newMarkdown() (*markdown, error) {
	cache, err := otter.New(&otter.Options[markdownKey, string]{
		MaximumWeight: maxMarkdown,
		Weigher:       func(_ markdownKey, html string) uint32 { return uint32(len(html)) + 100 }, // 100 for the entry itself
	})
	if err != nil {
		return nil, fmt.Errorf("markdown cache: %w", err)
	}
	return &markdown{
		parser: goldmark.New(goldmark.WithExtensions(extension.GFM)),
		policy: bluemonday.UGCPolicy(),
		cache:  cache,
	}, nil
}

// html gives the HTML of a target's content in this version. Whoever asks for it while it is made waits for it: the
// worst content of models.MaxContent bytes (thousands of nested quotes) takes most of a second.
func (m *markdown) html(target models.Target, version int64, content string) (string, error) {
	return m.cache.Get(context.Background(), markdownKey{target, version}, otter.LoaderFunc[markdownKey, string](
		func(context.Context, markdownKey) (string, error) {
			var raw bytes.Buffer
			if err := m.parser.Convert([]byte(content), &raw); err != nil {
				return "", fmt.Errorf("render %s: %w", target, err)
			}
			return m.policy.SanitizeReader(&raw).String(), nil
		}))
}
