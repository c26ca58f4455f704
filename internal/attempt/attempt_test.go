// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package attempt_test

import (
	"sync"
	"testing"
)

import (
	"github.com/stretchr/testify/assert"
)

import (
	"github.com/dubbogo/graceful/internal/attempt"
)

func TestLog(t *testing.T) {
	var none *attempt.Log
	assert.Empty(t, none.All())
	assert.Zero(t, none.Len())
	assert.False(t, none.Tried("a:1"))
	assert.False(t, none.OnlyNotExecutedSince(0))

	var l attempt.Log
	assert.False(t, l.OnlyNotExecutedSince(0), "nothing was tried, so nothing is known")
	l.Add("a:1", attempt.Transport)
	l.Add("b:1", attempt.NotExecuted)
	l.Add("c:1", attempt.NotExecuted)
	assert.Equal(t, 3, l.Len())
	assert.Equal(t, []attempt.Attempt{{"a:1", attempt.Transport}, {"b:1", attempt.NotExecuted}, {"c:1", attempt.NotExecuted}}, l.All())
	assert.True(t, l.Tried("a:1"))
	assert.False(t, l.Tried("d:1"))
	for n, want := range map[int]bool{-1: false, 0: false, 1: true, 2: true, 3: false, 4: false} {
		assert.Equal(t, want, l.OnlyNotExecutedSince(n), n)
	}
	l.All()[0].Addr = "x"
	assert.True(t, l.Tried("a:1"), "All is a copy")
}

func TestOnlyNotExecutedMeansIt(t *testing.T) {
	for c := attempt.Answered; c <= attempt.Canceled; c++ {
		var l attempt.Log
		l.Add("a:1", attempt.NotExecuted)
		l.Add("b:1", c)
		assert.Equal(t, c == attempt.NotExecuted, l.OnlyNotExecutedSince(0), c)
		assert.NotEqual(t, "unknown", c.String())
	}
	assert.Equal(t, "unknown", attempt.Class(99).String())
}

func TestForking(t *testing.T) {
	var l attempt.Log
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				l.Add("a:1", attempt.NotExecuted)
				l.Tried("b:1")
				l.OnlyNotExecutedSince(0)
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 400, l.Len())
}

func BenchmarkOneAttempt(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var l attempt.Log
		l.Add("10.0.0.1:20000", attempt.Answered)
	}
}
