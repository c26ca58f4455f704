// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package attempt_test

import (
	"testing"
)

import (
	"github.com/stretchr/testify/assert"
)

import (
	"github.com/dubbogo/graceful/internal/attempt"
)

func TestRetryLeavesOutWhatItTried(t *testing.T) {
	var none *attempt.Log
	assert.False(t, none.Retrying())
	assert.False(t, none.Excluded("a"))
	assert.False(t, none.Refuse("a"))

	l := new(attempt.Log)
	l.Add("before", attempt.NotExecuted)
	l.Add("a", attempt.NotExecuted)
	assert.False(t, l.Retrying())
	assert.False(t, l.Excluded("a"), "no retry is under way")
	assert.False(t, l.Refuse("a"))

	l.BeginRetry(1)
	assert.True(t, l.Retrying())
	assert.True(t, l.Excluded("a"))
	assert.False(t, l.Excluded("before"), "an attempt of an earlier call")
	assert.False(t, l.Refuse("b"))
	assert.False(t, l.Refused())
	l.Add("b", attempt.NotExecuted)
	assert.True(t, l.Refuse("b"))
	assert.True(t, l.Refused())
	assert.Equal(t, 3, l.Len(), "a refused attempt is none")
	l.Offer(3)
	l.Offer(2)
	assert.Equal(t, 3, l.Offered())

	l.EndRetry()
	assert.False(t, l.Excluded("a"))
	l.BeginRetry(99)
	assert.False(t, l.Excluded("b"))
	assert.False(t, l.Refused())
	assert.Zero(t, l.Offered())
}
