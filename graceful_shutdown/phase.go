// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"fmt"
	"sync"
	"time"
)

// Phase is a step on the way out. Each is reached once in a run, in this order; what it means is told in the package comment.
type Phase uint8

const (
	// Serving is the state of a process that is not leaving; no phase has been reached.
	Serving Phase = iota
	// NotReady means: readiness is off and every response carries the mark.
	NotReady
	// Announced means: every registry has been told that this instance is DRAINING.
	Announced
	// Quiesced means: the callers that have this module have moved, and the registries show DRAINING.
	Quiesced
	// Unregistered means: the records are gone; in a real shutdown the health services say NOT_SERVING.
	Unregistered
	// Settled means: the callers without this module have gone quiet too. Offline ends here.
	Settled
	// Rejecting means: a new request gets the answer "not executed".
	Rejecting
	// InboundDrained means: no request is being served any more.
	InboundDrained
	// OutboundDrained means: no request of our own is on its way any more.
	OutboundDrained
	// Closed means: protocols are destroyed, ports free, registry connections released.
	Closed
	// Callbacks means: the callbacks of the application have run.
	Callbacks
)

const phases = int(Callbacks) + 1

var phaseNames = [phases]string{
	"serving", "not-ready", "announced", "quiesced", "unregistered", "settled", "rejecting", "inbound", "outbound", "closed", "callbacks",
}

func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// MarshalText makes a phase readable in JSON.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// phase is one named signal of a run: it closes once, and remembers when it began and when it was reached.
type phase struct {
	id      Phase
	reached chan struct{}

	mu       sync.Mutex
	began    time.Time
	ended    time.Time
	timedOut bool
}

func newPhase(id Phase) *phase { return &phase{id: id, reached: make(chan struct{})} }

func (p *phase) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = now
}

// reach closes the signal. It panics when it is called twice, because a phase that is reached twice is a bug in the order.
func (p *phase) reach(now time.Time, timedOut bool) (took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended, p.timedOut = now, timedOut
	close(p.reached)
	return now.Sub(p.began)
}

func (p *phase) isReached() bool {
	select {
	case <-p.reached:
		return true
	default:
		return false
	}
}

// times returns when the phase began and when it was reached, zero if it has not been.
func (p *phase) times() (began, ended time.Time, timedOut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.began, p.ended, p.timedOut
}
