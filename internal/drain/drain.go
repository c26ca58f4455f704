// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drain counts what a process is serving, and knows who calls it.
//
// A [Counter] keeps its flag and its count in one word: a request is counted by compare-and-swap, and only
// while the flag is off, so there is no moment in which a request is both turned away and counted, or let in
// after the count was seen to be zero for good. Waiting for zero is event-driven ([Counter.Zero]).
//
// [Callers] remembers which processes sent requests lately, so that a drain can end as soon as all of them
// know about it, instead of after a fixed time.
package drain

import (
	"sync"
	"sync/atomic"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/instant"
)

// The word of a Counter: two flags over the count.
const (
	rejecting uint64 = 1 << 63
	waiting   uint64 = 1 << 62 // somebody holds a channel of Zero; set and cleared only under the lock
	countMask uint64 = waiting - 1
)

// Counter counts requests in flight. The zero value accepts and counts nothing yet. All methods are safe for
// concurrent use; Enter and Leave take no lock and allocate nothing, except for the one Leave that ends a wait.
type Counter struct {
	word      atomic.Uint64
	entered   atomic.Uint64
	rejected  atomic.Uint64
	lastLeave atomic.Int64 // instant.Instant

	mu   sync.Mutex
	zero chan struct{} // not nil exactly while the word says waiting
}

// Enter counts a request, or returns false while the counter rejects; such a request was never counted, and
// must not call Leave.
func (c *Counter) Enter() bool {
	for {
		w := c.word.Load()
		if w&rejecting != 0 {
			c.rejected.Add(1)
			return false
		}
		if c.word.CompareAndSwap(w, w+1) {
			c.entered.Add(1)
			return true
		}
	}
}

// Leave ends a request that Enter counted. A Leave too many is ignored: the count never goes below zero.
func (c *Counter) Leave() { c.leave(instant.Now()) }

// LeaveAt is Leave for who has read the clock already.
func (c *Counter) LeaveAt(now time.Time) { c.leave(instant.At(now)) }

func (c *Counter) leave(at instant.Instant) {
	c.lastLeave.Store(int64(at)) // before the count falls: who sees zero sees when
	for {
		w := c.word.Load()
		n := w & countMask
		switch {
		case n == 0:
			return
		case n == 1 && w&waiting != 0:
			if c.leaveLast() {
				return
			}
		case c.word.CompareAndSwap(w, w-1):
			return
		}
	}
}

// leaveLast is Leave where it may be the one that is waited for. False means that the word has changed.
func (c *Counter) leaveLast() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.word.Load()
	if w&countMask != 1 || w&waiting == 0 {
		return false
	}
	if !c.word.CompareAndSwap(w, (w-1)&^waiting) {
		return false
	}
	close(c.zero)
	c.zero = nil
	return true
}

// Reject turns further requests away. Those that are counted go on.
func (c *Counter) Reject() { c.word.Or(rejecting) }

// Accept undoes Reject.
func (c *Counter) Accept() { c.word.And(^rejecting) }

// Rejecting tells whether requests are turned away.
func (c *Counter) Rejecting() bool { return c.word.Load()&rejecting != 0 }

// InFlight returns the number of requests that entered and did not leave yet.
func (c *Counter) InFlight() int64 { return int64(c.word.Load() & countMask) }

var closed = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// Zero returns a channel that closes at the first moment after this call in which nothing is in flight; it is
// closed already if that is now. While the counter accepts, the count may have risen again since.
func (c *Counter) Zero() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		w := c.word.Load()
		switch {
		case w&waiting != 0: // only the last Leave clears it, and it needs the lock
			return c.zero
		case w&countMask == 0:
			return closed
		case c.word.CompareAndSwap(w, w|waiting):
			c.zero = make(chan struct{})
			return c.zero
		}
	}
}

// Total returns how many requests entered and how many were turned away.
func (c *Counter) Total() (entered, rejected uint64) { return c.entered.Load(), c.rejected.Load() }

// LastLeave returns when the last request left, with a monotonic reading; the zero time if none did.
func (c *Counter) LastLeave() time.Time { return instant.Instant(c.lastLeave.Load()).Time() }

var inbound, outbound Counter

// Inbound counts the requests that this process serves.
func Inbound() *Counter { return &inbound }

// Outbound counts the requests that this process sends.
func Outbound() *Counter { return &outbound }
