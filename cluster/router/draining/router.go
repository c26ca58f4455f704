// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package draining

import (
	"math"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/cluster/router"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/attempt"
)

type factory struct{}

// NewPriorityRouter implements router.PriorityRouterFactory.
func (factory) NewPriorityRouter(url *common.URL) (router.PriorityRouter, error) {
	return &drainingRouter{url: url, table: instance.Default()}, nil
}

type drainingRouter struct {
	url   *common.URL
	table *instance.Table
}

// URL implements router.PriorityRouter.
func (r *drainingRouter) URL() *common.URL { return r.url }

// Priority implements router.PriorityRouter. Lower ones run first, and the others decide who may be asked at all; hidden before
// them, an instance that is the only one of its tag or zone would be missed there.
func (r *drainingRouter) Priority() int64 { return math.MaxInt64 }

// Notify implements router.PriorityRouter.
func (r *drainingRouter) Notify([]base.Invoker) {}

// Route implements router.PriorityRouter.
func (r *drainingRouter) Route(invokers []base.Invoker, _ *common.URL, inv base.Invocation) []base.Invoker {
	v, _ := inv.GetAttribute(attempt.Key)
	log, _ := v.(*attempt.Log)
	retrying := log.Retrying()
	if !retrying && !r.table.Hidden() {
		return invokers
	}
	if retrying {
		log.Offer(len(invokers))
		invokers = untried(invokers, log)
	}
	return r.visible(invokers, time.Now())
}

// untried returns the invokers of addresses to which the retry has not gone yet.
func untried(invokers []base.Invoker, log *attempt.Log) []base.Invoker {
	var rest []base.Invoker
	for _, ivk := range invokers {
		if !log.Excluded(ivk.GetURL().Location) {
			rest = append(rest, ivk)
		}
	}
	if len(rest) == len(invokers) {
		return invokers
	}
	return rest
}

// rank orders what may be asked when nothing better is left.
type rank int

const (
	up rank = iota // also the ejected ones: the load balancer knows more about these
	leaving
	removed
	ranks
)

func (r *drainingRouter) rank(ivk base.Invoker, now time.Time) rank {
	e := r.table.Lookup(ivk.GetURL().Location)
	switch {
	case e == nil || !e.Hidden(now):
		return up
	case e.Verdict(now) == instance.Removed:
		return removed
	default:
		return leaving
	}
}

// visible returns the invokers of the best rank that is there: the slice itself if that is all of them.
func (r *drainingRouter) visible(invokers []base.Invoker, now time.Time) []base.Invoker {
	var of [ranks]int
	for _, ivk := range invokers {
		of[r.rank(ivk, now)]++
	}
	for best := up; best < removed; best++ {
		switch of[best] {
		case 0:
			continue
		case len(invokers):
			return invokers
		}
		list := r.pick(invokers, best, of[best], now)
		if len(list) == 1 && best == up && !list[0].IsAvailable() && of[leaving] > 0 {
			// dubbo-go's clusters are not prepared for a single instance that is not available: failfast would panic.
			return append(list, r.pick(invokers, leaving, of[leaving], now)...)
		}
		if len(list) > 0 {
			return list
		}
	}
	return invokers
}

func (r *drainingRouter) pick(invokers []base.Invoker, want rank, n int, now time.Time) []base.Invoker {
	list := make([]base.Invoker, 0, n)
	for _, ivk := range invokers {
		if r.rank(ivk, now) == want {
			list = append(list, ivk)
		}
	}
	return list
}
