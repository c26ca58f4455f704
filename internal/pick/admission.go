// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package pick

import (
	"time"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/attempt"
)

// Limits say how many instances may be left out because they fail.
type Limits struct {
	// MaxPercent of the candidates may be left out for broken connections and timeouts; if it were more, none of those is.
	// One always may, if there is another.
	MaxPercent int

	// PanicPercent of the candidates must be usable, or none is left out for broken connections and timeouts.
	PanicPercent int
}

// standing is how far a candidate may be used now. The order is that of the last resorts.
type standing uint8

const (
	usable      standing = iota
	trial                // ejected, its time is over, and a dial succeeded: one request may try it
	ejected              // for broken connections or timeouts
	unreachable          // its last dial was refused, or its invoker says that it has no connection
	draining
	removed // taken out of the registry, held back for requests in flight: never chosen
	standings
)

// judge tells the standing of an instance. nil is an instance nothing is known of.
func judge(e *instance.Entry, now time.Time) standing {
	if e == nil {
		return usable
	}
	switch e.Verdict(now) {
	case instance.Usable:
		return usable
	case instance.Trial:
		return trial
	case instance.Ejected:
		if e.EjectedFor() == attempt.NotExecuted {
			return unreachable // the request's own dial was the one that was refused
		}
		return ejected
	case instance.Unreachable:
		return unreachable
	case instance.Draining:
		return draining
	default:
		return removed
	}
}

// census counts the candidates of one selection by their standing.
type census [standings]int

// forgiven reports whether this selection ignores ejections: too many candidates would be left out, or too few be left.
// It never covers instances that refuse connections (a request there is lost for certain), that drain, or are removed.
func (c *census) forgiven(l Limits) bool {
	n := 0
	for _, k := range c {
		n += k
	}
	out := c[trial] + c[ejected]
	if out > 1 && out*100 > l.MaxPercent*n {
		return true
	}
	return out > 0 && c[usable]*100 < l.PanicPercent*n
}

// reached reports whether the limits can be reached by n candidates at all, if that many instances are ejected and
// unreachable in the whole process and nobody drains. Most of the time it is no, and nobody has to be counted.
func (l Limits) reached(ejected, unreachable, n int) bool {
	return ejected > 1 && ejected*100 > l.MaxPercent*n || (n-ejected-unreachable)*100 < l.PanicPercent*n
}
