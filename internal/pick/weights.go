// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package pick

import (
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
)

const (
	// defaultWeight is the weight of a provider that publishes none. Zero means none: dubbo-go puts weight=0 into the
	// URLs of providers that never heard of weights.
	defaultWeight = 100

	// generationAge is how long the weights that were read are kept. It bounds how long the URL of an instance that is
	// gone is held in memory, and how long a maximum is believed whose owner is gone. Reading them again costs a few
	// hundred nanoseconds for each instance, once a minute.
	generationAge = time.Minute

	methodPrefix = "methods."
	weightSuffix = "." + constant.WeightKey
)

// generationSize bounds the URLs kept, for invokers that make a new URL each time they are asked. Tests lower it.
var generationSize = 1 << 16

// weights remembers the weights that were read out of URLs, since reading one takes a lock and parses a number.
//
// The key is the URL itself, by identity: dubbo-go replaces an invoker, and with it the URL, when a weight changes. The
// zero value works. Looking up takes no lock.
type weights struct {
	current atomic.Pointer[generation]
	learn   sync.Mutex // one reader of URLs at a time: after a change of generation many come at once
}

// generation is what was read since the last fresh start: a hash table with open addressing, because a choice among a
// thousand instances costs what it reads from memory, and here that is one cache line. Only the holder of the lock adds
// to it; one that is too full is replaced by a greater copy.
type generation struct {
	born   time.Time
	seed   maphash.Seed
	slots  []slot // a power of two, less than half of them used
	used   int
	groups map[string]*group // by service key; for the holder of the lock only
}

// slot is empty while url is nil. The weight is stored first.
type slot struct {
	url    atomic.Pointer[common.URL]
	weight atomic.Pointer[weight]
}

// group is what the instances of one service have in common.
type group struct {
	max    atomic.Int64      // no weight in the group is greater; only grows within a generation
	common map[int64]*weight // those that have no methods of their own: one for all URLs, so that it stays in the cache
}

// weight is the weight of one URL, and of its methods where they have one of their own.
type weight struct {
	group   *group
	base    int64
	methods map[string]int64 // nil for nearly all
}

// of returns the weight for an invocation.
func (w *weight) of(invocation base.Invocation) int64 {
	if w.methods != nil && invocation != nil {
		if m, ok := w.methods[invocation.ActualMethodName()]; ok {
			return m
		}
	}
	return w.base
}

// lookup returns what is known of a URL, nil if nothing is.
func (ws *weights) lookup(url *common.URL) *weight {
	if g := ws.current.Load(); g != nil {
		return g.find(url).weight.Load()
	}
	return nil
}

// find returns the slot of a URL, or the empty one where it belongs.
func (g *generation) find(url *common.URL) *slot {
	mask := uint64(len(g.slots) - 1)
	for i := maphash.Comparable(g.seed, url); ; i++ {
		s := &g.slots[i&mask]
		if u := s.url.Load(); u == url || u == nil {
			return s
		}
	}
}

// read reads the weights of a whole list, because a maximum is one only if all were asked, and returns that of url.
func (ws *weights) read(url *common.URL, invokers []base.Invoker) *weight {
	ws.learn.Lock()
	defer ws.learn.Unlock()
	if w := ws.lookup(url); w != nil {
		return w // another caller has read the list meanwhile
	}
	g := ws.current.Load()
	if g == nil || g.used >= generationSize {
		g = &generation{born: time.Now(), seed: maphash.MakeSeed(), groups: make(map[string]*group)}
	}
	g = g.room(len(invokers) + 1)
	// All maxima first, then the weights: once a weight can be seen, the maximum of its list is complete.
	fresh := make([]*weight, len(invokers))
	for i, invoker := range invokers {
		if u := invoker.GetURL(); g.find(u).url.Load() == nil {
			fresh[i] = g.parse(u)
		}
	}
	for i, invoker := range invokers {
		if fresh[i] != nil {
			g.put(invoker.GetURL(), fresh[i])
		}
	}
	if g.find(url).url.Load() == nil { // an invoker that has another URL each time it is asked
		g.put(url, g.parse(url))
	}
	ws.current.Store(g)
	return g.find(url).weight.Load()
}

// room returns the generation itself if n more URLs have room in it, else a greater copy.
func (g *generation) room(n int) *generation {
	size := max(64, len(g.slots))
	for (g.used+n)*2 >= size {
		size *= 2
	}
	if size == len(g.slots) {
		return g
	}
	greater := &generation{born: g.born, seed: g.seed, groups: g.groups, slots: make([]slot, size)}
	for i := range g.slots {
		if u := g.slots[i].url.Load(); u != nil {
			greater.put(u, g.slots[i].weight.Load())
		}
	}
	return greater
}

func (g *generation) put(url *common.URL, w *weight) {
	if s := g.find(url); s.url.Load() == nil {
		s.weight.Store(w)
		s.url.Store(url)
		g.used++
	}
}

// expire begins a new generation if the present one is too old.
func (ws *weights) expire(now time.Time) {
	if g := ws.current.Load(); g != nil && now.Sub(g.born) >= generationAge {
		ws.current.CompareAndSwap(g, nil)
	}
}

// parse reads the weights of a URL and counts them into the maximum of its group.
func (g *generation) parse(url *common.URL) *weight {
	w := parse(url)
	key := url.ServiceKey()
	w.group = g.groups[key]
	if w.group == nil {
		w.group = &group{common: make(map[int64]*weight)}
		g.groups[key] = w.group
	}
	w.group.raise(w.base)
	for _, m := range w.methods {
		w.group.raise(m)
	}
	if w.methods != nil {
		return w
	}
	if known := w.group.common[w.base]; known != nil {
		return known
	}
	w.group.common[w.base] = w
	return w
}

// raise is called by the holder of the lock.
func (g *group) raise(w int64) { g.max.Store(max(w, g.max.Load())) }

// parse reads the weights out of a URL: of a method, else of the registry that the URL stands for, else of the provider.
func parse(url *common.URL) *weight {
	w := &weight{base: positive(url.GetParam(constant.WeightKey, ""))}
	if url.GetParamBool(constant.RegistryKey+"."+constant.RegistryLabelKey, false) {
		w.base = positive(url.GetParam(constant.RegistryKey+"."+constant.WeightKey, ""))
	}
	url.RangeParams(func(key, value string) bool {
		name, ok := strings.CutPrefix(key, methodPrefix)
		if !ok {
			return true
		}
		if name, ok = strings.CutSuffix(name, weightSuffix); !ok {
			return true
		}
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && n > 0 {
			if w.methods == nil {
				w.methods = make(map[string]int64)
			}
			w.methods[name] = n
		}
		return true
	})
	return w
}

func positive(s string) int64 {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n > 0 {
		return n
	}
	return defaultWeight
}
