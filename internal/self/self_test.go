// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package self_test

import (
	"sync"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
)

import (
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/wire"
)

func TestStatus(t *testing.T) {
	t.Cleanup(func() { self.SetStatus(wire.Up) })
	first := self.SetStatus(wire.Up)
	assert.Same(t, first, self.Current())
	assert.True(t, wire.ValidStart(first.Start))
	started, ok := wire.StartTime(first.Start)
	assert.True(t, ok)
	assert.WithinDuration(t, time.Now(), started, time.Hour)
	assert.Empty(t, first.Response)

	draining := self.SetStatus(wire.Draining)
	assert.Equal(t, first.Seq+1, draining.Seq)
	assert.Equal(t, first.Start, draining.Start)
	assert.Equal(t, wire.FormatDraining(first.Start), draining.Response)
	assert.Equal(t, wire.Mark{Status: wire.Draining, Start: first.Start, Seq: first.Seq + 1, Warmup: first.Warmup}, draining.Mark())
	assert.Same(t, draining, self.SetStatus(wire.Draining), "no change, no new number")
	assert.Equal(t, wire.Up, first.Status, "a state that was read does not change")

	up := self.SetStatus(wire.Unknown)
	assert.Equal(t, wire.Up, up.Status)
	assert.Equal(t, first.Seq+2, up.Seq)
	assert.Empty(t, up.Response)
}

func TestWarmup(t *testing.T) {
	t.Cleanup(func() { self.SetWarmup("") })
	seq := self.Current().Seq
	s := self.SetWarmup("1m0s")
	assert.Equal(t, "1m0s", s.Mark().Warmup)
	assert.Equal(t, seq, s.Seq, "only a status has a number")
	assert.Same(t, s, self.SetWarmup("1m0s"))
}

func TestEveryChangeHasItsNumber(t *testing.T) {
	t.Cleanup(func() { self.SetStatus(wire.Up) })
	before := self.SetStatus(wire.Up).Seq
	var mu sync.Mutex
	seen := map[uint64]wire.Status{}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 200 {
				s := self.SetStatus([]wire.Status{wire.Up, wire.Draining}[i%2])
				mu.Lock()
				if old, ok := seen[s.Seq]; ok {
					assert.Equal(t, old, s.Status, "one number, one status")
				}
				seen[s.Seq] = s.Status
				mu.Unlock()
				assert.Equal(t, s.Status == wire.Draining, s.Response != "")
			}
		})
	}
	wg.Wait()
	assert.GreaterOrEqual(t, self.Current().Seq, before)
}

func TestCurrentAllocatesNothing(t *testing.T) {
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if self.Current().Response != "" {
			t.Error("draining")
		}
	}))
}
