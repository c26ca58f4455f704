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
	if !retrying && !r.table.Hidden() || len(invokers) < 2 {
		if retrying {
			log.Offer(len(invokers))
		}
		return invokers
	}
	now, list := time.Now(), invokers
	if retrying {
		log.Offer(len(invokers))
		list = untried(invokers, log)
	}
	list = r.visible(list, now)
	if len(list) == 1 && !list[0].IsAvailable() {
		return r.company(list[0], invokers, now)
	}
	return list
}

// untried returns the invokers of addresses to which the retry has not gone yet, or all of them if there are none.
func untried(invokers []base.Invoker, log *attempt.Log) []base.Invoker {
	var rest []base.Invoker
	for _, ivk := range invokers {
		if !log.Excluded(ivk.GetURL().Location) {
			rest = append(rest, ivk)
		}
	}
	if len(rest) == len(invokers) || len(rest) == 0 {
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
	for best := up; best < removed; best++ {
		if list := r.only(best, invokers, now); len(list) > 0 {
			return list
		}
	}
	return invokers
}

// only returns the invokers of one rank.
func (r *drainingRouter) only(want rank, invokers []base.Invoker, now time.Time) []base.Invoker {
	for i, ivk := range invokers {
		if r.rank(ivk, now) == want {
			continue
		}
		list := append(make([]base.Invoker, 0, len(invokers)-1), invokers[:i]...)
		for _, ivk := range invokers[i+1:] {
			if r.rank(ivk, now) == want {
				list = append(list, ivk)
			}
		}
		return list
	}
	return invokers
}

// company adds to a single invoker that is not available whoever else might answer. dubbo-go's clusters are not prepared for such
// a list of one: failfast panics.
func (r *drainingRouter) company(single base.Invoker, invokers []base.Invoker, now time.Time) []base.Invoker {
	list := []base.Invoker{single}
	for _, ivk := range invokers {
		if ivk != single && r.rank(ivk, now) < removed {
			list = append(list, ivk)
		}
	}
	return list
}
