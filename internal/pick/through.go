// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package pick

import (
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
)

// Selector is what is asked of a load balancer.
type Selector interface {
	Select([]base.Invoker, base.Invocation) base.Invoker
}

// Through lets another load balancer choose among the instances that should get a request now, with the same last
// resorts as Healthy. The list is handed on as it is unless somebody has to be left out of it.
func (p *Picker) Through(next Selector, invokers []base.Invoker, invocation base.Invocation, limits Limits) base.Invoker {
	t := p.table()
	if len(invokers) == 0 || !t.Troubled() {
		return next.Select(invokers, invocation)
	}
	c := choice{Picker: p, table: t, invokers: invokers, now: time.Now(), troubled: true, judging: true, limits: limits}
	var count census
	for _, invoker := range invokers {
		count[c.standing(invoker)]++
	}
	if count[usable] == len(invokers) {
		return next.Select(invokers, invocation)
	}
	forgiving := count.forgiven(limits)
	left := c.keep(func(s standing) bool { return s <= trial || forgiving && s == ejected })
	for len(left) > 0 {
		chosen := next.Select(left, invocation)
		if chosen == nil {
			return nil // its answer, whatever it means
		}
		entry := t.Lookup(chosen.GetURL().Location)
		if judge(entry, c.now) != trial || entry.TryTrial(c.now) || forgiving {
			return chosen
		}
		rest := without(left, chosen) // another request has won the trial
		if len(rest) == len(left) {
			return chosen // not one of ours
		}
		left = rest
	}
	if left = c.keep(func(s standing) bool { return s == trial || s == ejected }); len(left) > 0 {
		return next.Select(left, invocation)
	}
	for _, last := range [...]standing{unreachable, draining} {
		if left = c.keep(func(s standing) bool { return s == last }); len(left) > 0 {
			return next.Select(left, invocation)
		}
	}
	return nobody(invokers[0].GetURL())
}

func (c *choice) keep(wanted func(standing) bool) []base.Invoker {
	left := make([]base.Invoker, 0, len(c.invokers))
	for _, invoker := range c.invokers {
		if wanted(c.standing(invoker)) {
			left = append(left, invoker)
		}
	}
	return left
}

func without(invokers []base.Invoker, one base.Invoker) []base.Invoker {
	left := make([]base.Invoker, 0, len(invokers))
	for _, invoker := range invokers {
		if invoker != one {
			left = append(left, invoker)
		}
	}
	return left
}
