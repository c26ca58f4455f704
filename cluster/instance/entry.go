// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"sync"
	"sync/atomic"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/drain"
	"github.com/dubbogo/graceful/internal/instant"
	"github.com/dubbogo/graceful/internal/strmap"
	"github.com/dubbogo/graceful/internal/wire"
)

// The lower bits of an entry's word say what may be wrong with it; the rest is a version that every writer raises. A
// reader that finds a bit outlived (the notice time is over, the instance is warm) clears it by compare-and-swap with the
// word that it read BEFORE it looked, so it cannot clear what a writer has just set.
const (
	bitDraining uint64 = 1 << iota
	bitHeld
	bitEjected
	bitUnreachable
	bitWarming

	bitsHidden   = bitDraining | bitHeld
	bitsVerdict  = bitsHidden | bitEjected | bitUnreachable
	bitsTroubled = bitsVerdict | bitWarming
	bitsAll      = uint64(0xff)
	versionStep  = bitsAll + 1
)

// life is the instance that an entry stands for at present. A change replaces it; its figures stay as long as it is the
// same instance.
type life struct {
	*figures
	id           string
	seq          uint64
	timestamp    int64
	status       wire.Status
	statusSource Source
	statusSince  instant.Instant
	seen         instant.Instant
	ageSeen      time.Duration // age when it was seen first
	warmup       time.Duration // its own window
	hasWarmup    bool
	origin       origin
	left         instant.Instant // when its registry removed it; Never while it is listed
}

// figures are what this consumer has experienced with one instance.
type figures struct {
	requests    atomic.Uint64
	answered    atomic.Uint64
	failed      atomic.Uint64
	streaks     atomic.Uint64 // consecutive errors per class, 16 bits each
	lastSuccess atomic.Int64  // instant.Instant
	lastFailure atomic.Int64  // instant.Instant
	latency     atomic.Int64  // EWMA in ns
}

// latencyShift makes a new sample count for an eighth, as TCP does with round-trip times.
const latencyShift = 3

func (f *figures) sample(d time.Duration) {
	old := f.latency.Load()
	next := int64(d)
	if old != 0 {
		next = old + (next-old)>>latencyShift
	}
	f.latency.CompareAndSwap(old, max(next, 1)) // losing one of two samples of the same moment does no harm
}

func streakShift(c attempt.Class) uint {
	switch c {
	case attempt.NotExecuted:
		return 0
	case attempt.Transport:
		return 16
	default:
		return 32
	}
}

// fail raises the streak of a class and returns it.
func (f *figures) fail(c attempt.Class) int {
	shift := streakShift(c)
	for {
		w := f.streaks.Load()
		n := w >> shift & 0xffff
		if n == 0xffff {
			return int(n)
		}
		if f.streaks.CompareAndSwap(w, w+1<<shift) {
			return int(n + 1)
		}
	}
}

// Entry is one address and the instance that is there. Methods are safe for concurrent use, and lock-free unless they say
// otherwise.
type Entry struct {
	addr     string
	table    *Table
	life     atomic.Pointer[life]
	health   atomic.Pointer[health]
	word     atomic.Uint64
	inFlight atomic.Int64
	trial    atomic.Int64 // instant.Instant at which a trial was claimed
	flights  strmap.Map[Flight]

	mu   sync.Mutex // serialises changes of life, health and gone
	gone gone
}

// Flight counts the requests of this consumer for one service to one instance. Begin and End take no lock.
type Flight struct {
	counter drain.Counter
}

// Begin counts a request.
func (f *Flight) Begin() { f.counter.Enter() }

// End is called when it is over.
func (f *Flight) End() { f.counter.Leave() }

// EndAt is End for who has read the clock already.
func (f *Flight) EndAt(now time.Time) { f.counter.LeaveAt(now) }

// Count returns the requests in flight.
func (f *Flight) Count() int64 { return f.counter.InFlight() }

// Zero returns a channel that closes at the first moment after this call in which no request is in flight.
func (f *Flight) Zero() <-chan struct{} { return f.counter.Zero() }

// Addr returns the address, "ip:port".
func (e *Entry) Addr() string { return e.addr }

// StartID returns the start id of the instance, "" if it has none or none is known.
func (e *Entry) StartID() string { return e.life.Load().id }

// Status returns what the instance last said of itself, who told it, and when this consumer learned it.
func (e *Entry) Status() (wire.Status, Source, time.Time) {
	l := e.life.Load()
	return l.status, l.statusSource, l.statusSince.Time()
}

// Begin counts a request that is about to be sent. Exactly one End must follow.
func (e *Entry) Begin(time.Time) {
	e.inFlight.Add(1)
	e.life.Load().requests.Add(1)
}

// InFlight returns the requests that began and have not ended, over all services.
func (e *Entry) InFlight() int64 { return e.inFlight.Load() }

// Latency returns the smoothed time of an answer, 0 before the first one.
func (e *Entry) Latency() time.Duration { return time.Duration(e.life.Load().latency.Load()) }

// End counts the outcome of a request that took latency and ended at now. It takes a lock when the request failed, or when its
// answer restores the instance. The result tells whether the instance is excluded now and was not, or the other way round.
// Outcomes of requests that were sent to a predecessor at this address change nothing.
func (e *Entry) End(c attempt.Class, latency time.Duration, now time.Time) (changed bool) {
	e.inFlight.Add(-1)
	l := e.life.Load()
	at := instant.At(now)
	began := at.Add(-max(latency, 0))
	if l.seen.Sub(began) > time.Millisecond { // two readings of a clock are not exactly one latency apart
		return false
	}
	if claimed := e.trial.Load(); claimed != 0 && began >= instant.Instant(claimed) {
		e.trial.CompareAndSwap(claimed, 0)
	}
	if e.table.troubled.Load() != 0 {
		e.table.tidy(at)
	}
	switch c {
	case attempt.Answered:
		l.answered.Add(1)
		l.lastSuccess.Store(int64(at))
		l.sample(latency)
		if l.streaks.Load() != 0 {
			l.streaks.Store(0)
		}
		if e.word.Load()&(bitEjected|bitUnreachable) == 0 {
			return false
		}
		return e.change(l, at, func(s *Settings, h health) (health, bool) { return h.succeed(began, at) })
	case attempt.NotExecuted, attempt.Transport, attempt.Timeout:
		l.failed.Add(1)
		l.lastFailure.Store(int64(at))
		return e.change(l, at, func(s *Settings, h health) (health, bool) {
			if c == attempt.NotExecuted && l.draining(s, at) {
				return h, false // it turns requests away, as it said
			}
			switch {
			case h.out():
				// Part of what excluded it, or a failed trial, which needs no second one.
			case h.settled != instant.Never && began < h.settled:
				return h, false
			default:
				if limit := s.limit(c); limit <= 0 || l.fail(c) < limit {
					return h, false
				}
				l.streaks.Store(0)
			}
			return h.fail(s, c, began, at, e.table.draw())
		})
	default:
		return false
	}
}

func (s *Settings) limit(c attempt.Class) int {
	switch c {
	case attempt.NotExecuted:
		return s.ConnectErrors
	case attempt.Transport:
		return s.TransportErrors
	case attempt.Timeout:
		return s.TimeoutErrors
	default:
		return 0
	}
}

// change applies f to the health of the instance, if it is still l, and tells the listeners when f says so.
func (e *Entry) change(l *life, now instant.Instant, f func(*Settings, health) (health, bool)) bool {
	e.mu.Lock()
	s := e.table.settings.Load()
	if e.life.Load().figures != l.figures {
		e.mu.Unlock()
		return false
	}
	old := e.health.Load()
	next, changed := f(s, *old)
	if next != *old {
		stored := next // only a change is worth an allocation
		e.health.Store(&stored)
	}
	if changed {
		e.trial.Store(0)
		e.recount(now)
	}
	e.mu.Unlock()
	if changed {
		e.table.notify(e.addr)
	}
	return changed
}

// draining tells whether the instance is left out for what it said.
func (l *life) draining(s *Settings, now instant.Instant) bool {
	return l.status == wire.Draining && now.Sub(l.statusSince) < s.NoticeTime
}

// recount sets the bits from the state. e.mu is held.
func (e *Entry) recount(now instant.Instant) {
	s, l, h := e.table.settings.Load(), e.life.Load(), e.health.Load()
	var set uint64
	if l.draining(s, now) {
		set |= bitDraining
	}
	if h.ejected != instant.Never {
		set |= bitEjected
	}
	if h.refused != instant.Never {
		set |= bitUnreachable
	}
	if !l.warm(s, now) {
		set |= bitWarming
	}
	e.mark(set, bitsTroubled&^bitHeld&^set)
}

// mark sets and clears bits. e.mu is held; readers may clear bits meanwhile.
func (e *Entry) mark(set, unset uint64) {
	for {
		old := e.word.Load()
		next := (old|set)&^unset + versionStep
		if e.word.CompareAndSwap(old, next) {
			e.table.count(old, next)
			return
		}
	}
}

// clear takes away a bit that a reader found outlived, unless the entry changed since it read word.
func (e *Entry) clear(word, bit uint64) {
	next := word&^bit + versionStep
	if e.word.CompareAndSwap(word, next) {
		e.table.count(word, next)
	}
}

// Verdict tells what stands against sending a request there now. A balancer that sends one in spite of it does so in the order
// of the constants: usable, ejected, draining; never one that is removed.
func (e *Entry) Verdict(now time.Time) Verdict {
	word := e.word.Load()
	if word&bitsVerdict == 0 {
		return Usable
	}
	return e.verdict(word, instant.At(now))
}

func (e *Entry) verdict(word uint64, now instant.Instant) Verdict {
	if word&bitHeld != 0 {
		return Removed
	}
	s := e.table.settings.Load()
	if word&bitDraining != 0 {
		if e.life.Load().draining(s, now) {
			return Draining
		}
		e.clear(word, bitDraining)
	}
	if word&(bitEjected|bitUnreachable) == 0 {
		return Usable
	}
	return e.health.Load().verdict(s, now, e.trying(s, now))
}

func (e *Entry) trying(s *Settings, now instant.Instant) bool {
	return trying(instant.Instant(e.trial.Load()), now, e.inFlight.Load(), s.Max)
}

// Hidden tells whether the instance is to be left out before any balancer is asked: it announced its leaving less than the
// notice time ago, or its registry removed it.
func (e *Entry) Hidden(now time.Time) bool {
	word := e.word.Load()
	if word&bitsHidden == 0 {
		return false
	}
	if word&bitHeld != 0 || e.life.Load().draining(e.table.settings.Load(), instant.At(now)) {
		return true
	}
	e.clear(word, bitDraining)
	return false
}

// TryTrial claims the one trial of an ejected instance whose verdict is Trial. The winner sends one request; its outcome, or
// a second without a request, ends the claim.
func (e *Entry) TryTrial(now time.Time) bool {
	at := instant.At(now)
	claimed := e.trial.Load()
	s := e.table.settings.Load()
	if trying(instant.Instant(claimed), at, e.inFlight.Load(), s.Max) {
		return false
	}
	if e.verdict(e.word.Load(), at) != Trial {
		return false
	}
	return e.trial.CompareAndSwap(claimed, int64(at))
}

// EjectedFor returns the cause of the present exclusion: NotExecuted while it is unreachable, Transport or Timeout while it is
// ejected, Answered if it is neither.
func (e *Entry) EjectedFor() attempt.Class {
	h := e.health.Load()
	switch {
	case h.refused != instant.Never:
		return attempt.NotExecuted
	case h.ejected != instant.Never:
		return h.cause
	default:
		return attempt.Answered
	}
}

// Dialed notes the result of a dial that the prober made. A success makes an unreachable instance usable, and an ejected one
// ready for a trial; a failure makes it unreachable. A direct URL that drained, refused, and accepts again is another
// process. It takes a lock.
func (e *Entry) Dialed(ok bool, now time.Time) {
	at := instant.At(now)
	e.mu.Lock()
	l, old := e.life.Load(), e.health.Load()
	next, changed := old.dialed(ok, at)
	if ok && old.refused != instant.Never && l.origin == direct && l.status == wire.Draining {
		e.begin(&life{figures: new(figures), seen: at})
		next = health{}
	}
	e.health.Store(&next)
	e.recount(at)
	e.mu.Unlock()
	if changed {
		e.table.notify(e.addr)
	}
}

// directDial is the time between dials of a direct URL that drains. No registry tells when the next process is there.
const directDial = time.Second

// NextDial returns when the prober should dial the instance; the zero time if it needs no dial.
func (e *Entry) NextDial() time.Time { return e.nextDial().Time() }

func (e *Entry) nextDial() instant.Instant {
	l := e.life.Load()
	if l.left != instant.Never {
		return instant.Never
	}
	s, h := e.table.settings.Load(), e.health.Load()
	due := h.nextDial(s)
	if due == instant.Never && l.origin == direct && l.status == wire.Draining && e.word.Load()&bitDraining != 0 {
		due = l.statusSince
		if h.lastDial != instant.Never {
			due = max(due, h.lastDial)
		}
		due = due.Add(directDial)
	}
	return due
}

// NeedsDial tells whether a dial is due now. It stays true until Dialed is called.
func (e *Entry) NeedsDial(now time.Time) bool {
	if e.word.Load()&bitsVerdict == 0 {
		return false
	}
	due := e.nextDial()
	return due != instant.Never && instant.At(now) >= due
}

// SetHeld says that the registry has removed the instance while requests to it are in flight, or that this has ended. Held
// instances get no request, whatever else is left.
func (e *Entry) SetHeld(held bool) {
	e.mu.Lock()
	changed := (e.word.Load()&bitHeld != 0) != held
	if changed && held {
		e.mark(bitHeld, 0)
	} else if changed {
		e.mark(0, bitHeld)
	}
	e.mu.Unlock()
	if changed {
		e.table.notify(e.addr)
	}
}

// Flight returns the count of one service, made by the first call for it.
func (e *Entry) Flight(service string) *Flight {
	if f := e.flights.Load(service); f != nil {
		return f
	}
	f, _ := e.flights.LoadOrStore(service, func() *Flight { return new(Flight) })
	return f
}

// begin makes l the instance of this entry. e.mu is held; the caller recounts.
func (e *Entry) begin(l *life) {
	e.life.Store(l)
	e.trial.Store(0)
	e.health.Store(&health{})
	e.mark(0, bitHeld)
}

func (e *Entry) known() known {
	l := e.life.Load()
	return known{
		id: l.id, seq: l.seq, timestamp: l.timestamp, status: l.status, seen: l.seen,
		origin: l.origin, left: l.left != instant.Never, gone: e.gone,
	}
}

// observe applies an observation. e.mu is held.
func (e *Entry) observe(o *Observation, now time.Time) bool {
	at := instant.At(now)
	k := e.known()
	d := decide(&k, o, at)
	if d == ignore {
		return false
	}
	l := *e.life.Load()
	if d == replace || d == adopt {
		e.gone = e.gone.add(l.id, l.status == wire.Draining || k.left, at).without(o.Mark.Start)
		fresh := life{
			figures: new(figures), id: o.Mark.Start, seq: o.Mark.Seq, timestamp: o.Timestamp,
			status: statusOf(&o.Mark), statusSource: o.Source, statusSince: at,
			seen: at, origin: originOf(o.Source),
			ageSeen: ageOf(o.Preexisting, o.Mark.Start, o.Timestamp, now),
		}
		fresh.warmup, fresh.hasWarmup = ParseWarmup(o.Mark.Warmup, o.Release)
		e.begin(&fresh)
		e.recount(at)
		return true
	}
	l.origin = max(l.origin, originOf(o.Source))
	l.left = instant.Never
	l.seq = max(l.seq, o.Mark.Seq)
	if l.timestamp == 0 {
		l.timestamp = o.Timestamp
	}
	if w, ok := ParseWarmup(o.Mark.Warmup, o.Release); ok {
		l.warmup, l.hasWarmup = w, true
	}
	e.gone = e.gone.without(l.id)
	if d == update {
		l.status, l.statusSource, l.statusSince = statusOf(&o.Mark), o.Source, at
	}
	e.life.Store(&l)
	e.recount(at)
	return d == update
}

// upGrace is how long a response may still say DRAINING after the registry said that the instance is up again: it was written
// before, and came later. An instance that really drains says it in the next response too.
const upGrace = time.Second

func originOf(s Source) origin {
	if s == FromDisk {
		return stored
	}
	return listed
}

// drains marks the instance. e.mu is held.
func (e *Entry) drains(start string, src Source, now instant.Instant) bool {
	l := *e.life.Load()
	switch {
	case start == "" && src == FromClosing, start != "" && start == l.id:
	case start != "" && l.origin == direct:
		// A direct URL: nobody else tells which process is there.
		if l.id != "" {
			l = life{figures: new(figures), seen: now}
		}
		l.id = start
	default:
		return false
	}
	if src == FromResponse && l.status == wire.Up && l.seq > 1 && now.Sub(l.statusSince) < upGrace {
		return false
	}
	// It answered, so it can be reached.
	if h := *e.health.Load(); src == FromRejection && h.refused != instant.Never {
		h, _ = h.dialed(true, now)
		e.health.Store(&h)
	}
	if l.status == wire.Draining && l.draining(e.table.settings.Load(), now) {
		e.recount(now)
		return false
	}
	l.status, l.statusSource, l.statusSince = wire.Draining, src, now
	e.life.Store(&l)
	e.recount(now)
	return true
}
