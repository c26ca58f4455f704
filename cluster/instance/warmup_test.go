// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"math"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pgregory.net/rapid"
)

import (
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/wire"
)

func TestWarmupShare(t *testing.T) {
	const w = 100 * time.Second
	for _, tc := range []struct {
		age          time.Duration
		curve, floor float64
		want         float64
	}{
		{0, 1, 0.1, 0.1},
		{-time.Hour, 1, 0.1, 0.1},
		{5 * time.Second, 1, 0.1, 0.1},
		{25 * time.Second, 1, 0.1, 0.25},
		{99 * time.Second, 1, 0.1, 0.99},
		{w, 1, 0.1, 1},
		{time.Duration(math.MaxInt64), 1, 0.1, 1},
		{50 * time.Second, 2, 0.1, 0.25},
		{50 * time.Second, 0.5, 0.1, math.Sqrt(0.5)},
		{50 * time.Second, 1, 0, 0.5},
		{0, 1, 0, 0},
		{0, 1, 2, 1},
		{50 * time.Second, math.NaN(), 0.1, 0},
	} {
		assert.InDelta(t, tc.want, WarmupShare(tc.age, w, tc.curve, tc.floor), 1e-9, "%+v", tc)
	}
	assert.Equal(t, 1.0, WarmupShare(0, 0, 1, 0.1), "no window, no warm-up")
}

func TestWarmupShareProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "window"))
		age := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(2*time.Hour)).Draw(t, "age"))
		curve := rapid.Float64Range(0.1, 10).Draw(t, "curve")
		floor := rapid.Float64Range(0, 1).Draw(t, "floor")
		share := WarmupShare(age, window, curve, floor)
		require.GreaterOrEqual(t, share, floor)
		require.LessOrEqual(t, share, 1.0)
		require.GreaterOrEqual(t, WarmupShare(age+time.Second, window, curve, floor), share, "only rises")
	})
}

func TestWarmupOver(t *testing.T) {
	const w = 10 * time.Second
	for _, tc := range []struct {
		age      time.Duration
		window   time.Duration
		answered uint64
		requests int
		want     bool
	}{
		{9 * time.Second, w, 1000, 100, false},
		{w, w, 100, 100, true},
		{w, w, 99, 100, false},
		{2*w - 1, w, 0, 100, false},
		{2 * w, w, 0, 100, true}, // at the latest
		{w, w, 0, 0, true},
		{0, 0, 0, 100, true},
		{math.MaxInt64, math.MaxInt64/2 + 1, 0, 100, false},
	} {
		assert.Equal(t, tc.want, warmupOver(tc.age, tc.window, tc.answered, tc.requests), "%+v", tc)
	}
}

func TestAgeOf(t *testing.T) {
	now := time.UnixMilli(1_700_000_100_000)
	id := func(ago time.Duration) string { return wire.NewStartID(now.Add(-ago)) }
	for name, tc := range map[string]struct {
		preexisting bool
		start       string
		timestamp   int64
		want        time.Duration
	}{
		"appeared":                         {false, id(time.Hour), 1, 0},
		"was there":                        {true, id(time.Minute), 0, time.Minute},
		"its clock is ahead":               {true, id(-time.Hour), 0, 0},
		"its clock is in the last century": {true, "1-a", 0, grown},
		"timestamp of the URL":             {true, "", now.UnixMilli() - 5000, 5 * time.Second},
		"the id wins":                      {true, id(time.Minute), now.UnixMilli() - 5000, time.Minute},
		"an id without a time":             {true, "abc", now.UnixMilli() - 5000, 5 * time.Second},
		"says nothing":                     {true, "", 0, grown},
	} {
		assert.Equal(t, tc.want, ageOf(tc.preexisting, tc.start, tc.timestamp, now), name)
	}
}

func TestParseWarmup(t *testing.T) {
	const golang, java = "dubbo-golang-3.3.2", "3.2.0"
	for _, tc := range []struct {
		value, release string
		want           time.Duration
		ok             bool
	}{
		{"600", golang, 10 * time.Minute, true},
		{"600000", java, 10 * time.Minute, true},
		{"600000", "", 10 * time.Minute, true},
		{"2m", golang, 2 * time.Minute, true},
		{"90s", java, 90 * time.Second, true},
		{" 10 ", golang, 10 * time.Second, true},
		{"0", java, 0, true},
		{"0s", java, 0, true},
		{"", golang, 0, false},
		{"-1", golang, 0, false},
		{"-1s", golang, 0, false},
		{"soon", golang, 0, false},
		{"1.5", golang, 0, false},
		{"9223372036854775807", golang, 0, false},
		{"9223372036854775808", golang, 0, false},
		{"999999h", golang, 0, false},
	} {
		d, ok := ParseWarmup(tc.value, tc.release)
		assert.Equal(t, tc.ok, ok, "%+v", tc)
		assert.Equal(t, tc.want, d, "%+v", tc)
	}
}

func FuzzParseWarmup(f *testing.F) {
	f.Add("600", "dubbo-golang-3.3.2")
	f.Add("1h30m", "")
	f.Fuzz(func(t *testing.T, value, release string) {
		d, ok := ParseWarmup(value, release)
		require.True(t, ok || d == 0)
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.LessOrEqual(t, d, grown)
	})
}

func TestWeight(t *testing.T) {
	tab := New(DefaultSettings()) // 2 m, linear, floor 0.1
	now := time.Now()
	tab.Observe("a:1", Observation{Mark: up("1-a", 1)}, now)
	e := tab.Lookup("a:1")
	for _, tc := range []struct {
		after time.Duration
		w     int64
		want  float64
	}{
		{0, 100, 10},
		{30 * time.Second, 100, 25},
		{30 * time.Second, 0, 25},
		{30 * time.Second, -7, 25},
		{30 * time.Second, 1, 0.25},
		{time.Minute, 300, 150},
		{2 * time.Minute, 100, 100},
		{3 * time.Minute, 100, 100},
	} {
		assert.InDelta(t, tc.want, e.Weight(tc.w, now.Add(tc.after)), 1e-9, "%+v", tc)
		assert.True(t, e.Warming(now.Add(tc.after)), "nothing was answered: %+v", tc)
		assert.True(t, tab.Troubled())
	}
	assert.False(t, e.Warming(now.Add(4*time.Minute)), "at twice the window it is over")
	assert.False(t, tab.Troubled())
	assert.Equal(t, 100.0, e.Weight(0, now.Add(4*time.Minute)))
}

func TestWarmByRequests(t *testing.T) {
	tab := New(DefaultSettings())
	now := time.Now()
	tab.Observe("a:1", Observation{Mark: up("1-a", 1)}, now)
	e := tab.Lookup("a:1")
	for range 100 {
		e.Begin(now)
		e.End(attempt.Answered, time.Millisecond, now.Add(time.Second))
	}
	assert.True(t, e.Warming(now.Add(2*time.Minute-1)))
	assert.False(t, e.Warming(now.Add(2*time.Minute)))
}

func TestOwnWindow(t *testing.T) {
	tab := New(DefaultSettings())
	now := time.Now()
	m := up("1-a", 1)
	m.Warmup = "10"
	tab.Observe("go:1", Observation{Mark: m, Release: "dubbo-golang-3.3.2"}, now)
	m.Warmup = "0"
	tab.Observe("warm:1", Observation{Mark: m}, now)
	m.Warmup = "never"
	tab.Observe("odd:1", Observation{Mark: m}, now)
	assert.Equal(t, 50.0, tab.Lookup("go:1").Weight(100, now.Add(5*time.Second)))
	assert.Equal(t, 100.0, tab.Lookup("warm:1").Weight(100, now))
	assert.False(t, tab.Lookup("warm:1").Warming(now))
	assert.Equal(t, 25.0, tab.Lookup("odd:1").Weight(100, now.Add(30*time.Second)), "the consumer's own")
}

// Dubbo PR 4870: a provider whose clock is ahead must not break the warm-up; nor one whose clock is behind.
func TestSkewedClocks(t *testing.T) {
	now := time.Now()
	for name, skew := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			tab := New(DefaultSettings())
			tab.Observe("a:1", Observation{Mark: up(wire.NewStartID(now.Add(skew)), 1), Timestamp: now.Add(skew).UnixMilli()}, now)
			assert.Equal(t, 10.0, tab.Lookup("a:1").Weight(100, now))
			assert.Equal(t, 50.0, tab.Lookup("a:1").Weight(100, now.Add(time.Minute)))
		})
	}
}

func TestPreexistingInstancesAreAsOldAsTheySay(t *testing.T) {
	tab := New(DefaultSettings())
	now := time.Now()
	tab.Observe("young:1", Observation{Mark: up(wire.NewStartID(now.Add(-30*time.Second)), 1), Preexisting: true}, now)
	tab.Observe("old:1", Observation{Mark: up(wire.NewStartID(now.Add(-time.Hour)), 1), Preexisting: true}, now)
	tab.Observe("java:1", Observation{Preexisting: true}, now)
	tab.Obtain("direct:1", now)
	assert.InDelta(t, 25, tab.Lookup("young:1").Weight(100, now), 0.1)
	for _, a := range []string{"old:1", "java:1", "direct:1"} {
		assert.Equal(t, 100.0, tab.Lookup(a).Weight(100, now), a)
		assert.False(t, tab.Lookup(a).Warming(now), a)
	}
}
