// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"context"
	"os"
	"sync"
	"time"
)

// Event is something that happened on the way out or back. Log, metrics and tests all read the same events; the concrete types
// are RunStarted, PhaseStarted, PhaseWaiting, PhaseReached, HookDone, SignalReceived, WentOnline and RunFinished.
type Event interface {
	// When is the moment it happened.
	When() time.Time
}

// RunStarted opens a run.
type RunStarted struct {
	At      time.Time
	Trigger string        // who asked for it: "signal terminated", "BeforeShutdown", "Offline", "dubbo-go"
	Target  Phase         // Settled for Offline, Callbacks for a shutdown
	Budget  time.Duration // time for all phases together
	Resumed bool          // a shutdown that goes on where an offline run stands
}

// PhaseStarted says that the work of a phase begins.
type PhaseStarted struct {
	At    time.Time
	Phase Phase
	Limit time.Duration // the phase's slice of the budget
}

// PhaseWaiting comes each second of a phase.
type PhaseWaiting struct {
	At      time.Time
	Phase   Phase
	Elapsed time.Duration
	For     string // what the phase still waits for, for people
}

// PhaseReached says that a phase is over.
type PhaseReached struct {
	At       time.Time
	Phase    Phase
	Took     time.Duration
	Count    int   // how many registries, callers, requests, protocols or callbacks the phase looked at, see Phase.unit
	Left     int   // how many of them were not finished when the phase ended
	TimedOut bool  // the phase ended because its slice did
	Err      error // what failed; the run goes on regardless
}

// HookDone says how a function given to OnPhase, or a shutdown callback of the application, ended.
type HookDone struct {
	At    time.Time
	Phase Phase
	Name  string
	Took  time.Duration
	Err   error
}

// SignalReceived says that the process got a signal. Forced: the second one, the process ends at once.
type SignalReceived struct {
	At     time.Time
	Signal os.Signal
	Forced bool
}

// WentOnline ends an offline run: the instance takes traffic again.
type WentOnline struct {
	At  time.Time
	Seq uint64 // the sequence number that was published with UP
	Err error
}

// RunFinished closes a run.
type RunFinished struct {
	At       time.Time
	Trigger  string
	Target   Phase
	Took     time.Duration
	CutOff   int64 // requests that were still being served
	Err      error
	Exiting  bool // the process ends now, with ExitCode
	ExitCode int
}

// When implements Event.
func (e RunStarted) When() time.Time { return e.At }

// When implements Event.
func (e PhaseStarted) When() time.Time { return e.At }

// When implements Event.
func (e PhaseWaiting) When() time.Time { return e.At }

// When implements Event.
func (e PhaseReached) When() time.Time { return e.At }

// When implements Event.
func (e HookDone) When() time.Time { return e.At }

// When implements Event.
func (e SignalReceived) When() time.Time { return e.At }

// When implements Event.
func (e WentOnline) When() time.Time { return e.At }

// When implements Event.
func (e RunFinished) When() time.Time { return e.At }

// bus hands events to subscribers, in order. Each subscriber is served by a goroutine of its own that lives only while there is
// something to hand over: a subscriber that hangs, a logger on a full pipe for instance, must not hold the shutdown.
type bus struct {
	mu   sync.Mutex
	subs []*subscriber
}

type subscriber struct {
	f func(Event)

	mu      sync.Mutex
	queue   []Event
	idle    chan struct{} // open while a goroutine delivers, nil else
	removed bool
}

func (b *bus) subscribe(f func(Event)) (cancel func()) {
	s := &subscriber{f: f}
	b.mu.Lock()
	b.subs = append(b.subs, s)
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		for i, x := range b.subs {
			if x == s {
				b.subs = append(b.subs[:i:i], b.subs[i+1:]...)
				break
			}
		}
		b.mu.Unlock()
		s.mu.Lock()
		s.removed, s.queue = true, nil
		s.mu.Unlock()
	}
}

func (b *bus) emit(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.subs {
		s.push(e)
	}
}

// flush waits until all that was emitted so far has been handed over, or ctx ends.
func (b *bus) flush(ctx context.Context) {
	b.mu.Lock()
	subs := b.subs
	b.mu.Unlock()
	for _, s := range subs {
		s.mu.Lock()
		idle := s.idle
		s.mu.Unlock()
		if idle == nil {
			continue
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return
		}
	}
}

func (s *subscriber) push(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return
	}
	s.queue = append(s.queue, e)
	if s.idle == nil {
		s.idle = make(chan struct{})
		go s.deliver(s.idle)
	}
}

func (s *subscriber) deliver(idle chan struct{}) {
	defer close(idle)
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.idle = nil
			s.mu.Unlock()
			return
		}
		e := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		s.call(e)
	}
}

// call keeps a panic of a subscriber from ending the process in the middle of its shutdown; the event counts as handed over.
func (s *subscriber) call(e Event) {
	defer func() {
		if p := recover(); p != nil {
			warnf("subscriber=panicked event=%T err=%v", e, p)
		}
	}()
	s.f(e)
}
