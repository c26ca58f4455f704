// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"math"
	"strconv"
	"strings"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/instant"
	"github.com/dubbogo/graceful/internal/wire"
)

const (
	// defaultWeight stands for a weight that is 0 or absent, which is how interface-level URLs come by default.
	defaultWeight = 100
	// grown is the age of an instance that was there before this consumer and does not say since when.
	grown = 365 * 24 * time.Hour
)

// WarmupShare returns the part of its full weight that an instance of this age gets: max(floor, (age/window)^curve),
// at most 1. A window of 0 or less is no warm-up.
func WarmupShare(age, window time.Duration, curve, floor float64) float64 {
	if window <= 0 || age >= window {
		return 1
	}
	if age <= 0 {
		return clamp01(floor)
	}
	p := float64(age) / float64(window)
	if curve != 1 {
		p = math.Pow(p, curve)
	}
	return clamp01(max(floor, p))
}

func clamp01(f float64) float64 {
	switch {
	case f >= 1:
		return 1
	case f > 0:
		return f
	default: // also NaN
		return 0
	}
}

// warmupOver tells whether warm-up has ended: the window is over and enough requests were answered, or twice the
// window is over. An instance with too little traffic must not stay new for ever.
func warmupOver(age, window time.Duration, answered uint64, requests int) bool {
	switch {
	case window <= 0:
		return true
	case age < window:
		return false
	case requests <= 0 || answered >= uint64(requests):
		return true
	default:
		return age-window >= window
	}
}

// ageOf returns how old an instance was when this consumer saw it first. One that appeared under the consumer's eyes
// is new, whatever its clock says. One that was there before is as old as it announces; where the clocks disagree so
// far that it would start in the future it is new, and where it announces nothing it is taken as warm.
func ageOf(preexisting bool, start string, timestamp int64, now time.Time) time.Duration {
	if !preexisting {
		return 0
	}
	var since time.Time
	if t, ok := wire.StartTime(start); ok {
		since = t
	} else if timestamp > 0 {
		since = time.UnixMilli(timestamp)
	} else {
		return grown
	}
	return min(max(now.Sub(since), 0), grown)
}

// ParseWarmup reads the warmup parameter of a provider record: a duration string ("90s"), or an integer, which means
// seconds when release says that the provider is dubbo-go ("dubbo-golang-3.3.2") and milliseconds otherwise (Dubbo Java).
// False: nothing valid is said, and the consumer's own window holds. 0 is valid; that instance needs no warm-up.
func ParseWarmup(value, release string) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0, false
	}
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		unit := time.Millisecond
		if strings.HasPrefix(release, "dubbo-golang") {
			unit = time.Second
		}
		if n < 0 || n > int64(grown/unit) {
			return 0, false
		}
		return time.Duration(n) * unit, true
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > grown {
		return 0, false
	}
	return d, true
}

// window returns the warm-up window of this instance.
func (l *life) window(s *Settings) time.Duration {
	if l.hasWarmup {
		return l.warmup
	}
	return s.WarmupWindow
}

// age returns how old the instance is at now.
func (l *life) age(now instant.Instant) time.Duration {
	return l.ageSeen + max(now.Sub(l.seen), 0)
}

func (l *life) warm(s *Settings, now instant.Instant) bool {
	return warmupOver(l.age(now), l.window(s), l.answered.Load(), s.WarmupRequests)
}

// Weight returns the weight of the instance at now for the weight w of its URL; 0 or less means 100. During warm-up it
// is w * max(floor, (age/window)^curve), fractional; a warm instance has its full weight. Age is by the consumer's own
// clock since it saw the instance appear, so no provider's clock can break it; see [Observation.Preexisting] for those
// that were there before.
func (e *Entry) Weight(w int64, now time.Time) float64 {
	if w <= 0 {
		w = defaultWeight
	}
	word := e.word.Load()
	if word&bitWarming == 0 {
		return float64(w)
	}
	s, l, at := e.table.settings.Load(), e.life.Load(), instant.At(now)
	if l.warm(s, at) {
		e.clear(word, bitWarming)
		return float64(w)
	}
	return float64(w) * WarmupShare(l.age(at), l.window(s), s.WarmupCurve, s.WarmupFloor)
}

// Warming tells whether warm-up is still going on: until the window is over and the number of requests was answered, at
// the latest until twice the window.
func (e *Entry) Warming(now time.Time) bool {
	word := e.word.Load()
	if word&bitWarming == 0 {
		return false
	}
	if e.life.Load().warm(e.table.settings.Load(), instant.At(now)) {
		e.clear(word, bitWarming)
		return false
	}
	return true
}
