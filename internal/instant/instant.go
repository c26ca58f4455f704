// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package instant packs a time into one word, so that it fits an atomic, without losing the monotonic clock:
// a step of the wall clock must not turn "200 ms ago" into "in an hour".
package instant

import (
	"time"
)

// base is the origin. Only differences to it are kept; it never leaves the package.
var base = time.Now()

// Instant is a time as nanoseconds since an origin of this process. The zero value means never.
type Instant int64

// Never is the zero value.
const Never Instant = 0

// At packs t. The zero time is Never.
func At(t time.Time) Instant {
	if t.IsZero() {
		return Never
	}
	if d := t.Sub(base); d != 0 {
		return Instant(d)
	}
	return 1 // the origin itself, moved by a nanosecond: 0 is taken
}

// Now packs the present time.
func Now() Instant {
	if d := time.Since(base); d != 0 {
		return Instant(d)
	}
	return 1
}

// Time unpacks; Never is the zero time.
func (i Instant) Time() time.Time {
	if i == Never {
		return time.Time{}
	}
	return base.Add(time.Duration(i))
}

// Add returns the instant d later. Never stays Never.
func (i Instant) Add(d time.Duration) Instant {
	if i == Never {
		return Never
	}
	if j := i + Instant(d); j != Never {
		return j
	}
	return 1
}

// Sub returns the time from o to i.
func (i Instant) Sub(o Instant) time.Duration { return time.Duration(i - o) }
