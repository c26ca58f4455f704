// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"fmt"
	"time"
)

import (
	"github.com/dubbogo/graceful/config"
)

const (
	// defaultBudget is what a shutdown may take where nothing else is said: dubbo-go's own default.
	defaultBudget = 60 * time.Second
	// kubernetesGrace is terminationGracePeriodSeconds of a pod that does not set it.
	kubernetesGrace = 30 * time.Second
	// graceReserve is kept back from a grace period: the preStop hook counts against it, and SIGKILL must never come first.
	graceReserve = 5 * time.Second
)

// budgetOf returns the time that all phases have together, and the arithmetic behind it for the log of the start.
func budgetOf(s config.Shutdown, kubernetes bool) (time.Duration, string) {
	grace, source := s.GracePeriod, "shutdown.grace-period"
	if grace <= 0 && kubernetes {
		grace, source = kubernetesGrace, "assumed in Kubernetes, set shutdown.grace-period if terminationGracePeriodSeconds differs"
	}
	fits := grace - graceReserve
	if fits < grace/2 {
		fits = grace / 2
	}
	switch {
	case s.Timeout > 0 && grace > 0 && s.Timeout > fits:
		return s.Timeout, fmt.Sprintf("shutdown.timeout, WARNING: longer than the grace period %v (%s) less %v", grace, source, grace-fits)
	case s.Timeout > 0:
		return s.Timeout, "shutdown.timeout"
	case grace > 0:
		return fits, fmt.Sprintf("grace period %v (%s) less %v", grace, source, grace-fits)
	default:
		return defaultBudget, "default, no grace period known"
	}
}

// shares says which part of a budget a phase can count on whatever the phases before it do. They matter only when the budget is
// short: what a phase does not use goes to those after it. Requests being served get the most, since cutting them is a failure.
var shares = [phases]float64{
	Announced:       0.05,
	Quiesced:        0.10,
	Unregistered:    0.10,
	Settled:         0.10,
	InboundDrained:  0.40,
	OutboundDrained: 0.10,
	Closed:          0.05,
	Callbacks:       0.10,
}

// rest stands for "all that is left" in a plan.
const rest = time.Duration(1<<63 - 1)

const (
	// publishLimit bounds one round of writes to the registries: longer than a session needs to come back after a blink.
	publishLimit = 3 * time.Second
	// closeLimit bounds the closing of listeners. They close at once; what may take longer is a connection that was opened and
	// never used, for which net/http waits 5 s.
	closeLimit = time.Second
)

// plan slices one budget over the phases.
type plan struct {
	total time.Duration
	want  [phases]time.Duration
}

// newPlan: callbacks is how many functions run in the last phase.
func newPlan(total time.Duration, d config.Drain, callbackTimeout time.Duration, callbacks int) plan {
	p := plan{total: total}
	p.want[Announced] = publishLimit
	p.want[Quiesced] = d.Timeout
	p.want[Unregistered] = publishLimit
	p.want[Settled] = max(d.SettleTimeout, d.MinWait)
	p.want[InboundDrained] = rest
	if d.InboundTimeout > 0 {
		p.want[InboundDrained] = d.InboundTimeout
	}
	p.want[OutboundDrained] = d.OutboundTimeout
	p.want[Closed] = closeLimit
	p.want[Callbacks] = callbackTimeout * time.Duration(callbacks)
	return p
}

// limit is the slice of a phase when so much of the budget is left: what it wants, but never what the later ones can count on.
// It adds up: if every phase takes all of its slice, the last one ends with the budget.
func (p plan) limit(id Phase, left time.Duration) time.Duration {
	return max(0, min(p.want[id], left-p.reserved(id)))
}

// reserved is what the phases after id can count on.
func (p plan) reserved(id Phase) (sum time.Duration) {
	for later := id + 1; int(later) < phases; later++ {
		sum += min(p.want[later], time.Duration(shares[later]*float64(p.total)))
	}
	return sum
}
