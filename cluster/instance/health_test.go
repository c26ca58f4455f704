// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"fmt"
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
	"github.com/dubbogo/graceful/internal/instant"
)

// at is a moment of the tests below, in seconds.
func at(s float64) instant.Instant { return instant.Instant((1000 + s) * float64(time.Second)) }

func TestEjectionTime(t *testing.T) {
	for _, tc := range []struct {
		n           int
		base, limit time.Duration
		least, most time.Duration
	}{
		{1, time.Second, time.Minute, 500 * time.Millisecond, time.Second},
		{2, time.Second, time.Minute, time.Second, 2 * time.Second},
		{6, time.Second, time.Minute, 16 * time.Second, 32 * time.Second},
		{7, time.Second, time.Minute, 30 * time.Second, time.Minute},
		{1 << 30, time.Second, time.Minute, 30 * time.Second, time.Minute},
		{0, time.Second, time.Minute, 500 * time.Millisecond, time.Second},
		{1, time.Minute, time.Second, 500 * time.Millisecond, time.Second}, // base above the limit
		{64, time.Hour, 1<<63 - 1, 1<<62 - 1, 1<<63 - 1},                   // no overflow
		{3, 0, time.Minute, 0, 0},
		{3, time.Second, 0, 0, 0},
	} {
		assert.Equal(t, tc.least, ejectionTime(tc.n, tc.base, tc.limit, 0), "%+v", tc)
		assert.InDelta(t, float64(tc.most), float64(ejectionTime(tc.n, tc.base, tc.limit, 1)), float64(tc.most)*1e-9, "%+v", tc)
	}
}

func TestEjectionTimeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "base"))
		limit := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "limit"))
		n := rapid.IntRange(0, 100).Draw(t, "n")
		j := rapid.Float64Range(0, 0.999).Draw(t, "jitter")
		d := ejectionTime(n, base, limit, j)
		require.LessOrEqual(t, d, limit)
		require.GreaterOrEqual(t, d, min(base, limit)/2)
		require.GreaterOrEqual(t, ejectionTime(n+1, base, limit, j), d, "grows with n")
		require.GreaterOrEqual(t, ejectionTime(n, base, limit, min(1, j+0.1)), d, "grows with the draw")
	})
}

func TestExclusionsDecay(t *testing.T) {
	s := DefaultSettings()
	s.HealthyInterval = 30 * time.Second
	h := health{n: 3, settled: at(0)}
	for after, want := range map[float64]int{-5: 3, 0: 3, 29: 3, 30: 2, 59: 2, 60: 1, 90: 0, 9000: 0} {
		assert.Equal(t, want, h.exclusions(&s, at(after)), after)
	}
	h.settled = instant.Never
	assert.Equal(t, 3, h.exclusions(&s, at(9000)), "no interval is healthy while it is out")
	h.settled, s.HealthyInterval = at(0), 0
	assert.Equal(t, 3, h.exclusions(&s, at(9000)))
}

// step is one event in the life of an instance, at a second.
type step struct {
	at   float64
	do   string // fail, ok, dial, refused
	c    attempt.Class
	sent float64 // when the request was sent; 0: the moment before
	want Verdict
}

func TestHealth(t *testing.T) {
	const never = attempt.Answered
	for name, steps := range map[string][]step{
		"refused, until a dial succeeds": {
			{at: 1, do: "fail", c: attempt.NotExecuted, want: Unreachable},
			{at: 2, do: "refused", want: Unreachable},
			{at: 500, want: Unreachable},
			{at: 501, do: "dial", want: Usable},
		},
		"refused, but a request got through": {
			{at: 1, do: "fail", c: attempt.NotExecuted, want: Unreachable},
			{at: 2, do: "ok", sent: 0.5, want: Unreachable}, // sent before
			{at: 3, do: "ok", want: Usable},
		},
		"broken: time AND dial, then a trial that succeeds": {
			{at: 1, do: "fail", c: attempt.Transport, want: Ejected},
			{at: 1.9, want: Ejected},
			{at: 3, want: Ejected}, // the time is over, but nobody has dialled
			{at: 4, do: "dial", want: Trial},
			{at: 5, do: "ok", want: Usable},
		},
		"broken: a dial before the time does not shorten it": {
			{at: 1, do: "fail", c: attempt.Transport, want: Ejected},
			{at: 1.1, do: "dial", want: Ejected},
			{at: 2.1, want: Trial},
		},
		"trial fails: longer, and another dial is needed": {
			{at: 1, do: "fail", c: attempt.Timeout, want: Ejected},
			{at: 1.1, do: "dial", want: Ejected},
			{at: 2.1, want: Trial},
			{at: 3, do: "fail", c: attempt.Transport, want: Ejected},
			{at: 4.5, want: Ejected},
			{at: 4.9, do: "dial", want: Ejected},
			{at: 5, want: Trial},
		},
		"a burst is one ejection": {
			{at: 1, do: "fail", c: attempt.Transport, want: Ejected},
			{at: 1, do: "fail", c: attempt.Transport, sent: 0.1, want: Ejected},
			{at: 1.2, do: "fail", c: attempt.Transport, sent: 0.3, want: Ejected},
			{at: 1.3, do: "dial", want: Ejected},
			{at: 2.1, want: Trial}, // one second, not four
		},
		"the rest of the burst after the restoration": {
			{at: 1, do: "fail", c: attempt.Transport, want: Ejected},
			{at: 1.3, do: "dial", want: Ejected},
			{at: 2.5, do: "ok", want: Usable},
			{at: 9, do: "fail", c: attempt.Timeout, sent: 0.9, want: Usable},
			{at: 9, do: "fail", c: attempt.Timeout, want: Ejected},
		},
		"last resorts while it is ejected tell nothing new": {
			{at: 1, do: "fail", c: attempt.Transport, want: Ejected},
			{at: 1.5, do: "fail", c: attempt.Transport, want: Ejected},
			{at: 1.6, do: "dial", want: Ejected},
			{at: 2.1, want: Trial},
		},
		"a last resort that is answered restores": {
			{at: 1, do: "fail", c: attempt.Transport, want: Ejected},
			{at: 1.5, do: "ok", want: Usable},
		},
		"an answer that was under way does not restore": {
			{at: 1, do: "fail", c: attempt.Transport, want: Ejected},
			{at: 1.5, do: "ok", sent: 0.8, want: Ejected},
		},
		"ejected, then gone, then back: the time still counts": {
			{at: 1, do: "fail", c: attempt.Transport, want: Ejected},
			{at: 1.1, do: "refused", want: Unreachable},
			{at: 1.5, do: "dial", want: Ejected},
			{at: 2.1, want: Trial},
		},
		"ejected, then a last resort is refused": {
			{at: 1, do: "fail", c: attempt.Transport, want: Ejected},
			{at: 1.5, do: "fail", c: attempt.NotExecuted, want: Unreachable},
			{at: 1.6, do: "fail", c: attempt.Transport, want: Unreachable},
			{at: 3, do: "dial", want: Trial},
		},
		"refused before a dial, reported after it": {
			{at: 1, do: "fail", c: attempt.NotExecuted, want: Unreachable},
			{at: 2, do: "dial", want: Usable},
			{at: 2.1, do: "fail", c: attempt.NotExecuted, sent: 1.9, want: Usable},
			{at: 2.2, do: "fail", c: attempt.NotExecuted, want: Unreachable},
		},
		"a dial that fails without any request": {
			{at: 1, do: "refused", want: Unreachable},
			{at: 2, do: "dial", want: Usable},
		},
		"an old dial does not allow a trial": {
			{at: 1, do: "fail", c: attempt.Transport, want: Ejected},
			{at: 2, do: "dial", want: Trial},
			{at: 3, do: "fail", c: attempt.Transport, want: Ejected}, // 2 s
			{at: 6, do: "dial", want: Trial},
			{at: 7, do: "fail", c: attempt.Transport, want: Ejected}, // 4 s
			{at: 12, do: "dial", want: Trial},
			{at: 13, do: "fail", c: attempt.Transport, want: Ejected}, // 8 s
			{at: 22, do: "dial", want: Trial},
			{at: 23, do: "fail", c: attempt.Transport, want: Ejected}, // 16 s: a dial counts from 29 on
			{at: 28, do: "dial", want: Ejected},
			{at: 40, want: Ejected},
			{at: 41, do: "dial", want: Trial},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := DefaultSettings()
			var h health
			for i, st := range steps {
				now, sent := at(st.at), at(st.at-0.001)
				if st.sent != 0 {
					sent = at(st.sent)
				}
				switch st.do {
				case "fail":
					require.NotEqual(t, never, st.c)
					h, _ = h.fail(&s, st.c, sent, now, 1)
				case "ok":
					h, _ = h.succeed(sent, now)
				case "dial":
					h, _ = h.dialed(true, now)
				case "refused":
					h, _ = h.dialed(false, now)
				}
				require.Equal(t, st.want, h.verdict(&s, now, false), "step %d at %v", i, st.at)
			}
		})
	}
}

// Whatever happens in whatever order, these hold.
func TestHealthProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := DefaultSettings()
		var h health
		now := at(0)
		lastDialOK, wentOut := longAgo, longAgo
		t.Repeat(map[string]func(*rapid.T){
			"event": func(t *rapid.T) {
				now += instant.Instant(rapid.Int64Range(1, int64(20*time.Second)).Draw(t, "wait"))
				sent := now - instant.Instant(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "latency"))
				before, was := h, h.verdict(&s, now, false)
				var changed bool
				kind := rapid.SampledFrom([]string{"refused", "transport", "timeout", "ok", "dial", "dial refused"}).Draw(t, "kind")
				switch kind {
				case "refused":
					h, changed = h.fail(&s, attempt.NotExecuted, sent, now, 0.5)
				case "transport":
					h, changed = h.fail(&s, attempt.Transport, sent, now, 0.5)
				case "timeout":
					h, changed = h.fail(&s, attempt.Timeout, sent, now, 0.5)
				case "ok":
					h, changed = h.succeed(sent, now)
				case "dial":
					h, changed = h.dialed(true, now)
					lastDialOK = now
				case "dial refused":
					h, changed = h.dialed(false, now)
				}
				is := h.verdict(&s, now, false)
				if h.out() && !before.out() || h.ejected != before.ejected {
					wentOut = now
				}
				switch kind {
				case "refused", "transport", "timeout", "dial refused":
					require.True(t, h.out() || !before.out(), "failure never restores")
				case "ok":
					require.True(t, h.out() == before.out() || sent >= before.ejected && sent >= before.refused)
				case "dial":
					require.NotEqual(t, Unreachable, is)
					require.Equal(t, before.ejected, h.ejected, "a dial ends no ejection")
				}
				if was != is && is != Trial && was != Trial {
					require.True(t, changed, "%v became %v", was, is)
				}
				require.GreaterOrEqual(t, h.n, 0)
				require.LessOrEqual(t, h.n, maxExclusions)
			},
			"": func(t *rapid.T) {
				v := h.verdict(&s, now, false)
				require.Equal(t, v == Usable, !h.out())
				if v == Trial {
					require.GreaterOrEqual(t, lastDialOK, wentOut, "a trial needs a dial after the ejection")
					require.GreaterOrEqual(t, now, h.until)
				}
				require.NotEqual(t, Trial, h.verdict(&s, now, true), "one at a time")
				due := h.nextDial(&s)
				if v == Usable || v == Trial {
					require.Equal(t, instant.Never, due)
				}
				if v == Unreachable || v == Ejected && now >= h.until {
					require.NotEqual(t, instant.Never, due, "the way back")
				}
				if due != instant.Never {
					require.LessOrEqual(t, due.Sub(max(h.lastDial, h.refused, h.ejected)), max(s.DialInterval, h.until.Sub(h.ejected)), "never later than it has to be")
				}
			},
		})
	})
}

func TestDialTimes(t *testing.T) {
	s := DefaultSettings()
	var h health
	assert.Equal(t, instant.Never, h.nextDial(&s))

	h, _ = health{}.fail(&s, attempt.NotExecuted, at(0), at(0), 1)
	assert.Equal(t, at(1), h.nextDial(&s), "the first dial comes with the end of the first ejection")
	var waits []float64
	now := at(1)
	for range 8 {
		h, _ = h.dialed(false, now)
		next := h.nextDial(&s)
		waits = append(waits, next.Sub(now).Seconds())
		now = next
	}
	assert.Equal(t, []float64{.25, .5, 1, 2, 4, 8, 10, 10}, waits, "doubling up to the interval")

	h, _ = health{n: 6, settled: at(-1)}.fail(&s, attempt.NotExecuted, at(0), at(0), 1)
	assert.Equal(t, at(10), h.nextDial(&s), "at the latest after the interval")

	h, _ = health{}.fail(&s, attempt.Transport, at(0), at(0), 1)
	assert.Equal(t, at(0), h.nextDial(&s), "at once: is it still there?")
	h, _ = h.dialed(true, at(0.1))
	assert.Equal(t, instant.Never, h.nextDial(&s), "ready for its trial")
	h, _ = health{n: 6, settled: at(-1)}.fail(&s, attempt.Transport, at(0), at(0), 1)
	assert.Equal(t, at(50), h.nextDial(&s), "one interval before the trial")
}

func TestTrying(t *testing.T) {
	for _, tc := range []struct {
		claimed  instant.Instant
		after    float64
		inFlight int64
		want     bool
	}{
		{instant.Never, 0, 5, false},
		{at(0), 0.9, 0, true},
		{at(0), 1, 0, false}, // the balancer's choice was discarded
		{at(0), 59, 1, true},
		{at(0), 60, 1, false}, // in flight, but that may be another one
	} {
		assert.Equal(t, tc.want, trying(tc.claimed, at(tc.after), tc.inFlight, time.Minute), fmt.Sprint(tc))
	}
}

func TestVerdictString(t *testing.T) {
	for v := Usable; v <= Removed; v++ {
		assert.NotEqual(t, "unknown", v.String())
	}
	assert.Equal(t, "unknown", Verdict(99).String())
	for s := FromRegistry; s <= FromDisk; s++ {
		assert.NotEqual(t, "unknown", s.String())
	}
	assert.Equal(t, "unknown", Source(99).String())
}
