// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/instant"
	"github.com/dubbogo/graceful/internal/strmap"
)

// Table holds what this process knows of the instances that it calls. Use [New] or [Default].
type Table struct {
	index       strmap.Map[Entry]
	settings    atomic.Pointer[Settings]
	jitter      atomic.Pointer[func() float64]
	listeners   atomic.Pointer[[]*func(addr string)] // copied by every change
	listenersMu sync.Mutex

	// How many entries have a bit of each kind.
	hidden      atomic.Int64
	troubled    atomic.Int64
	ejected     atomic.Int64
	unreachable atomic.Int64

	sweepMu   sync.Mutex
	lastSweep atomic.Int64 // instant.Instant
}

// New returns an empty table.
func New(s Settings) *Table {
	t := new(Table)
	t.settings.Store(&s)
	draw := rand.Float64
	t.jitter.Store(&draw)
	return t
}

var table = New(DefaultSettings())

// Default returns the table of this process.
func Default() *Table { return table }

// Configure replaces the settings. Times that are running keep their end.
func (t *Table) Configure(s Settings) { t.settings.Store(&s) }

// Settings returns the present settings.
func (t *Table) Settings() Settings { return *t.settings.Load() }

// SetJitter replaces the source of jitter, numbers in [0,1); nil is the default, random one.
func (t *Table) SetJitter(draw func() float64) {
	if draw == nil {
		draw = rand.Float64
	}
	t.jitter.Store(&draw)
}

func (t *Table) draw() float64 { return (*t.jitter.Load())() }

// Lookup returns the entry of an address, or nil.
func (t *Table) Lookup(addr string) *Entry { return t.index.Load(addr) }

// Obtain returns the entry of an address. Where there is none it makes one, for an instance that no registry has told of:
// a direct URL. Such an instance is taken as warm, as nothing says that it is new.
func (t *Table) Obtain(addr string, now time.Time) *Entry {
	if e := t.index.Load(addr); e != nil {
		return e
	}
	t.sweep(now)
	return t.obtain(addr, now)
}

func (t *Table) obtain(addr string, now time.Time) *Entry {
	e, _ := t.index.LoadOrStore(addr, func() *Entry {
		e := &Entry{addr: addr, table: t}
		e.life.Store(&life{figures: new(figures), seen: instant.At(now), ageSeen: grown})
		e.health.Store(&health{})
		return e
	})
	return e
}

// Observe takes in what a registry says about an address, in the order in which it says so. It returns true if the entry
// changed its instance or its status.
//
//   - The id that is known: a higher sequence number decides the status, a lower one is an old record.
//   - Another id: another instance, with new figures and no marks; unless that id was seen leaving this address in the last
//     ten minutes, then it is a record that outlived its process.
//   - No id (an instance without this module): another timestamp is another instance, and so is an Add after a Delete
//     where there are no timestamps.
//   - From disk: only the id that is known, or an address of which nothing is known.
func (t *Table) Observe(addr string, m Observation, now time.Time) bool {
	t.sweep(now)
	for {
		e := t.obtain(addr, now)
		e.mu.Lock()
		if t.index.Load(addr) != e { // swept away in between
			e.mu.Unlock()
			continue
		}
		changed := e.observe(&m, now)
		e.mu.Unlock()
		if changed {
			t.notify(addr)
		}
		return changed
	}
}

// Leave says that the registry has removed the address; the instance that is known there has left.
func (t *Table) Leave(addr string, now time.Time) { t.LeaveID(addr, "", now) }

// LeaveID is Leave for the record of a certain start id. If another instance has the address by now, only the id is
// remembered as one that left. "" stands for the instance that is known.
func (t *Table) LeaveID(addr, id string, now time.Time) {
	t.sweep(now)
	e := t.index.Load(addr)
	if e == nil {
		return
	}
	at := instant.At(now)
	e.mu.Lock()
	l := *e.life.Load()
	current := id == "" || id == l.id
	if current {
		id = l.id
		l.left = at
		e.life.Store(&l)
	}
	e.gone = e.gone.add(id, true, at)
	e.mu.Unlock()
	if current {
		t.notify(addr)
	}
}

// MarkDraining notes that the instance of this start id leaves. A response or a rejection is believed only if start is the id
// of the entry, since a proxy may pass on what another process said; for an address that no registry has told of it
// tells the id. "" from [FromClosing] means whoever is there. It returns true if the status changed.
func (t *Table) MarkDraining(addr, start string, src Source, now time.Time) bool {
	e := t.index.Load(addr)
	if e == nil {
		return false
	}
	e.mu.Lock()
	changed := e.drains(start, src, instant.At(now))
	e.mu.Unlock()
	if changed {
		t.notify(addr)
	}
	return changed
}

// Hidden tells whether any instance may be hidden: one atomic load.
func (t *Table) Hidden() bool { return t.hidden.Load() != 0 }

// Troubled tells whether any instance may be draining, held, ejected, unreachable, or warming up: one atomic load.
func (t *Table) Troubled() bool { return t.troubled.Load() != 0 }

// Ejected returns how many instances are ejected for broken connections or timeouts, an upper bound for any list. While it
// is within the cap, no selection has to count.
func (t *Table) Ejected() int { return int(t.ejected.Load()) }

// Unreachable returns how many instances cannot be connected to.
func (t *Table) Unreachable() int { return int(t.unreachable.Load()) }

// Len returns the number of addresses.
func (t *Table) Len() int { return t.index.Len() }

// Each calls f for every entry until it returns false.
func (t *Table) Each(f func(*Entry) bool) {
	t.index.Each(func(_ string, e *Entry) bool { return f(e) })
}

// NextDial returns the earliest time at which any instance should be dialled; the zero time if none should.
func (t *Table) NextDial() time.Time {
	next := instant.Never
	t.index.Each(func(_ string, e *Entry) bool {
		if e.word.Load()&bitsVerdict != 0 {
			if due := e.nextDial(); due != instant.Never && (next == instant.Never || due < next) {
				next = due
			}
		}
		return true
	})
	return next.Time()
}

func (t *Table) count(old, next uint64) {
	adjust(&t.hidden, old, next, bitsHidden)
	adjust(&t.troubled, old, next, bitsTroubled)
	adjust(&t.ejected, old, next, bitEjected)
	adjust(&t.unreachable, old, next, bitUnreachable)
}

func adjust(n *atomic.Int64, old, next, bits uint64) {
	switch was, is := old&bits != 0, next&bits != 0; {
	case is && !was:
		n.Add(1)
	case was && !is:
		n.Add(-1)
	}
}

// OnChange has f called with the address of every entry whose instance, status, or exclusion changed. It is called without
// locks, by whoever made the change, in no certain order; f reads the entry. cancel may be called more than once.
func (t *Table) OnChange(f func(addr string)) (cancel func()) {
	slot := &f
	t.editListeners(func(l []*func(string)) []*func(string) { return append(l, slot) })
	return func() {
		t.editListeners(func(l []*func(string)) []*func(string) {
			return slices.DeleteFunc(l, func(x *func(string)) bool { return x == slot })
		})
	}
}

func (t *Table) editListeners(f func([]*func(string)) []*func(string)) {
	t.listenersMu.Lock()
	defer t.listenersMu.Unlock()
	var list []*func(string)
	if old := t.listeners.Load(); old != nil {
		list = slices.Clone(*old)
	}
	list = f(list)
	t.listeners.Store(&list)
}

func (t *Table) notify(addr string) {
	if list := t.listeners.Load(); list != nil {
		for _, f := range *list {
			(*f)(addr)
		}
	}
}

const (
	// sweepEvery bounds how often the whole table is walked.
	sweepEvery = time.Second
	// leftGrace is how long an instance that was removed keeps its marks: the list without it is handed on in this time.
	leftGrace = 5 * time.Second
)

// sweep forgets addresses that were left long ago, and takes the marks off instances that nobody looks at any more, so that
// the fast paths of Hidden and Troubled come back.
func (t *Table) sweep(now time.Time) { t.sweepAfter(instant.At(now), sweepEvery) }

// tidy is sweep on the path of a request: once in leftGrace, and only while something is wrong, one request walks the table.
func (t *Table) tidy(now instant.Instant) { t.sweepAfter(now, leftGrace) }

func (t *Table) sweepAfter(now instant.Instant, pause time.Duration) {
	last := instant.Instant(t.lastSweep.Load())
	if last != instant.Never && now.Sub(last) < pause || !t.sweepMu.TryLock() {
		return
	}
	defer t.sweepMu.Unlock()
	t.lastSweep.Store(int64(now))
	s := t.settings.Load()
	t.index.Each(func(addr string, e *Entry) bool {
		word, l := e.word.Load(), e.life.Load()
		if l.left == instant.Never {
			var outlived uint64
			if word&bitDraining != 0 && !l.draining(s, now) {
				outlived |= bitDraining
			}
			if word&bitWarming != 0 && l.warm(s, now) {
				outlived |= bitWarming
			}
			if outlived != 0 {
				e.clear(word, outlived)
			}
			return true
		}
		if now.Sub(l.left) < leftGrace {
			return true
		}
		e.mu.Lock()
		if l = e.life.Load(); l.left != instant.Never {
			if e.word.Load()&bitsTroubled != 0 {
				e.mark(0, bitsTroubled)
			}
			if now.Sub(l.left) >= goneTime && e.inFlight.Load() == 0 {
				t.index.Delete(addr, e)
			}
		}
		e.mu.Unlock()
		return true
	})
}
