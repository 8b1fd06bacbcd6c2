package db_test

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
	"likewise/models/accounts"
	"likewise/models/db"
)

// TestWrites_areInTransactions parses the source of the packages of models. Outside a transaction, which its functions
// call tx, the database is only read.
func TestWrites_areInTransactions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../*/*.go")
	require.NoError(t, err)
	reads := regexp.MustCompile(`^[\s(]*(SELECT|WITH)\b`)
	writes := map[string]bool{
		"Exec":        true,
		"ExecContext": true,
		"Create":      true,
		"Save":        true,
		"Update":      true,
		"Updates":     true,
		"Delete":      true,
	}
	// Functions that only read.
	readers := map[string]bool{
		"readPost": true, "postsByID": true, "readComment": true, "readRedaction": true, "readDrop": true,
		"readClaims": true, "readDelivery": true, "readDraft": true,
		"tally": true, "tallyOf": true, "shardStates": true, "tallyDrops": true, "tallyDrop": true,
		"DropsOf": true, "notAbout": true, "guard": true,
	}
	found, texts := 0, 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			statements := assigned(decl)
			ast.Inspect(decl, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				handsOn := func(arg ast.Expr) bool {
					query, ok := arg.(*ast.CallExpr)
					return outside(arg) && (!ok || called(query) != "Raw") // a query is inspected by itself
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
				if f.Sel.Name != "Raw" && f.Sel.Name != "QueryRowContext" && f.Sel.Name != "QueryContext" {
					return true
				}
				query := call.Args[0]
				if f.Sel.Name != "Raw" {
					query = call.Args[1]
				}
				for _, text := range leading(query, statements) {
					texts++
					if !reads.MatchString(text) {
						t.Errorf("%s: %q outside a transaction", set.Position(call.Pos()), text)
					}
				}
				return true
			})
		}
	}
	assert.Greater(t, found, 50, "inspected calls")
	assert.Greater(t, texts, 50, "inspected statements")
}

// assigned returns the expressions that a declaration assigns to each variable or constant in it.
func assigned(decl ast.Decl) map[string][]ast.Expr {
	values := map[string][]ast.Expr{}
	ast.Inspect(decl, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.AssignStmt:
			if len(x.Lhs) != len(x.Rhs) {
				return true
			}
			for i, name := range x.Lhs {
				if ident, ok := name.(*ast.Ident); ok {
					values[ident.Name] = append(values[ident.Name], x.Rhs[i])
				}
			}
		case *ast.ValueSpec:
			for i, name := range x.Names {
				if i < len(x.Values) {
					values[name.Name] = append(values[name.Name], x.Values[i])
				}
			}
		}
		return true
	})
	return values
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
				return of.Name == "s" && slices.Contains([]string{"db", "pool", "guarded", "Read"}, x.Sel.Name)
			}
			e = x.X
		default:
			return false
		}
	}
}

// leading returns the texts that a statement can begin with. It looks up a variable in the expressions that the
// function assigns to it; a text from elsewhere is not known.
func leading(e ast.Expr, statements map[string][]ast.Expr) []string {
	switch x := e.(type) {
	case *ast.BinaryExpr:
		return leading(x.X, statements)
	case *ast.CallExpr:
		if called(x) == "Sprintf" {
			return leading(x.Args[0], statements)
		}
	case *ast.BasicLit:
		if x.Kind == token.STRING {
			return []string{strings.Trim(x.Value, "\"`")}
		}
	case *ast.Ident:
		var texts []string
		for _, value := range statements[x.Name] {
			if _, self := value.(*ast.BinaryExpr); !self || !mentions(value, x.Name) {
				texts = append(texts, leading(value, statements)...)
			}
		}
		return texts
	}
	return nil
}

// mentions reports whether an expression contains a variable.
func mentions(e ast.Expr, name string) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		ident, ok := n.(*ast.Ident)
		found = found || ok && ident.Name == name
		return !found
	})
	return found
}

// TestDeleteSession_isRetriedAfterALockWait lets a logout wait for a lock for longer than the server allows.
func TestDeleteSession_isRetriedAfterALockWait(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	waited := make(chan struct{})
	var once sync.Once
	var waits atomic.Int64
	store, err := db.Open(
		ctx,
		testkit.Database(t)+"&innodb_lock_wait_timeout=1",
		db.Options{Retried: func(cause db.RetryCause) {
			assert.Equal(t, db.RetryLockWait, cause)
			waits.Add(1)
			once.Do(func() { close(waited) })
		}},
	)
	require.NoError(t, err)
	defer store.Close()
	session, err := accounts.New(store).CreateSession(ctx, newUser(t, store, "ada").ID)
	require.NoError(t, err)
	other, err := store.Pool().BeginTx(ctx, nil)
	require.NoError(t, err)
	defer func() { _ = other.Rollback() }()
	_, err = other.ExecContext(ctx, "UPDATE sessions SET user_agent='locked'")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- accounts.New(store).DeleteSession(ctx, models.HashToken(session)) }()
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
