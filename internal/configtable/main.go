// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Command configtable writes the table of all settings into README.md, between its two markers. Run it in the root of the
// module after a change in package config; a test fails until that is done.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
)

import (
	"github.com/dubbogo/graceful/config"
)

const (
	begin = "<!-- config:begin -->\n"
	end   = "<!-- config:end -->"
)

var errNoMarkers = errors.New("the markers <!-- config:begin --> and <!-- config:end --> are missing, or stand in the wrong order")

func main() {
	for _, file := range []string{"README.md", "README_CN.md"} {
		if err := rewrite(file); err != nil {
			fmt.Fprintf(os.Stderr, "configtable: %s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

func rewrite(file string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := replace(old, table(config.Keys()))
	if errors.Is(err, errNoMarkers) && file != "README.md" {
		return nil // a translation may link to the table instead
	}
	if err != nil || bytes.Equal(text, old) {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// replace puts the table between the markers and leaves the rest as it is.
func replace(text []byte, table string) ([]byte, error) {
	before, rest, ok := bytes.Cut(text, []byte(begin))
	if !ok {
		return nil, errNoMarkers
	}
	_, after, ok := bytes.Cut(rest, []byte(end))
	if !ok {
		return nil, errNoMarkers
	}
	return bytes.Join([][]byte{before, []byte(begin), []byte(table), []byte(end), after}, nil), nil
}

func table(keys []config.Key) string {
	var b strings.Builder
	b.WriteString("| key | type | default | allowed | what it does | option |\n|---|---|---|---|---|---|\n")
	for _, k := range keys {
		fmt.Fprintf(&b, "| `%s.%s` | %s | %s | %s | %s | `config.%s` |\n", config.Prefix, k.Name, k.Type, k.Default, k.Allowed, k.Doc, k.Option)
	}
	return b.String()
}
