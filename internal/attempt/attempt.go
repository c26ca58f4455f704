// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package attempt records what happened to the attempts of one call.
//
// A cluster may try several instances before it answers, and hides the earlier failures. The consumer filter
// adds address and [Class] of each attempt to a [Log] that lives on the invocation under [Key]; the retry and
// the draining router read it.
package attempt

import (
	"sync"
)

// Class is what became of an attempt.
type Class uint8

const (
	// Answered means that the instance answered, with success, a business error, or overload. Also everything that is
	// known to come from the handler.
	Answered Class = iota
	// NotExecuted means certainly not executed: the connection was refused or never stood, or the instance
	// rejected the request because it drains.
	NotExecuted
	// Transport means that the connection broke after the request was sent. It may have been executed.
	Transport
	// Timeout means that the deadline passed at the instance. It may have been executed.
	Timeout
	// Canceled means that the caller gave up. It says nothing about the instance.
	Canceled
)

// String returns the name for logs and labels.
func (c Class) String() string {
	switch c {
	case Answered:
		return "answered"
	case NotExecuted:
		return "not-executed"
	case Transport:
		return "transport"
	case Timeout:
		return "timeout"
	case Canceled:
		return "canceled"
	default:
		return "unknown"
	}
}

// Key is the invocation attribute that holds the *Log.
const Key = "graceful.attempts"

// Attempt is one attempt.
type Attempt struct {
	Addr  string // "ip:port" of the instance
	Class Class
}

// Log holds the attempts of one call, oldest first. The zero value is empty and ready; a nil *Log reads as
// empty. It is safe for concurrent use, as a forking cluster sends attempts side by side.
type Log struct {
	mu      sync.Mutex
	list    []Attempt
	room    [2]Attempt // most calls have one attempt, and need no further allocation
	retry   bool       // a retry is under way, for which the attempts from the from-th on are not to be repeated
	from    int
	offered int
	refused bool
}

// Add appends an attempt.
func (l *Log) Add(addr string, c Class) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list == nil {
		l.list = l.room[:0]
	}
	l.list = append(l.list, Attempt{Addr: addr, Class: c})
}

// All returns a copy of the attempts.
func (l *Log) All() []Attempt {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Attempt(nil), l.list...)
}

// Len returns the number of attempts.
func (l *Log) Len() int {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list)
}

// OnlyNotExecutedSince tells whether there are attempts from the n-th on (counted from 0), and every one of
// them was certainly not executed. Only then may a call be sent again.
func (l *Log) OnlyNotExecutedSince(n int) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n = max(n, 0)
	if n >= len(l.list) {
		return false
	}
	for _, a := range l.list[n:] {
		if a.Class != NotExecuted {
			return false
		}
	}
	return true
}

// Tried tells whether an attempt went to addr.
func (l *Log) Tried(addr string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.list {
		if l.list[i].Addr == addr {
			return true
		}
	}
	return false
}

// BeginRetry says that the call is sent again, and must not go to an address that was tried from the n-th attempt on. The draining
// router keeps it from there, and where nobody else is left the consumer filter refuses the attempt.
func (l *Log) BeginRetry(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retry, l.from, l.offered, l.refused = true, max(n, 0), 0, false
}

// EndRetry undoes BeginRetry.
func (l *Log) EndRetry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retry = false
}

// Retrying tells whether a retry is under way.
func (l *Log) Retrying() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retry
}

// Excluded tells whether a retry is under way that must not go to addr.
func (l *Log) Excluded(addr string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.excluded(addr)
}

func (l *Log) excluded(addr string) bool {
	if !l.retry {
		return false
	}
	for i := min(l.from, len(l.list)); i < len(l.list); i++ {
		if l.list[i].Addr == addr {
			return true
		}
	}
	return false
}

// Refuse tells whether an attempt on addr must not be made, and notes that. It is no attempt.
func (l *Log) Refuse(addr string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.excluded(addr) {
		return false
	}
	l.refused = true
	return true
}

// Refused tells whether an attempt was refused since BeginRetry.
func (l *Log) Refused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

// Offer notes how many instances the router had to choose from during a retry.
func (l *Log) Offer(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.offered = max(l.offered, n)
}

// Offered returns the highest number given to Offer since BeginRetry.
func (l *Log) Offered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.offered
}
