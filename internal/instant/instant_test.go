// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package instant_test

import (
	"testing"
	"testing/synctest"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
)

import (
	"github.com/dubbogo/graceful/internal/instant"
)

func TestNever(t *testing.T) {
	assert.Equal(t, instant.Never, instant.At(time.Time{}))
	assert.True(t, instant.Never.Time().IsZero())
	assert.Equal(t, instant.Never, instant.Never.Add(time.Hour))
	assert.NotEqual(t, instant.Never, instant.Instant(-5).Add(5), "a sum is a time")
}

func TestRoundTrip(t *testing.T) {
	for _, d := range []time.Duration{0, 1, -1, time.Hour, -100 * time.Hour} {
		at := time.Now().Add(d)
		i := instant.At(at)
		assert.True(t, i.Time().Equal(at))
		assert.Equal(t, at.Sub(i.Time()), time.Duration(0))
		assert.True(t, i.Add(time.Second).Time().Equal(at.Add(time.Second)))
		assert.Equal(t, time.Minute, i.Add(time.Minute).Sub(i))
	}
	wall := time.UnixMilli(1700000000123)
	assert.True(t, instant.At(wall).Time().Equal(wall), "without a monotonic reading")
}

func TestNow(t *testing.T) {
	a := instant.Now()
	b := instant.At(time.Now())
	assert.LessOrEqual(t, a, b)
	assert.WithinDuration(t, time.Now(), a.Time(), time.Minute)
}

func TestFakeClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := instant.Now()
		time.Sleep(time.Hour)
		assert.Equal(t, time.Hour, instant.Now().Sub(a))
		assert.Equal(t, instant.Now(), instant.At(time.Now()))
		assert.Zero(t, time.Since(instant.Now().Time()))
	})
}
