// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package pick

import (
	"math/bits"
	"math/rand/v2"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
)

// misses is how often a sample may be turned down before the list is walked through. With half the instances left out,
// eight samples fail in one of 256 choices, so that the walk is rare until it is the cheaper way.
const misses = 8

// checkMask makes one of 1024 choices look at the clock for the age of the weights.
const checkMask = 1<<10 - 1

// Picker chooses invokers. The zero value works on the table of the process; it is safe for concurrent use.
type Picker struct {
	// Table holds what is known of the instances; nil is instance.Default().
	Table *instance.Table

	// Source is where chance comes from; nil is the runtime's generator, which takes no lock.
	Source rand.Source

	weights weights
}

// choice is one selection.
type choice struct {
	*Picker
	table      *instance.Table
	invokers   []base.Invoker
	invocation base.Invocation
	now        time.Time
	troubled   bool // somebody is warming, ejected or leaving: without that no entry has to be looked at
	judging    bool // leave out instances, not only weigh them
	limits     Limits
	counted    bool // forgiving is known
	forgiving  bool
}

// Weighted chooses by weight alone. It returns nil only if there are no invokers.
func (p *Picker) Weighted(invokers []base.Invoker, invocation base.Invocation) base.Invoker {
	return p.choose(invokers, invocation, false, Limits{})
}

// Healthy chooses by weight among the instances that should get a request now. Where there is none, the last resorts are
// the ejected, then those that refuse connections, then the draining. An instance that has been removed is never chosen:
// if there is nothing else, the invoker that is returned answers with ErrNoInstance.
func (p *Picker) Healthy(invokers []base.Invoker, invocation base.Invocation, limits Limits) base.Invoker {
	return p.choose(invokers, invocation, true, limits)
}

// Troubled reports whether any instance is left out or warming at the moment.
func (p *Picker) Troubled() bool { return p.table().Troubled() }

func (p *Picker) table() *instance.Table {
	if p.Table != nil {
		return p.Table
	}
	return instance.Default()
}

func (p *Picker) choose(invokers []base.Invoker, invocation base.Invocation, judging bool, limits Limits) base.Invoker {
	if len(invokers) == 0 {
		return nil
	}
	c := choice{Picker: p, table: p.table(), invokers: invokers, invocation: invocation, judging: judging, limits: limits}
	if c.troubled = c.table.Troubled(); c.troubled {
		c.now = time.Now()
	}
	if len(invokers) > 1 {
		for range misses {
			if invoker := c.sample(); invoker != nil {
				return invoker
			}
		}
	} else if !judging || !c.troubled {
		return invokers[0]
	}
	return c.walk()
}

// sample takes one invoker at random and returns it if chance and its standing allow, else nil.
func (c *choice) sample() base.Invoker {
	r := c.random()
	if r&checkMask == 0 {
		c.weights.expire(time.Now())
	}
	i, _ := bits.Mul64(r, uint64(len(c.invokers))) // the high bits choose, the low ones made the check above
	invoker := c.invokers[i]
	w, entry := c.weigh(invoker)
	if most := float64(w.max); w.now < most && c.float()*most >= w.now {
		return nil
	}
	if !invoker.IsAvailable() || c.judging && c.troubled && !c.admits(entry) {
		return nil
	}
	return invoker
}

// weighed is the weight of one candidate now, and the most that any candidate can have.
type weighed struct {
	now float64
	max int64
}

func (c *choice) weigh(invoker base.Invoker) (weighed, *instance.Entry) {
	url := invoker.GetURL()
	known := c.weights.lookup(url)
	if known == nil {
		known = c.weights.read(url, c.invokers)
	}
	full := known.of(c.invocation)
	w := weighed{now: float64(full), max: known.group.max.Load()}
	if !c.troubled {
		return w, nil
	}
	entry := c.table.Lookup(url.Location)
	if entry != nil {
		w.now = entry.Weight(full, c.now)
	}
	return w, entry
}

// admits reports whether a sampled candidate may be used. It claims the trial of a half-open one.
func (c *choice) admits(entry *instance.Entry) bool {
	switch judge(entry, c.now) {
	case usable:
		return true
	case trial:
		return entry.TryTrial(c.now) || c.forgives()
	case ejected:
		return c.forgives()
	default:
		return false
	}
}

// forgives reports whether this selection ignores ejections. It counts the candidates only if it has to, and only once.
func (c *choice) forgives() bool {
	if !c.counted {
		c.counted = true
		if c.table.Hidden() || c.limits.reached(c.table.Ejected(), c.table.Unreachable(), len(c.invokers)) {
			var count census
			for _, invoker := range c.invokers {
				count[c.standing(invoker)]++
			}
			c.forgiving = count.forgiven(c.limits)
		}
	}
	return c.forgiving
}

func (c *choice) standing(invoker base.Invoker) standing {
	s := judge(c.table.Lookup(invoker.GetURL().Location), c.now)
	if s < unreachable && !invoker.IsAvailable() {
		return unreachable
	}
	return s
}

// walk looks at every candidate once and draws from the best standing that has any.
func (c *choice) walk() base.Invoker {
	var lots [standings]lot
	var count census
	for _, invoker := range c.invokers {
		w, entry := c.weigh(invoker)
		s := usable
		if c.judging && c.troubled {
			s = judge(entry, c.now)
		}
		if s < unreachable && !invoker.IsAvailable() {
			s = unreachable
		}
		count[s]++
		lots[s].add(c, w.now, drawn{invoker, entry, s})
	}
	best := lots[usable]
	best.merge(c, &lots[trial])
	if !c.counted {
		c.counted, c.forgiving = true, count.forgiven(c.limits)
	}
	if c.forgiving {
		best.merge(c, &lots[ejected])
	}
	if best.invoker != nil && (best.standing != trial || best.entry.TryTrial(c.now) || c.forgiving) {
		return best.invoker
	}
	if lots[usable].invoker != nil {
		return lots[usable].invoker // another request has won the trial
	}
	lots[ejected].merge(c, &lots[trial])
	for _, s := range [...]standing{ejected, unreachable, draining} {
		if lots[s].invoker != nil {
			return lots[s].invoker
		}
	}
	return nobody(c.invokers[0].GetURL())
}

// drawn is a candidate that was drawn.
type drawn struct {
	invoker  base.Invoker
	entry    *instance.Entry
	standing standing
}

// lot draws one of several by weight without knowing their sum before: each newcomer takes the place of the one drawn
// with the probability of its share in the sum so far.
type lot struct {
	drawn
	sum float64
}

func (l *lot) add(c *choice, w float64, d drawn) {
	l.sum += w
	if l.invoker == nil || c.float()*l.sum < w {
		l.drawn = d
	}
}

// merge draws between the winners of two lots.
func (l *lot) merge(c *choice, other *lot) {
	if other.invoker != nil {
		l.add(c, other.sum, other.drawn)
	}
}

func (p *Picker) random() uint64 {
	if p.Source != nil {
		return p.Source.Uint64()
	}
	return rand.Uint64()
}

// float returns a number in [0,1).
func (p *Picker) float() float64 { return float64(p.random()>>11) / (1 << 53) }
