package models_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
)

// TestWrites_areInTransactions goes through the source of the package: outside a transaction, which its functions call tx,
// the database is only read.
func TestWrites_areInTransactions(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	reads := regexp.MustCompile(`^[\s(]*(SELECT|WITH)\b`)
	writes := map[string]bool{"Exec": true, "ExecContext": true, "Create": true, "Save": true, "Update": true, "Updates": true, "Delete": true}
	readers := map[string]bool{"readPost": true, "readComment": true, "readRedaction": true, "notAbout": true, "guard": true} // they only read
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			handsOn := func(arg ast.Expr) bool {
				query, ok := arg.(*ast.CallExpr)
				return outside(arg) && (!ok || called(query) != "Raw") // a query is looked at by itself
			}
			if slices.ContainsFunc(call.Args, handsOn) && !readers[called(call)] {
				t.Errorf("%s: %s outside a transaction", set.Position(call.Pos()), called(call))
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !outside(f.X) {
				return true
			}
			found++
			if writes[f.Sel.Name] {
				t.Errorf("%s: a write outside a transaction", set.Position(call.Pos()))
			}
			if f.Sel.Name == "Raw" {
				if text, ok := leading(call.Args[0]); ok && !reads.MatchString(text) {
					t.Errorf("%s: %q outside a transaction", set.Position(call.Pos()), text)
				}
			}
			return true
		})
	}
	assert.Greater(t, found, 50, "calls that were looked at")
}

// called returns the name of the function or method that is called.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// outside reports whether an expression is the pool, or gorm's view of it.
func outside(e ast.Expr) bool {
	for {
		switch x := e.(type) {
		case *ast.CallExpr:
			e = x.Fun
		case *ast.SelectorExpr:
			if of, ok := x.X.(*ast.Ident); ok {
				return of.Name == "s" && slices.Contains([]string{"db", "pool", "guarded"}, x.Sel.Name)
			}
			e = x.X
		default:
			return false
		}
	}
}

// leading returns the text that a statement begins with, if it stands there.
func leading(e ast.Expr) (string, bool) {
	for {
		switch x := e.(type) {
		case *ast.BinaryExpr:
			e = x.X
		case *ast.BasicLit:
			return strings.Trim(x.Value, "\"`"), x.Kind == token.STRING
		default:
			return "", false
		}
	}
}

// TestDeleteSession_isRunAgainAfterALockWait lets a logout wait for a lock for longer than the server allows.
func TestDeleteSession_isRunAgainAfterALockWait(t *testing.T) {
	ctx := context.Background()
	waited := make(chan struct{})
	var once sync.Once
	var waits atomic.Int64
	store, err := models.Open(ctx, testkit.Database(t)+"&innodb_lock_wait_timeout=1", models.Options{Retried: func(cause models.RetryCause) {
		assert.Equal(t, models.RetryLockWait, cause)
		waits.Add(1)
		once.Do(func() { close(waited) })
	}})
	require.NoError(t, err)
	defer store.Close()
	session, err := store.CreateSession(ctx, newUser(t, store, "ada").ID)
	require.NoError(t, err)
	other, err := store.Pool().BeginTx(ctx, nil)
	require.NoError(t, err)
	defer func() { _ = other.Rollback() }()
	_, err = other.ExecContext(ctx, "UPDATE sessions SET user_agent='locked'")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- store.DeleteSession(ctx, models.HashToken(session)) }()
	select {
	case err := <-ended:
		t.Fatalf("the logout did not wait: %v", err)
	case <-waited:
	}
	require.NoError(t, other.Rollback())
	require.NoError(t, <-ended)
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM sessions"))
	assert.Positive(t, waits.Load())
}
