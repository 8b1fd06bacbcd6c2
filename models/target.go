package models

import (
	"strconv"
	"strings"
)

// ParseTarget parses the form of Target.String. It accepts a slash in place of the colon.
func ParseTarget(text string) (Target, error) {
	kind, id, _ := strings.Cut(strings.Replace(text, "/", ":", 1), ":")
	n, err := strconv.ParseInt(id, 10, 64)
	switch t := (Target{Kind: TargetKind(kind), ID: n}); {
	case err != nil || n < 1:
	case t.Kind == KindPost, t.Kind == KindComment, t.Kind == KindDrop:
		return t, nil
	}
	return Target{}, Errorf(CodeInvalid, "%q is not a target, such as post:12, comment:7 or drop:3.", text)
}
