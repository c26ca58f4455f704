// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/config"
)

func TestReadmeHasTheTableOfTheCode(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	want, err := replace(text, table(config.Keys()))
	require.NoError(t, err)
	assert.Equal(t, string(want), string(text), "run: go run ./internal/configtable")
}

func TestTableHasOneLineForEachKey(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(table(config.Keys()), "\n"), "\n")
	require.Len(t, lines, 2+len(config.Keys()))
	for _, line := range lines {
		assert.Equal(t, 7, strings.Count(line, "|"), "a column too many or too few: %s", line)
	}
}

func TestReplaceKeepsTheRest(t *testing.T) {
	got, err := replace([]byte("above\n"+begin+"old\n"+end+"\nbelow\n"), "new\n")
	require.NoError(t, err)
	assert.Equal(t, "above\n"+begin+"new\n"+end+"\nbelow\n", string(got))

	for _, text := range []string{"", begin, end + "\n" + begin} {
		_, err := replace([]byte(text), "new\n")
		assert.ErrorIs(t, err, errNoMarkers)
	}
}
