// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pgregory.net/rapid"
)

import (
	"github.com/dubbogo/graceful/config"
)

func TestBudgetOf(t *testing.T) {
	for _, c := range []struct {
		name       string
		s          config.Shutdown
		kubernetes bool
		want       time.Duration
		why        string
	}{
		{"default", config.Shutdown{}, false, time.Minute, "default"},
		{"Kubernetes", config.Shutdown{}, true, 25 * time.Second, "assumed in Kubernetes"},
		{"grace period", config.Shutdown{GracePeriod: 45 * time.Second}, false, 40 * time.Second, "shutdown.grace-period"},
		{"grace period in Kubernetes", config.Shutdown{GracePeriod: 90 * time.Second}, true, 85 * time.Second, "shutdown.grace-period"},
		{"grace period that has no 5 s to give", config.Shutdown{GracePeriod: 6 * time.Second}, false, 3 * time.Second, "less 3s"},
		{"shorter than 60 s", config.Shutdown{Timeout: 4 * time.Second}, false, 4 * time.Second, "shutdown.timeout"},
		{"timeout wins", config.Shutdown{Timeout: 10 * time.Second, GracePeriod: 30 * time.Second}, true, 10 * time.Second, "shutdown.timeout"},
		{"timeout that SIGKILL ends", config.Shutdown{Timeout: 28 * time.Second}, true, 28 * time.Second, "WARNING"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, why := budgetOf(c.s, c.kubernetes)
			assert.Equal(t, c.want, got)
			assert.Contains(t, why, c.why)
		})
	}
}

func TestShares(t *testing.T) {
	sum := 0.0
	for _, s := range shares {
		sum += s
	}
	assert.InDelta(t, 1, sum, 1e-9)
}

// With the defaults nothing is squeezed: each phase has what it wants, inbound the rest.
func TestPlanOfTheDefaults(t *testing.T) {
	s := config.Default()
	p := newPlan(25*time.Second, s.Drain, s.Shutdown.CallbackTimeout, 0)
	left := p.total
	assert.Equal(t, publishLimit, p.limit(Announced, left))
	assert.Equal(t, 3*time.Second, p.limit(Quiesced, left))
	assert.Equal(t, publishLimit, p.limit(Unregistered, left))
	assert.Equal(t, 8*time.Second, p.limit(Settled, left))
	assert.Equal(t, left-2500*time.Millisecond-time.Second, p.limit(InboundDrained, left), "all but the shares of outbound and closed")
	assert.Zero(t, p.limit(Callbacks, left), "there are none")
}

// Whatever the phases take of their slices, they stay within the budget, and each has at least its share or what it wants.
func TestPlanHoldsTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		duration := func(name string, most time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, name))
		}
		total := duration("total", 2*time.Minute)
		d := config.Drain{
			Timeout: duration("timeout", time.Minute), SettleTimeout: duration("settle", time.Minute), MinWait: duration("min", time.Minute),
			InboundTimeout: duration("inbound", time.Minute), OutboundTimeout: duration("outbound", time.Minute),
		}
		p := newPlan(total, d, duration("callback", 10*time.Second), rapid.IntRange(0, 30).Draw(t, "callbacks"))
		left := total
		for id := NotReady; int(id) < phases; id++ {
			limit := p.limit(id, left)
			require.GreaterOrEqual(t, limit, min(p.want[id], time.Duration(shares[id]*float64(total)))-time.Microsecond, "%s", id)
			require.LessOrEqual(t, limit, p.want[id], "%s", id)
			part := rapid.Float64Range(0, 1).Draw(t, "part")
			if rapid.Bool().Draw(t, "all") {
				part = 1
			}
			left -= time.Duration(part * float64(limit))
			require.GreaterOrEqual(t, left, time.Duration(0), "%s", id)
		}
	})
}
