package handlers_test

import (
	"fmt"
	"testing"
)

func pathOf(content any) string {
	switch c := content.(type) {
	case post:
		return fmt.Sprintf("/v1/posts/%d", c.ID)
	case comment:
		return fmt.Sprintf("/v1/comments/%d", c.ID)
	}
	panic("neither a post nor a comment")
}

var _ = testing.Short
