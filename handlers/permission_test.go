package handlers_test

import (
	"fmt"
	"strings"
	"testing"

	"likewise/models"
)

// security returns the security of operations with a rule, as the contract spells it.
func security(rule models.Rule) string {
	switch {
	case rule.Scope == models.NoToken:
		return "[]"
	case rule.Least == models.RoleAnonymous:
		return "[map[] map[bearer:[]]]"
	}
	return "[map[bearer:[]]]"
}

// contractPath returns a route's path as the contract spells it.
func contractPath(route string) string {
	parts := strings.Split(route, "/")
	for i, part := range parts {
		if name, ok := strings.CutPrefix(part, ":"); ok {
			parts[i] = "{" + name + "}"
		}
	}
	return strings.Join(parts, "/")
}

func TestPermissions_ofRoutesAndContractAreTheSame(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	declared, used := map[string]models.Permission{}, map[models.Permission]bool{}
	for route, p := range a.Permissions() {
		declared[contractPath(route)] = p
		used[p] = true
	}
	for p, rule := range models.Permissions() {
		if !used[p] {
			t.Errorf("no route takes the permission %s", p)
		}
		if (rule.Least >= models.RoleModerator) != strings.HasPrefix(p.String(), "admin.") {
			t.Errorf("%s is for %ss", p, rule.Least)
		}
		if strings.HasPrefix(p.String(), "admin.") && rule.Scope != models.ScopeModerate &&
			rule.Scope != models.SessionOnly {
			t.Errorf("%s does not need a token with the scope of moderators, but scope %d", p, rule.Scope)
		}
	}
	mustSpec(t).operations(func(method, path string, op node) {
		name := method + " " + path
		p := declared[name]
		if says := op.value["x-permission"]; says != p.String() {
			t.Errorf("%s: x-permission is %v in the contract and %q in routes.go", name, says, p)
		}
		if strings.HasPrefix(path, "/v1/admin/") != strings.HasPrefix(p.String(), "admin.") {
			t.Errorf("%s takes the permission %s", name, p)
		}
		rule, ok := p.Rule()
		if !ok {
			return // New reports that
		}
		// Outside of /v1 nothing needs a token, and the contract states that once for all.
		if got := fmt.Sprint(op.value["security"]); got != security(rule) {
			t.Errorf("%s: security is %s in the contract, but %s takes %s", name, got, p, security(rule))
		}
	})
}
