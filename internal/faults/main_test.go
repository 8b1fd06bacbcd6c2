package main

import (
	"testing"

	"likewise/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
