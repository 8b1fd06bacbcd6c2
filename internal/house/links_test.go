package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	makeCall = regexp.MustCompile("`make ([a-z-]+)")
	target   = regexp.MustCompile(`(?m)^([a-z-]+):[^=]`)
)

// Links of the pages must lead to existing files and headings, and docs/README.md must list every page.
func TestPages_linksLeadToExistingTargets(t *testing.T) {
	t.Parallel()
	for _, file := range pages(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(match[1], "#")
			to := file
			if path != "" {
				to = filepath.Join(filepath.Dir(file), path)
			}
			if !assert.FileExists(t, folderOrFile(to), "%s links to %s", file, match[1]) || anchor == "" {
				continue
			}
			assert.Contains(t, anchors(t, to), anchor, "%s links to %s", file, match[1])
		}
	}
	index, err := os.ReadFile("../../docs/README.md")
	require.NoError(t, err)
	list, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, page := range list {
		if name := filepath.Base(page); name != "README.md" {
			assert.Contains(t, string(index), "]("+name+")", "docs/README.md lists every page")
		}
	}
}

// The make targets that the pages name must exist.
func TestPages_nameMakeTargetsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	var targets []string
	for _, match := range target.FindAllStringSubmatch(string(text), -1) {
		targets = append(targets, match[1])
	}
	for _, file := range pages(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range makeCall.FindAllStringSubmatch(string(text), -1) {
			assert.Contains(t, targets, match[1], file)
		}
	}
}

// pages returns the Markdown files of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "clients/*/README.md", ".github/*.md", ".github/*/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	return files
}

// folderOrFile returns the page that shows a folder, or the file itself.
func folderOrFile(path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return filepath.Join(path, "README.md")
	}
	return path
}

// anchors returns the ids that GitHub assigns to the headings of a page.
func anchors(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var ids []string
	for _, match := range heading.FindAllStringSubmatch(string(text), -1) {
		id := strings.ToLower(match[1])
		id = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(id, "")
		ids = append(ids, strings.ReplaceAll(id, " ", "-"))
	}
	return ids
}
