// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/instant"
	"github.com/dubbogo/graceful/internal/strmap"
	"github.com/dubbogo/graceful/internal/wire"
)

const (
	// MaxCallers bounds what a provider remembers. A header is data from outside: whoever sends a new one with
	// each request must not fill the memory.
	MaxCallers = 4096
	// Dropping is done in batches, so that a flood of new callers sorts once in 256 requests.
	dropBatch = 256
)

// Callers remembers who calls this process, at most [MaxCallers] of them; the least recently seen are
// dropped. The zero value is empty and ready. Seen takes no lock and allocates nothing for a caller that
// is known.
type Callers struct {
	known    strmap.Map[CallerEntry] // by the header as it came
	unknown  CallerEntry
	newMu    sync.Mutex // held to add one
	activity atomic.Pointer[chan struct{}]
}

// CallerEntry is one caller.
type CallerEntry struct {
	caller   wire.Caller
	requests atomic.Uint64
	lastSeen atomic.Int64 // instant.Instant
	acked    atomic.Int64 // instant.Instant
}

// CallerView is a caller at one moment.
type CallerView struct {
	Caller   wire.Caller
	Unknown  bool // stands for all callers that did not say who they are
	LastSeen time.Time
	AckedAt  time.Time // zero: no response with the mark was produced for it
	Requests uint64
}

var callers Callers

// KnownCallers returns the callers of this process.
func KnownCallers() *Callers { return &callers }

// Seen notes a request that came at now with the given value of [wire.HeaderCaller]. self is the "ip:port" that
// it came to, or "" if that is not known. A request without a header, with one that is not valid, or with one
// that is meant for another instance (a proxy without this module forwards what it got) belongs to the one
// shared unknown entry. Never nil.
func (c *Callers) Seen(header string, self string, now time.Time) *CallerEntry {
	e := &c.unknown
	if header != "" {
		e = c.find(header, self)
	}
	e.requests.Add(1)
	e.lastSeen.Store(int64(instant.At(now)))
	c.signal()
	return e
}

func (c *Callers) find(header, self string) *CallerEntry {
	if e := c.known.Load(header); e != nil {
		if foreign(e.caller.To, self) {
			return &c.unknown
		}
		return e
	}
	caller, ok := wire.ParseCaller(header)
	if !ok || foreign(caller.To, self) {
		return &c.unknown
	}
	c.newMu.Lock()
	defer c.newMu.Unlock()
	if c.known.Len() >= MaxCallers {
		c.drop()
	}
	e, _ := c.known.LoadOrStore(header, func() *CallerEntry { return &CallerEntry{caller: caller} })
	return e
}

func foreign(to, self string) bool { return self != "" && to != self }

// drop makes room by forgetting the callers that were not seen for longest. newMu is held.
func (c *Callers) drop() {
	type item struct {
		header string
		e      *CallerEntry
		seen   int64
	}
	all := make([]item, 0, MaxCallers)
	c.known.Each(func(header string, e *CallerEntry) bool {
		all = append(all, item{header, e, e.lastSeen.Load()})
		return true
	})
	slices.SortFunc(all, func(a, b item) int { return cmp.Compare(a.seen, b.seen) })
	for _, it := range all[:min(dropBatch, len(all))] {
		c.known.Delete(it.header, it.e)
	}
}

// Acked notes that a response with the mark was produced for this caller.
func (e *CallerEntry) Acked(now time.Time) { e.acked.Store(int64(instant.At(now))) }

// Caller returns who it is; the zero Caller for the unknown entry.
func (e *CallerEntry) Caller() wire.Caller { return e.caller }

// Each calls f for every caller, and last for the unknown ones if there were any.
func (c *Callers) Each(f func(CallerView)) {
	c.known.Each(func(_ string, e *CallerEntry) bool {
		f(e.view(false))
		return true
	})
	if c.unknown.requests.Load() > 0 {
		f(c.unknown.view(true))
	}
}

func (e *CallerEntry) view(unknown bool) CallerView {
	return CallerView{
		Caller:   e.caller,
		Unknown:  unknown,
		LastSeen: instant.Instant(e.lastSeen.Load()).Time(),
		AckedAt:  instant.Instant(e.acked.Load()).Time(),
		Requests: e.requests.Load(),
	}
}

// Activity returns a channel that closes with the next request that is seen. Nobody pays for it while nobody
// holds such a channel.
func (c *Callers) Activity() <-chan struct{} {
	for {
		if ch := c.activity.Load(); ch != nil {
			return *ch
		}
		ch := make(chan struct{})
		if c.activity.CompareAndSwap(nil, &ch) {
			return ch
		}
	}
}

func (c *Callers) signal() {
	if ch := c.activity.Load(); ch != nil && c.activity.CompareAndSwap(ch, nil) {
		close(*ch)
	}
}
