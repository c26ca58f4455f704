// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package blacklist

import (
	"context"
	"testing"
	"time"
)

import (
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failfast"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failover"
	"dubbo.apache.org/dubbo-go/v3/cluster/directory/static"
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/loadbalance/roundrobin"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/invocation"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.uber.org/goleak"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/pick"
)

// What dubbo-go's packages started in their init is none of ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// newBalancer returns a balancer with a table of its own, in which all invokers are known.
func newBalancer(t *testing.T, delegate string, n int) (*LoadBalance, []base.Invoker) {
	t.Helper()
	s := config.Default()
	s.Blacklist.Loadbalance = delegate
	lb := &LoadBalance{settings: func() *config.Settings { return &s }}
	lb.picker.Table = instance.New(instance.DefaultSettings())
	invokers := providers(t, n)
	for _, invoker := range invokers {
		lb.picker.Table.Observe(invoker.GetURL().Location, instance.Observation{Preexisting: true}, time.Now())
	}
	return lb, invokers
}

func order() base.Invocation {
	return invocation.NewRPCInvocationWithOptions(invocation.WithMethodName("Order"))
}

func eject(t *testing.T, lb *LoadBalance, invoker base.Invoker, c attempt.Class) {
	t.Helper()
	e := lb.picker.Table.Lookup(invoker.GetURL().Location)
	e.Begin(time.Now())
	require.True(t, e.End(c, 0, time.Now()))
}

func selected(lb loadbalance.LoadBalance, invokers []base.Invoker, times int) map[base.Invoker]int {
	chosen := make(map[base.Invoker]int)
	for range times {
		chosen[lb.Select(invokers, order())]++
	}
	return chosen
}

func TestEveryDelegateIsKeptFromTheEjected(t *testing.T) {
	for _, delegate := range []string{"warmup", Name, constant.LoadBalanceKeyRandom, constant.LoadBalanceKeyRoundRobin} {
		t.Run(delegate, func(t *testing.T) {
			lb, invokers := newBalancer(t, delegate, 4)
			for _, invoker := range invokers {
				// Upstream's round robin always takes the first of those that publish weight=0, as providers do by default.
				invoker.GetURL().SetParam(constant.WeightKey, "100")
			}
			require.Len(t, selected(lb, invokers, 400), 4)
			eject(t, lb, invokers[1], attempt.Transport)
			eject(t, lb, invokers[2], attempt.NotExecuted)
			chosen := selected(lb, invokers, 400)
			assert.Len(t, chosen, 2)
			assert.NotContains(t, chosen, invokers[1])
			assert.NotContains(t, chosen, invokers[2])
		})
	}
}

// counting is a balancer of a user's own.
type counting struct{ lists *[]int }

func (c counting) Select(invokers []base.Invoker, _ base.Invocation) base.Invoker {
	*c.lists = append(*c.lists, len(invokers))
	return invokers[len(invokers)-1]
}

func TestUsersOwnDelegate(t *testing.T) {
	var lists []int
	extension.SetLoadbalance("counting", func() loadbalance.LoadBalance { return counting{&lists} })
	defer extension.UnregisterLoadbalance("counting")
	lb, invokers := newBalancer(t, "counting", 3)
	assert.Same(t, invokers[2], lb.Select(invokers, order()))
	eject(t, lb, invokers[2], attempt.NotExecuted)
	assert.Same(t, invokers[1], lb.Select(invokers, order()))
	assert.Equal(t, []int{3, 2}, lists)
}

func TestSettingsAreReadWithEachChoice(t *testing.T) {
	lb, invokers := newBalancer(t, "warmup", 4)
	s := config.Default()
	lb.settings = func() *config.Settings { return &s }
	eject(t, lb, invokers[0], attempt.Transport)
	eject(t, lb, invokers[1], attempt.Transport)
	assert.Len(t, selected(lb, invokers, 400), 2)
	s.Blacklist.MaxPercent = 40
	assert.Len(t, selected(lb, invokers, 400), 4)
	s.Blacklist.MaxPercent = 60
	assert.Len(t, selected(lb, invokers, 400), 2)
	s.Blacklist.PanicPercent = 60
	assert.Len(t, selected(lb, invokers, 400), 4)
}

// answering is an invoker that answers with its own address.
type answering struct{ *base.BaseInvoker }

func (a answering) Invoke(context.Context, base.Invocation) result.Result {
	return &result.RPCResult{Rest: a.GetURL().Location}
}

// Through dubbo-go's own clusters, which find the balancer by the name in the URL.
func TestInsideTheClusters(t *testing.T) {
	now, table := time.Now(), instance.Default()
	for _, strategy := range []string{constant.ClusterKeyFailfast, constant.ClusterKeyFailover} {
		t.Run(strategy, func(t *testing.T) {
			var invokers []base.Invoker
			for i := range 3 {
				url := providerURL(t, 700+i)
				url.SetParam(constant.LoadbalanceKey, Name)
				url.SubURL = url
				invokers = append(invokers, answering{base.NewBaseInvoker(url)})
				table.Observe(url.Location, instance.Observation{Preexisting: true}, now)
			}
			cluster, err := extension.GetCluster(strategy)
			require.NoError(t, err)
			joined := cluster.Join(static.NewDirectory(invokers))
			call := func() map[any]int {
				answers := make(map[any]int)
				for range 200 {
					res := joined.Invoke(context.Background(), order())
					require.NoError(t, res.Error())
					answers[res.Result()]++
				}
				return answers
			}
			assert.Len(t, call(), 3)
			dead := table.Lookup(invokers[0].GetURL().Location)
			dead.Begin(now)
			dead.End(attempt.NotExecuted, 0, now)
			answers := call()
			assert.Len(t, answers, 2)
			assert.NotContains(t, answers, dead.Addr())
			for _, invoker := range invokers {
				e := table.Lookup(invoker.GetURL().Location)
				e.SetHeld(true)
				defer e.SetHeld(false)
			}
			err = joined.Invoke(context.Background(), order()).Error()
			assert.ErrorContains(t, err, pick.ErrNoInstance.Error(), "an error, no instance that the registry has removed")
			dead.Dialed(true, now)
		})
	}
}

func TestRegistered(t *testing.T) {
	assert.Same(t, &shared, extension.GetLoadbalance("blacklist"))
}
