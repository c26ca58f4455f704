// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package strmap is a hash map with string keys whose readers take no lock and allocate nothing.
//
// sync.Map does not serve: putting a string into an interface allocates on every lookup. A map that is copied
// for every write does not serve either: a thousand instances that appear one by one would copy half a
// million entries.
package strmap

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

const firstBuckets = 16

var seed = maphash.MakeSeed()

// Map maps strings to *V. The zero value is empty and ready. Load and Each are lock-free; the others take one lock.
type Map[V any] struct {
	mu      sync.Mutex
	buckets atomic.Pointer[[]atomic.Pointer[node[V]]]
	size    atomic.Int64
}

// node is one link of a bucket's chain. Writers, who hold the lock, change only next.
type node[V any] struct {
	key   string
	value *V
	next  atomic.Pointer[node[V]]
}

// Load returns the value of key, or nil.
func (m *Map[V]) Load(key string) *V {
	b := m.buckets.Load()
	if b == nil {
		return nil
	}
	for n := slot(*b, key).Load(); n != nil; n = n.next.Load() {
		if n.key == key {
			return n.value
		}
	}
	return nil
}

// LoadOrStore returns the value of key; where there is none it stores what create returns. create runs under
// the lock, once at most. The key is kept.
func (m *Map[V]) LoadOrStore(key string, create func() *V) (v *V, loaded bool) {
	if v = m.Load(key); v != nil {
		return v, true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if v = m.Load(key); v != nil {
		return v, true
	}
	v = create()
	m.grow()
	push(*m.buckets.Load(), key, v)
	m.size.Add(1)
	return v, false
}

// Delete removes key if its value is v.
func (m *Map[V]) Delete(key string, v *V) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.buckets.Load()
	if b == nil {
		return false
	}
	// A reader that stands on the removed link still reaches the rest of the chain through it.
	for at := slot(*b, key); ; {
		n := at.Load()
		if n == nil {
			return false
		}
		if n.key == key {
			if n.value != v {
				return false
			}
			at.Store(n.next.Load())
			m.size.Add(-1)
			return true
		}
		at = &n.next
	}
}

// Len returns the number of keys.
func (m *Map[V]) Len() int { return int(m.size.Load()) }

// Each calls f for every key until f returns false. Keys that come or go meanwhile may be seen or not.
func (m *Map[V]) Each(f func(key string, v *V) bool) {
	b := m.buckets.Load()
	if b == nil {
		return
	}
	for i := range *b {
		for n := (*b)[i].Load(); n != nil; n = n.next.Load() {
			if !f(n.key, n.value) {
				return
			}
		}
	}
}

// grow keeps at most one key per bucket on average. Links are made anew, since readers still walk the old ones.
func (m *Map[V]) grow() {
	old := m.buckets.Load()
	if old == nil {
		b := make([]atomic.Pointer[node[V]], firstBuckets)
		m.buckets.Store(&b)
		return
	}
	if int(m.size.Load()) < len(*old) {
		return
	}
	b := make([]atomic.Pointer[node[V]], 2*len(*old))
	m.Each(func(key string, v *V) bool {
		push(b, key, v)
		return true
	})
	m.buckets.Store(&b)
}

func push[V any](b []atomic.Pointer[node[V]], key string, v *V) {
	at := slot(b, key)
	n := &node[V]{key: key, value: v}
	n.next.Store(at.Load())
	at.Store(n)
}

func slot[V any](b []atomic.Pointer[node[V]], key string) *atomic.Pointer[node[V]] {
	return &b[maphash.String(seed, key)&uint64(len(b)-1)]
}
