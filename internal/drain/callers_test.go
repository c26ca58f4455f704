// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/internal/drain"
	"github.com/dubbogo/graceful/internal/wire"
)

const me = "10.0.0.9:20000"

var began = time.Now()

func header(i int, to string) string {
	return wire.Caller{App: "shop", IP: "10.0.0.7", Start: fmt.Sprintf("%d-a", i), To: to}.Format()
}

func views(c *drain.Callers) (known map[string]drain.CallerView, unknown *drain.CallerView) {
	known = map[string]drain.CallerView{}
	c.Each(func(v drain.CallerView) {
		if v.Unknown {
			unknown = &v
			return
		}
		known[v.Caller.Start] = v
	})
	return known, unknown
}

func TestCallers(t *testing.T) {
	var c drain.Callers
	known, unknown := views(&c)
	assert.Empty(t, known)
	assert.Nil(t, unknown, "nobody called")

	a := c.Seen(header(1, me), me, began)
	assert.Equal(t, "shop", a.Caller().App)
	assert.Same(t, a, c.Seen(header(1, me), me, began.Add(time.Second)))
	c.Seen(header(2, me), "", began)
	a.Acked(began.Add(2 * time.Second))

	known, unknown = views(&c)
	assert.Nil(t, unknown)
	require.Len(t, known, 2)
	one := known["1-a"]
	assert.Equal(t, wire.Caller{App: "shop", IP: "10.0.0.7", Start: "1-a", To: me}, one.Caller)
	assert.Equal(t, uint64(2), one.Requests)
	assert.True(t, one.LastSeen.Equal(began.Add(time.Second)))
	assert.True(t, one.AckedAt.Equal(began.Add(2*time.Second)))
	assert.True(t, known["2-a"].AckedAt.IsZero())
}

func TestUnknownCallers(t *testing.T) {
	var c drain.Callers
	first := c.Seen("", me, began)
	for name, h := range map[string]string{
		"not ours":              "shop",
		"meant for another":     header(1, "10.0.0.8:20000"),
		"meant for nobody":      header(1, ""),
		"longer than a header":  header(1, me) + string(make([]byte, 300)),
		"without a start id":    "shop@10.0.0.7/;to=" + me,
		"of another instance, ": header(1, me+"0"),
	} {
		assert.Same(t, first, c.Seen(h, me, began), name)
	}
	c.Seen(header(1, me), me, began)
	assert.Same(t, first, c.Seen(header(1, me), "10.0.0.8:20000", began), "known at another address of this process")
	known, unknown := views(&c)
	assert.Len(t, known, 1)
	require.NotNil(t, unknown)
	assert.Equal(t, uint64(8), unknown.Requests)
	assert.Zero(t, unknown.Caller)
}

func TestCallersAreBounded(t *testing.T) {
	var c drain.Callers
	keep := header(0, me)
	for i := range 3 * drain.MaxCallers {
		now := began.Add(time.Duration(i) * time.Millisecond)
		c.Seen(header(i+1, me), me, now)
		c.Seen(keep, me, now)
	}
	known, unknown := views(&c)
	assert.Nil(t, unknown)
	assert.LessOrEqual(t, len(known), drain.MaxCallers)
	assert.Greater(t, len(known), drain.MaxCallers-300)
	assert.Contains(t, known, "0-a", "who calls all the time stays")
	assert.Equal(t, uint64(3*drain.MaxCallers), known["0-a"].Requests)
	for i := 3 * drain.MaxCallers; i > 2*drain.MaxCallers+300; i-- {
		if _, ok := known[fmt.Sprintf("%d-a", i)]; !ok {
			t.Fatalf("%d went before others that were not seen for longer", i)
		}
	}
}

func TestConcurrentCallers(t *testing.T) {
	var c drain.Callers
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				c.Seen(header(i*(g%2+1), me), me, began.Add(time.Duration(i))).Acked(began)
			}
		})
	}
	wg.Wait()
	known, _ := views(&c)
	assert.LessOrEqual(t, len(known), drain.MaxCallers)
	var sum uint64
	for _, v := range known {
		sum += v.Requests
	}
	assert.Equal(t, uint64(4*2000), sum, "3000 different callers fit")
}

func TestActivity(t *testing.T) {
	var c drain.Callers
	next := c.Activity()
	assert.Equal(t, next, c.Activity(), "one channel until something happens")
	assert.False(t, isClosed(next))
	c.Seen("", me, began)
	assert.True(t, isClosed(next))
	assert.False(t, isClosed(c.Activity()), "the next request")

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				ch := c.Activity()
				c.Seen("", me, began)
				<-ch
			}
		})
	}
	wg.Wait()
}

func TestKnownCallerAllocatesNothing(t *testing.T) {
	var c drain.Callers
	h, now := header(1, me), time.Now()
	c.Seen(h, me, now)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { c.Seen(h, me, now).Acked(now) }))
	assert.Zero(t, testing.AllocsPerRun(1000, func() { c.Seen("", me, now) }))
}

func BenchmarkSeen(b *testing.B) {
	for _, n := range []int{1, 4000} {
		var c drain.Callers
		headers := make([]string, n)
		now := time.Now()
		for i := range headers {
			headers[i] = header(i, me)
			c.Seen(headers[i], me, now)
		}
		b.Run(fmt.Sprintf("known=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				c.Seen(headers[i], me, now)
				if i++; i == n {
					i = 0
				}
			}
		})
	}
}

// What a flood of made-up callers costs: each is new, and each makes the oldest go.
func BenchmarkSeenFlood(b *testing.B) {
	var c drain.Callers
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Seen(header(i, me), me, began.Add(time.Duration(i)))
	}
}
