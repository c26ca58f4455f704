// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pgregory.net/rapid"
)

import (
	"github.com/dubbogo/graceful/internal/drain"
)

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Any order of calls, against a model: never counted while rejecting, and every channel of Zero closes exactly with the first
// moment of zero after it was asked for.
func TestCounterModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			c                 drain.Counter
			count             int64
			rejecting         bool
			entered, rejected uint64
			open              []<-chan struct{} // asked for while count was above 0, and it has not been 0 since
			shut              []<-chan struct{}
		)
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				require.Equal(t, !rejecting, c.Enter())
				if rejecting {
					rejected++
				} else {
					entered++
					count++
				}
			},
			"leave": func(*rapid.T) {
				c.Leave()
				if count > 0 {
					if count--; count == 0 {
						shut, open = append(shut, open...), nil
					}
				}
			},
			"reject": func(*rapid.T) { c.Reject(); rejecting = true },
			"accept": func(*rapid.T) { c.Accept(); rejecting = false },
			"zero": func(*rapid.T) {
				if count == 0 {
					shut = append(shut, c.Zero())
				} else {
					open = append(open, c.Zero())
				}
			},
			"": func(t *rapid.T) {
				require.Equal(t, count, c.InFlight())
				require.Equal(t, rejecting, c.Rejecting())
				e, r := c.Total()
				require.Equal(t, entered, e)
				require.Equal(t, rejected, r)
				for _, ch := range open {
					require.False(t, isClosed(ch), "zero was not reached")
				}
				for _, ch := range shut {
					require.True(t, isClosed(ch), "zero was reached")
				}
			},
		})
	})
}

// Requests come and go on all sides while the flag is switched. When the count is zero under the flag, nothing runs, and
// nothing starts to.
func TestNothingRunsAfterZeroWhileRejecting(t *testing.T) {
	var (
		c       drain.Counter
		running atomic.Int64
		stop    atomic.Bool
		wg      sync.WaitGroup
		entered atomic.Uint64
		refused atomic.Uint64
	)
	for seed := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for !stop.Load() {
				if !c.Enter() {
					refused.Add(1)
					continue
				}
				entered.Add(1)
				running.Add(1)
				for range r.IntN(50) {
					_ = running.Load()
				}
				running.Add(-1)
				c.Leave()
			}
		})
	}
	for range 5000 {
		c.Reject()
		<-c.Zero()
		for range 50 {
			if n := running.Load(); n != 0 {
				t.Errorf("%d requests run", n)
			}
			if n := c.InFlight(); n != 0 {
				t.Errorf("%d requests are counted", n)
			}
		}
		c.Accept()
	}
	stop.Store(true)
	wg.Wait()
	e, r := c.Total()
	assert.Equal(t, entered.Load(), e)
	assert.Equal(t, refused.Load(), r)
	assert.Zero(t, c.InFlight())
}

// Many wait for zero while it is reached again and again: everybody wakes up.
func TestEveryWaiterWakes(t *testing.T) {
	var c drain.Counter
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 300 {
				if c.Enter() {
					zero := c.Zero()
					c.Leave()
					<-zero
				}
			}
		})
	}
	wg.Wait()
	assert.Zero(t, c.InFlight())
	assert.True(t, isClosed(c.Zero()))
}

func TestLeaveTooMany(t *testing.T) {
	var c drain.Counter
	c.Leave()
	assert.Zero(t, c.InFlight())
	c.Reject()
	c.Leave()
	assert.True(t, c.Rejecting(), "the flag is not touched")
	c.Accept()
	assert.True(t, c.Enter())
	assert.Equal(t, int64(1), c.InFlight())
}

func TestLastLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c drain.Counter
		assert.True(t, c.LastLeave().IsZero())
		c.Enter()
		c.Enter()
		time.Sleep(time.Second)
		c.Leave()
		left := time.Now()
		assert.True(t, c.LastLeave().Equal(left) || left.Sub(c.LastLeave()) == 0)
		zero := c.Zero()
		go func() {
			time.Sleep(time.Minute)
			c.Leave()
		}()
		<-zero
		assert.Zero(t, time.Since(c.LastLeave()), "known when zero is signalled")
		assert.Equal(t, time.Minute, c.LastLeave().Sub(left))
	})
}

func TestProcessCounters(t *testing.T) {
	assert.Same(t, drain.Inbound(), drain.Inbound())
	assert.NotSame(t, drain.Inbound(), drain.Outbound())
	assert.Same(t, drain.KnownCallers(), drain.KnownCallers())
}

func TestCounterAllocatesNothing(t *testing.T) {
	var c drain.Counter
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		c.Enter()
		c.Leave()
	}))
	c.Reject()
	assert.Zero(t, testing.AllocsPerRun(1000, func() { c.Enter() }))
}

func BenchmarkEnterLeave(b *testing.B) {
	var c drain.Counter
	b.ReportAllocs()
	for b.Loop() {
		c.Enter()
		c.Leave()
	}
}

func BenchmarkEnterLeaveParallel(b *testing.B) {
	var c drain.Counter
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Enter()
			c.Leave()
		}
	})
}
