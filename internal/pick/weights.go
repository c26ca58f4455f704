// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package pick

import (
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

	// generationSize bounds the URLs kept, for invokers that make a new URL each time they are asked.
	generationSize = 1 << 16

	methodPrefix = "methods."
	weightSuffix = "." + constant.WeightKey
)

// weights remembers the weights that were read out of URLs, since reading one takes a lock and parses a number.
//
// The key is the URL itself, by identity: dubbo-go replaces an invoker, and with it the URL, when a weight changes. The
// zero value works.
type weights struct {
	current atomic.Pointer[generation]
	learn   sync.Mutex // one reader of URLs at a time: after a change of generation many come at once
}

// generation is what was read since the last fresh start.
type generation struct {
	born   time.Time
	urls   sync.Map // *common.URL -> *weight
	groups sync.Map // service key -> *group
	size   atomic.Int64
}

// group is what the instances of one service have in common.
type group struct {
	max atomic.Int64 // no weight in the group is greater; only grows within a generation
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
		if m, ok := w.methods[invocation.MethodName()]; ok {
			return m
		}
	}
	return w.base
}

// lookup returns what is known of a URL, nil if nothing is.
func (ws *weights) lookup(url *common.URL) *weight {
	g := ws.current.Load()
	if g == nil {
		return nil
	}
	v, ok := g.urls.Load(url)
	if !ok {
		return nil
	}
	return v.(*weight)
}

// read reads the weights of a whole list, because a maximum is one only if all were asked, and returns that of url.
func (ws *weights) read(url *common.URL, invokers []base.Invoker) *weight {
	ws.learn.Lock()
	defer ws.learn.Unlock()
	if w := ws.lookup(url); w != nil {
		return w // another caller has read the list meanwhile
	}
	g := ws.current.Load()
	if g == nil || g.size.Load() >= generationSize {
		g = &generation{born: time.Now()}
	}
	// All maxima first, then the weights: once a weight can be seen, the maximum of its list is complete.
	found := make(map[*common.URL]*weight, len(invokers)+1)
	found[url] = nil
	for _, invoker := range invokers {
		if u := invoker.GetURL(); u != nil {
			found[u] = nil
		}
	}
	for u := range found {
		if _, known := g.urls.Load(u); known {
			delete(found, u)
			continue
		}
		found[u] = g.parse(u)
	}
	for u, w := range found {
		g.urls.Store(u, w)
	}
	g.size.Add(int64(len(found)))
	ws.current.Store(g)
	return found[url]
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
	v, ok := g.groups.Load(key)
	if !ok {
		v, _ = g.groups.LoadOrStore(key, &group{})
	}
	w.group = v.(*group)
	w.group.raise(w.base)
	for _, m := range w.methods {
		w.group.raise(m)
	}
	return w
}

func (g *group) raise(w int64) {
	for {
		old := g.max.Load()
		if w <= old || g.max.CompareAndSwap(old, w) {
			return
		}
	}
}

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
