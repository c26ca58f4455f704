// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package strmap_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pgregory.net/rapid"
)

import (
	"github.com/dubbogo/graceful/internal/strmap"
)

func TestLikeAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m strmap.Map[int]
		model := map[string]*int{}
		key := rapid.Custom(func(t *rapid.T) string { return strconv.Itoa(rapid.IntRange(0, 60).Draw(t, "key")) })
		t.Repeat(map[string]func(*rapid.T){
			"load": func(t *rapid.T) {
				k := key.Draw(t, "k")
				require.True(t, model[k] == m.Load(k))
			},
			"store": func(t *rapid.T) {
				k, v := key.Draw(t, "k"), new(int)
				old, known := model[k]
				got, loaded := m.LoadOrStore(k, func() *int {
					require.False(t, known)
					return v
				})
				require.Equal(t, known, loaded)
				if known {
					require.True(t, old == got)
				} else {
					require.True(t, v == got)
					model[k] = v
				}
			},
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "k")
				old, known := model[k]
				require.False(t, m.Delete(k, new(int)), "another value stays")
				if !known {
					require.False(t, m.Delete(k, nil))
					return
				}
				require.True(t, m.Delete(k, old))
				delete(model, k)
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(model), m.Len())
				seen := map[string]*int{}
				m.Each(func(k string, v *int) bool {
					require.NotContains(t, seen, k)
					seen[k] = v
					return true
				})
				require.Equal(t, len(model), len(seen))
				for k, v := range model {
					require.True(t, seen[k] == v)
				}
			},
		})
	})
}

func TestEachStops(t *testing.T) {
	var m strmap.Map[int]
	m.Each(func(string, *int) bool { panic("empty") })
	assert.False(t, m.Delete("a", nil))
	for i := range 10 {
		m.LoadOrStore(strconv.Itoa(i), func() *int { return new(int) })
	}
	n := 0
	m.Each(func(string, *int) bool { n++; return n < 3 })
	assert.Equal(t, 3, n)
}

// A key that stays is found at every moment, while others come and go and the table grows.
func TestReadersSeeWhatStays(t *testing.T) {
	var m strmap.Map[int]
	stays := make([]*int, 32)
	for i := range stays {
		stays[i], _ = m.LoadOrStore(fmt.Sprint("stays", i), func() *int { return new(int) })
	}
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				k := i % len(stays)
				if m.Load(fmt.Sprint("stays", k)) != stays[k] {
					t.Error("lost")
					return
				}
			}
		})
	}
	for w := range 2 {
		writers.Go(func() {
			for i := range 500 {
				k := fmt.Sprint(w, "-", i)
				v, _ := m.LoadOrStore(k, func() *int { return new(int) })
				if i%3 != 0 {
					assert.True(t, m.Delete(k, v))
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	assert.Equal(t, len(stays)+2*167, m.Len())
}

func TestLoadAllocatesNothing(t *testing.T) {
	var m strmap.Map[int]
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprintf("10.0.0.%d:20000", i)
		m.LoadOrStore(keys[i], func() *int { return new(int) })
	}
	i := 0
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		i++
		if m.Load(keys[i%len(keys)]) == nil {
			t.Error("lost")
		}
	}))
}

func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{10, 1000} {
		var m strmap.Map[int]
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprintf("10.0.%d.%d:20000", i/250, i%250)
			m.LoadOrStore(keys[i], func() *int { return new(int) })
		}
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				m.Load(keys[i])
				if i++; i == n {
					i = 0
				}
			}
		})
	}
}
