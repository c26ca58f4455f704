// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/drain"
)

// Snapshot is the state of the way out at one moment.
type Snapshot struct {
	Phase    Phase         `json:"phase"`             // the last phase that began, Serving if none did
	Trigger  string        `json:"trigger,omitempty"` // who asked for the run
	Target   Phase         `json:"target"`            // where the run ends: Settled for Offline, Callbacks for a shutdown
	Started  time.Time     `json:"started,omitzero"`  //
	Deadline time.Time     `json:"deadline,omitzero"` // end of the budget
	Phases   []PhaseTime   `json:"phases,omitempty"`  // those that have begun, in their order
	Inbound  int64         `json:"inbound"`           // requests being served
	Outbound int64         `json:"outbound"`          // requests of our own on their way
	Callers  []CallerState `json:"callers,omitempty"` // those of the last drain.caller-window
	Records  []string      `json:"records,omitempty"` // names of the registries that hold our records
	Finished bool          `json:"finished"`          // a shutdown is over
}

// PhaseTime tells when a phase began and how long it took.
type PhaseTime struct {
	Phase    Phase         `json:"phase"`
	Began    time.Time     `json:"began"`
	Took     time.Duration `json:"took"` // so far, while it is not reached
	Reached  bool          `json:"reached"`
	TimedOut bool          `json:"timedOut,omitempty"`
}

// CallerState is what is known of one caller.
type CallerState struct {
	Application string    `json:"application"` // "" for all callers that did not say who they are
	Address     string    `json:"address"`
	LastSeen    time.Time `json:"lastSeen"`
	Moved       bool      `json:"moved"` // it is not waited for any more
	Requests    uint64    `json:"requests"`
}

func (c *coordinator) status() Snapshot {
	now := time.Now()
	d := c.sys.settings().Drain
	s := Snapshot{Inbound: c.sys.inbound.InFlight(), Outbound: c.sys.outbound.InFlight(), Finished: isClosed(c.over)}
	for _, p := range c.sys.publishers() {
		s.Records = append(s.Records, p.Name())
	}
	c.mu.Lock()
	r := c.run
	c.mu.Unlock()
	var since time.Time
	if r != nil {
		r.mu.Lock()
		s.Phase, s.Trigger, s.Target, s.Started, s.Deadline = r.at, r.trigger, r.target, r.started, r.deadline
		r.mu.Unlock()
		since = r.started
		for _, p := range r.phases[NotReady:] {
			began, ended, timedOut := p.times()
			if began.IsZero() {
				break
			}
			t := PhaseTime{Phase: p.id, Began: began, Reached: !ended.IsZero(), TimedOut: timedOut, Took: now.Sub(began)}
			if t.Reached {
				t.Took = ended.Sub(began)
			}
			s.Phases = append(s.Phases, t)
		}
	}
	c.sys.callers.Each(func(v drain.CallerView) {
		if now.Sub(v.LastSeen) > d.CallerWindow {
			return
		}
		s.Callers = append(s.Callers, CallerState{
			Application: v.Caller.App, Address: v.Caller.IP, LastSeen: v.LastSeen, Requests: v.Requests,
			Moved: r != nil && moved(v, since, now, d.Quiet),
		})
	})
	return s
}
