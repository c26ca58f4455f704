// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/instant"
)

// Verdict is what stands against sending a request to an instance.
type Verdict uint8

// The verdicts.
const (
	Usable      Verdict = iota
	Trial               // ejected, but its time is over and a dial succeeded: whoever wins TryTrial may send one request
	Ejected             // broken connections or timeouts, and not yet time for a trial
	Unreachable         // the last connection was refused; until a dial succeeds
	Draining            // it said that it leaves
	Removed             // its registry has removed it, and only requests in flight keep it listed
)

// String returns the name for logs and labels.
func (v Verdict) String() string {
	switch v {
	case Usable:
		return "usable"
	case Trial:
		return "trial"
	case Ejected:
		return "ejected"
	case Unreachable:
		return "unreachable"
	case Draining:
		return "draining"
	case Removed:
		return "removed"
	default:
		return "unknown"
	}
}

const (
	// trialClaim is how long a trial that was won may stay without its request: the balancer's choice may be discarded.
	trialClaim = time.Second
	// maxExclusions bounds n, so that the power below cannot overflow and decay ends in a reasonable time.
	maxExclusions = 16
	// firstRedial is the time after the first dial that failed; it doubles up to DialInterval.
	firstRedial = 250 * time.Millisecond
)

// health is what an instance's failures led to. It is immutable; each method returns the state that follows.
// The zero value is an instance that has never been out.
type health struct {
	n        int             // exclusions, as of settled
	settled  instant.Instant // from when on healthy intervals count; Never while out
	ejected  instant.Instant // since when; Never if it is not
	until    instant.Instant // when a trial may be made (ejected), or the first dial is due (unreachable)
	cause    attempt.Class   // of the latest exclusion
	refused  instant.Instant // since when no connection can be made; Never if it can
	lastDial instant.Instant
	dialOK   instant.Instant
	redials  int // dials in a row that failed
}

// ejectionTime returns min(limit, base*2^(n-1)) with equal jitter: half of it is fixed, the other half is drawn, so that
// consumers that ejected an instance at one moment do not come back at one moment. jitter is in [0,1).
func ejectionTime(n int, base, limit time.Duration, jitter float64) time.Duration {
	if base <= 0 || limit <= 0 {
		return 0
	}
	d := min(base, limit)
	for i := 1; i < n && d < limit; i++ {
		if d > limit/2 {
			d = limit
		} else {
			d *= 2
		}
	}
	half := d / 2
	return half + time.Duration(clamp01(jitter)*float64(d-half))
}

// exclusions returns n after decay: one less for each healthy interval since the instance was last out.
func (h *health) exclusions(s *Settings, now instant.Instant) int {
	if h.settled == instant.Never || s.HealthyInterval <= 0 {
		return h.n
	}
	passed := now.Sub(h.settled) / s.HealthyInterval
	if passed <= 0 {
		return h.n
	}
	return int(max(0, time.Duration(h.n)-passed))
}

// out tells whether the instance is left out.
func (h *health) out() bool { return h.ejected != instant.Never || h.refused != instant.Never }

// fail is the state after errors of this class that reached their limit. began is when the failing request was sent: one
// that was under way when the instance went out belongs to that exclusion, and one that was sent in spite of it before
// its time was over (a last resort) tells nothing new.
func (h health) fail(s *Settings, c attempt.Class, began, now instant.Instant, jitter float64) (health, bool) {
	if c == attempt.NotExecuted {
		if h.refused != instant.Never {
			return h, false
		}
		if h.dialOK != instant.Never && began < h.dialOK {
			return h, false // a dial succeeded after this one was sent
		}
		if h.ejected == instant.Never {
			h.n = min(h.exclusions(s, now)+1, maxExclusions)
			h.cause = c
			h.until = now.Add(ejectionTime(h.n, s.Base, s.Max, jitter))
		}
		h.refused, h.settled = now, instant.Never
		return h, true
	}
	if h.out() && (began < h.until || h.refused != instant.Never) {
		return h, false
	}
	if h.settled != instant.Never && began < h.settled {
		return h, false
	}
	h.n = min(h.exclusions(s, now)+1, maxExclusions)
	h.cause = c
	h.ejected, h.settled = now, instant.Never
	h.until = now.Add(ejectionTime(h.n, s.Base, s.Max, jitter))
	return h, true
}

// succeed is the state after an answer to a request that was sent at began. It restores, whatever the dials say, unless it was
// sent before the instance went out.
func (h health) succeed(began, now instant.Instant) (health, bool) {
	if !h.out() || began < max(h.ejectedOrMin(), h.refusedOrMin()) {
		return h, false
	}
	h.ejected, h.refused, h.until = instant.Never, instant.Never, instant.Never
	h.settled = now
	h.redials = 0
	return h, true
}

const longAgo = instant.Instant(-1 << 63)

func (h *health) ejectedOrMin() instant.Instant {
	if h.ejected == instant.Never {
		return longAgo
	}
	return h.ejected
}

func (h *health) refusedOrMin() instant.Instant {
	if h.refused == instant.Never {
		return longAgo
	}
	return h.refused
}

// dialed is the state after a dial. Success ends unreachable; an ejection it only makes ready for a trial. The result
// tells whether the instance is more, or less, usable than before.
func (h health) dialed(ok bool, now instant.Instant) (health, bool) {
	h.lastDial = now
	if !ok {
		h.redials = min(h.redials+1, 30)
		if h.refused != instant.Never {
			return h, false
		}
		h.cause = attempt.NotExecuted
		h.refused, h.settled = now, instant.Never
		return h, true
	}
	h.dialOK, h.redials = now, 0
	if h.refused == instant.Never {
		return h, false
	}
	h.refused = instant.Never
	if h.ejected == instant.Never {
		h.until, h.settled = instant.Never, now
	}
	return h, true
}

// trialReady tells whether a live request may try the instance. The dial that allows it must be recent: one interval
// before the end of the ejection at most.
func (h *health) trialReady(s *Settings, now instant.Instant) bool {
	return h.ejected != instant.Never && h.refused == instant.Never && now >= h.until && h.dialOK >= h.dialFrom(s) && h.dialOK != instant.Never
}

// dialFrom is the time from which on a dial counts for the trial.
func (h *health) dialFrom(s *Settings) instant.Instant {
	return max(h.ejected, h.until.Add(-s.dialInterval()))
}

// dialInterval is never so short that dialling becomes a loop.
func (s *Settings) dialInterval() time.Duration { return max(s.DialInterval, firstRedial) }

// nextDial returns when the next dial is due; Never while none is needed.
func (h *health) nextDial(s *Settings) instant.Instant {
	switch {
	case h.refused != instant.Never:
		if h.lastDial == instant.Never || h.lastDial < h.refused {
			due := h.refused.Add(s.dialInterval())
			if h.until != instant.Never {
				due = min(due, max(h.until, h.refused))
			}
			return due
		}
		wait := s.dialInterval()
		if h.redials < 20 {
			wait = min(wait, firstRedial<<max(h.redials-1, 0))
		}
		return h.lastDial.Add(wait)
	case h.ejected != instant.Never:
		if from := h.dialFrom(s); h.dialOK == instant.Never || h.dialOK < from {
			return from
		}
	}
	return instant.Never
}

// verdict tells what the failures say; trying is whether a trial is under way.
func (h *health) verdict(s *Settings, now instant.Instant, trying bool) Verdict {
	switch {
	case h.refused != instant.Never:
		return Unreachable
	case h.ejected == instant.Never:
		return Usable
	case !trying && h.trialReady(s, now):
		return Trial
	default:
		return Ejected
	}
}

// trying tells whether a trial that was claimed at the given time still stands. It ends with the answer to its request; a
// claim whose request never came ends by itself.
func trying(claimed, now instant.Instant, inFlight int64, limit time.Duration) bool {
	if claimed == instant.Never {
		return false
	}
	if inFlight == 0 {
		limit = trialClaim
	}
	return now.Sub(claimed) < limit
}
