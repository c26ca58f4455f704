// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package warmup

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/invocation"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.uber.org/goleak"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/attempt"
)

// What dubbo-go's packages started in their init is none of ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

func providers(t *testing.T, n int) []base.Invoker {
	t.Helper()
	var invokers []base.Invoker
	for i := range n {
		url, err := common.NewURL(fmt.Sprintf("tri://10.0.0.%d:20000/shop.Backend?interface=shop.Backend&weight=0", i+1))
		require.NoError(t, err)
		invokers = append(invokers, base.NewBaseInvoker(url))
	}
	return invokers
}

var call = invocation.NewRPCInvocationWithOptions(invocation.WithMethodName("Order"))

// dubbo-go 2541, dubbo 9990, 9675, 8541: the share of a new instance over a whole warm-up, second by second.
func TestWholeWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		invokers := providers(t, 3)
		lb := &LoadBalance{}
		lb.picker.Table = instance.New(instance.DefaultSettings())
		lb.picker.Source = rand.NewPCG(3, 5)
		for _, invoker := range invokers[:2] {
			lb.picker.Table.Observe(invoker.GetURL().Location, instance.Observation{Preexisting: true}, time.Now())
		}
		addr := invokers[2].GetURL().Location
		lb.picker.Table.Observe(addr, instance.Observation{}, time.Now())
		entry := lb.picker.Table.Lookup(addr)
		const perSecond = 1000
		for fifth := range 5 {
			var chosen, expected float64
			for second := range 24 {
				age := time.Duration(fifth*24+second) * time.Second
				share := instance.WarmupShare(age, 2*time.Minute, 1, 0.1)
				expected += perSecond * share / (2 + share)
				for range perSecond {
					if lb.Select(invokers, call) == invokers[2] {
						chosen++
						entry.Begin(time.Now())
						entry.End(attempt.Answered, 0, time.Now())
					}
				}
				time.Sleep(time.Second)
			}
			assert.InEpsilonf(t, expected, chosen, 0.07, "fifth %d", fifth+1)
		}
		for range 10 {
			lb.Select(invokers, call) // whoever meets it finds it warm
		}
		assert.False(t, lb.picker.Troubled(), "nobody has to look at the table any more")
	})
}

// Envoy 19437: with hardly any traffic the warm-up does not last for ever.
func TestWarmupWithoutTrafficEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := instance.New(instance.DefaultSettings())
		table.Observe("10.0.0.1:20000", instance.Observation{}, time.Now())
		e := table.Lookup("10.0.0.1:20000")
		time.Sleep(4*time.Minute - time.Millisecond)
		assert.True(t, e.Warming(time.Now()))
		time.Sleep(time.Millisecond)
		assert.False(t, e.Warming(time.Now()))
	})
}

func TestFewInvokers(t *testing.T) {
	lb := &LoadBalance{}
	assert.Nil(t, lb.Select(nil, call))
	one := providers(t, 1)
	assert.Same(t, one[0], lb.Select(one, call))
}

func TestRegistered(t *testing.T) {
	assert.Same(t, &shared, extension.GetLoadbalance("warmup"))
}
