// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"slices"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/instant"
	"github.com/dubbogo/graceful/internal/wire"
)

// View explains one instance at one moment.
type View struct {
	Addr      string
	StartID   string // "" for an instance without this module
	Seq       uint64
	FirstSeen time.Time     // by this consumer
	Age       time.Duration // what warm-up counts
	Left      time.Time     // when its registry removed it; zero while it is listed, and for direct URLs
	Direct    bool          // no registry has told of it

	Status       wire.Status
	StatusSource Source
	StatusSince  time.Time

	Verdict  Verdict
	Excluded bool      // the verdict is not Usable
	Why      string    // in words, "" if it is usable
	Since    time.Time // of the exclusion
	Until    time.Time // when it ends by itself; zero if something has to happen first
	By       string    // who said so: a Source, "requests", or "dial"

	EjectedFor attempt.Class // Answered if it is not ejected
	Ejections  int           // the multiplier n
	NextDial   time.Time     // zero if none is needed

	Warming     bool
	WarmupShare float64   // of its full weight, 1 when warm
	WarmupEnds  time.Time // at the latest; zero when warm

	InFlight    int64
	Flights     map[string]int64 // in flight per service, only those that are not 0
	Requests    uint64           // since FirstSeen
	Successes   uint64
	Failures    uint64
	LastSuccess time.Time
	LastFailure time.Time
	Latency     time.Duration // smoothed
}

// Snapshot explains every instance, ordered by address.
func (t *Table) Snapshot(now time.Time) []View {
	t.sweep(now)
	views := make([]View, 0, t.index.Len())
	t.index.Each(func(_ string, e *Entry) bool {
		views = append(views, e.View(now))
		return true
	})
	slices.SortFunc(views, func(a, b View) int { return cmp.Compare(a.Addr, b.Addr) })
	return views
}

// View explains the instance. It takes a lock, so that the parts belong together.
func (e *Entry) View(now time.Time) View {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := instant.At(now)
	s, l, h := e.table.settings.Load(), e.life.Load(), e.health.Load()
	v := View{
		Addr: e.addr, StartID: l.id, Seq: l.seq,
		FirstSeen: l.seen.Time(), Age: l.age(at), Left: l.left.Time(), Direct: l.origin == direct,
		Status: l.status, StatusSource: l.statusSource, StatusSince: l.statusSince.Time(),
		EjectedFor: e.EjectedFor(), Ejections: h.exclusions(s, at), NextDial: e.NextDial(),
		WarmupShare: 1,
		InFlight:    e.inFlight.Load(), Requests: l.requests.Load(), Successes: l.answered.Load(), Failures: l.failed.Load(),
		LastSuccess: instant.Instant(l.lastSuccess.Load()).Time(), LastFailure: instant.Instant(l.lastFailure.Load()).Time(),
		Latency: time.Duration(l.latency.Load()),
	}
	if window := l.window(s); !l.warm(s, at) {
		v.Warming = true
		v.WarmupShare = WarmupShare(v.Age, window, s.WarmupCurve, s.WarmupFloor)
		v.WarmupEnds = now.Add(2*window - v.Age)
	}
	e.flights.Each(func(service string, f *Flight) bool {
		if n := f.Count(); n != 0 {
			if v.Flights == nil {
				v.Flights = make(map[string]int64)
			}
			v.Flights[service] = n
		}
		return true
	})
	v.Verdict = e.verdict(e.word.Load(), at)
	v.Excluded = v.Verdict != Usable
	v.explain(s, l, h)
	return v
}

func (v *View) explain(s *Settings, l *life, h *health) {
	switch v.Verdict {
	case Removed:
		v.Why = "its registry has removed it; requests to it are still in flight"
		v.By = FromRegistry.String()
		v.Since = l.left.Time()
	case Draining:
		v.Why = "it announced that it leaves"
		v.By = l.statusSource.String()
		v.Since = l.statusSince.Time()
		v.Until = l.statusSince.Add(s.NoticeTime).Time()
	case Unreachable:
		v.Why = "it accepts no connection; until a dial succeeds"
		v.By = "requests"
		if h.lastDial != instant.Never && h.lastDial >= h.refused {
			v.By = "dial"
		}
		v.Since = h.refused.Time()
	case Ejected, Trial:
		v.Why = "its connections break"
		if h.cause == attempt.Timeout {
			v.Why = "its answers do not come in time"
		}
		if v.Verdict == Trial {
			v.Why += "; one request may try it"
		}
		v.By = "requests"
		v.Since = h.ejected.Time()
		v.Until = h.until.Time()
	}
}
