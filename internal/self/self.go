// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package self holds the identity and the status of THIS process.
//
// The request path reads one atomic pointer ([Current]); a change ([SetStatus]) replaces the whole state,
// so nobody sees a new status with an old sequence number.
package self

import (
	"sync/atomic"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

// State is one state of this process. It is never changed after it was published.
type State struct {
	Start    string      // start id, the same for the life of the process
	Seq      uint64      // 1 at first, raised by every change of Status
	Status   wire.Status // Up or Draining
	Response string      // value of wire.HeaderStatus to put into responses, "" while UP
	Warmup   string      // the warm-up window that the records announce, "" for none
}

var current atomic.Pointer[State]

func init() {
	current.Store(&State{Start: wire.NewStartID(time.Now()), Seq: 1, Status: wire.Up})
}

// Current returns the present state, never nil.
func Current() *State { return current.Load() }

// SetStatus changes the status and raises Seq; if it is the present status already, nothing changes.
// It returns the state that holds now. Unknown is taken as Up.
func SetStatus(s wire.Status) *State {
	if s != wire.Draining {
		s = wire.Up
	}
	return change(func(next *State) bool {
		if next.Status == s {
			return false
		}
		next.Status = s
		next.Seq++
		next.Response = ""
		if s == wire.Draining {
			next.Response = wire.FormatDraining(next.Start)
		}
		return true
	})
}

// SetWarmup sets the warm-up window that this process announces, as a duration string ("2m0s").
func SetWarmup(v string) *State {
	return change(func(next *State) bool {
		if next.Warmup == v {
			return false
		}
		next.Warmup = v
		return true
	})
}

func change(f func(next *State) bool) *State {
	for {
		old := current.Load()
		next := *old
		if !f(&next) {
			return old
		}
		if current.CompareAndSwap(old, &next) {
			return &next
		}
	}
}

// Mark returns the state as it stands in a registry record.
func (s *State) Mark() wire.Mark {
	return wire.Mark{Status: s.Status, Start: s.Start, Seq: s.Seq, Warmup: s.Warmup}
}
