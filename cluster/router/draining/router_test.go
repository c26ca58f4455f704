// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package draining

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/cluster/router/chain"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/router/condition"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/router/script"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/router/tag"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/global"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/invocation"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.uber.org/goleak"

	"pgregory.net/rapid"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const iface = "graceful.test.Service"

// fake is an instance that can be unavailable.
type fake struct {
	base.BaseInvoker
	down bool
}

func (f *fake) IsAvailable() bool { return !f.down }

func newFake(addr string) *fake {
	url, _ := common.NewURL("tri://" + addr + "/" + iface + "?interface=" + iface)
	return &fake{BaseInvoker: *base.NewBaseInvoker(url)}
}

func fakes(n int) (list []base.Invoker, addrs []string) {
	for i := range n {
		addr := fmt.Sprintf("10.0.0.%d:20000", i+1)
		list, addrs = append(list, newFake(addr)), append(addrs, addr)
	}
	return list, addrs
}

func addrsOf(list []base.Invoker) []string {
	var s []string
	for _, ivk := range list {
		s = append(s, ivk.GetURL().Location)
	}
	return s
}

const start = "1-a"

func listed(table *instance.Table, addrs ...string) {
	for _, a := range addrs {
		table.Observe(a, instance.Observation{Mark: wire.Mark{Status: wire.Up, Start: start, Seq: 1}}, time.Now())
	}
}

func drains(table *instance.Table, addrs ...string) {
	for _, a := range addrs {
		table.MarkDraining(a, start, instance.FromResponse, time.Now())
	}
}

func hold(table *instance.Table, addrs ...string) {
	for _, a := range addrs {
		table.Lookup(a).SetHeld(true)
	}
}

func newRouter(n int) (*drainingRouter, []base.Invoker, []string) {
	table := instance.New(instance.DefaultSettings())
	list, addrs := fakes(n)
	listed(table, addrs...)
	return &drainingRouter{table: table}, list, addrs
}

func newCall() *invocation.RPCInvocation { return invocation.NewRPCInvocation("Call", nil, nil) }

func TestListIsHandedOnAsItIs(t *testing.T) {
	r, list, _ := newRouter(3)
	inv := newCall()
	got := r.Route(list, nil, inv)
	require.Len(t, got, 3)
	assert.Same(t, &list[0], &got[0])
	assert.Zero(t, testing.AllocsPerRun(100, func() { r.Route(list, nil, inv) }))

	t.Run("also while one of another service drains", func(t *testing.T) {
		listed(r.table, "10.9.9.9:1")
		drains(r.table, "10.9.9.9:1")
		require.True(t, r.table.Hidden())
		got := r.Route(list, nil, inv)
		assert.Same(t, &list[0], &got[0])
		assert.Zero(t, testing.AllocsPerRun(100, func() { r.Route(list, nil, inv) }))
	})
	assert.Empty(t, r.Route(nil, nil, inv))
}

func TestOrderOfLastResorts(t *testing.T) {
	for name, tc := range map[string]struct {
		n              int
		draining, held []int
		down           []int
		want           []int
	}{
		"the draining one is hidden":              {n: 3, draining: []int{0}, want: []int{1, 2}},
		"the removed one is hidden":               {n: 3, held: []int{2}, want: []int{0, 1}},
		"both":                                    {n: 3, draining: []int{0}, held: []int{2}, want: []int{1}},
		"only draining ones":                      {n: 2, draining: []int{0, 1}, want: []int{0, 1}},
		"a lone draining one":                     {n: 1, draining: []int{0}, want: []int{0}},
		"draining before removed":                 {n: 2, draining: []int{0}, held: []int{1}, want: []int{0}},
		"never an empty list":                     {n: 2, held: []int{0, 1}, want: []int{0, 1}},
		"a single unavailable one has company":    {n: 3, draining: []int{1}, held: []int{2}, down: []int{0}, want: []int{0, 1}},
		"a single unavailable one, nobody drains": {n: 2, held: []int{1}, down: []int{0}, want: []int{0}},
		"a single instance":                       {n: 1, down: []int{0}, want: []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			r, list, addrs := newRouter(tc.n)
			for _, i := range tc.draining {
				drains(r.table, addrs[i])
			}
			for _, i := range tc.held {
				hold(r.table, addrs[i])
			}
			for _, i := range tc.down {
				list[i].(*fake).down = true
			}
			var want []string
			for _, i := range tc.want {
				want = append(want, addrs[i])
			}
			before := slices.Clone(list)
			assert.Equal(t, want, addrsOf(r.Route(list, nil, newCall())))
			assert.Equal(t, before, list, "the given list is not touched")
		})
	}
}

func TestAnotherStartIDOrAHigherNumberIsSeenAtOnce(t *testing.T) {
	r, list, addrs := newRouter(2)
	drains(r.table, addrs[0])
	require.Equal(t, addrs[1:], addrsOf(r.Route(list, nil, newCall())))
	r.table.Observe(addrs[0], instance.Observation{Mark: wire.Mark{Status: wire.Up, Start: "2-b", Seq: 1}}, time.Now())
	assert.Equal(t, addrs, addrsOf(r.Route(list, nil, newCall())))
	r.table.MarkDraining(addrs[0], "2-b", instance.FromResponse, time.Now())
	require.Equal(t, addrs[1:], addrsOf(r.Route(list, nil, newCall())))
	r.table.Observe(addrs[0], instance.Observation{Mark: wire.Mark{Status: wire.Up, Start: "2-b", Seq: 3}}, time.Now())
	assert.Equal(t, addrs, addrsOf(r.Route(list, nil, newCall())))
}

func TestRetryGoesElsewhere(t *testing.T) {
	r, list, addrs := newRouter(3)
	inv := newCall()
	log := new(attempt.Log)
	inv.SetAttribute(attempt.Key, log)
	log.Add(addrs[0], attempt.NotExecuted)
	assert.Equal(t, addrs, addrsOf(r.Route(list, nil, inv)), "no retry is under way: a cluster's own repetition may go anywhere")

	log.BeginRetry(0)
	assert.Equal(t, addrs[1:], addrsOf(r.Route(list, nil, inv)))
	assert.Equal(t, 3, log.Offered())
	log.Add(addrs[1], attempt.NotExecuted)
	assert.Equal(t, addrs[2:], addrsOf(r.Route(list, nil, inv)))

	t.Run("rather to one that drains than to one that was tried", func(t *testing.T) {
		drains(r.table, addrs[2])
		assert.Equal(t, addrs[2:], addrsOf(r.Route(list, nil, inv)))
	})
	log.Add(addrs[2], attempt.NotExecuted)
	assert.Equal(t, addrs[:2], addrsOf(r.Route(list, nil, inv)), "never an empty list; cgraceful refuses these")
	log.EndRetry()
	assert.Equal(t, addrs[:2], addrsOf(r.Route(list, nil, inv)))
}

func TestRouteProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "n")
		r, list, addrs := newRouter(n)
		state := make([]int, n)
		for i := range n {
			switch state[i] = rapid.IntRange(0, 2).Draw(t, "state"); state[i] {
			case 1:
				drains(r.table, addrs[i])
			case 2:
				hold(r.table, addrs[i])
			}
			list[i].(*fake).down = rapid.Bool().Draw(t, "down")
		}
		best := slices.Min(state)
		got := r.Route(list, nil, newCall())
		if len(got) == 0 {
			t.Fatal("emptied")
		}
		for _, ivk := range got {
			i := slices.Index(list, ivk)
			if i < 0 {
				t.Fatal("not from the list")
			}
			if state[i] != best && !(state[i] == 1 && list[slices.Index(state, best)].(*fake).down) {
				t.Fatalf("state %d although there is %d", state[i], best)
			}
		}
	})
}

// The router must see what every other router has left over.
func TestRouterRunsLast(t *testing.T) {
	url, err := common.NewURL("tri://127.0.0.1:1/" + iface + "?interface=" + iface)
	require.NoError(t, err)
	url.SetAttribute(constant.ApplicationKey, global.DefaultApplicationConfig())
	for key, newFactory := range extension.GetRouterFactories() {
		other, err := newFactory().NewPriorityRouter(url)
		if err != nil || key == Key {
			continue
		}
		assert.Less(t, other.Priority(), (&drainingRouter{}).Priority(), key)
	}

	c, err := chain.NewRouterChain(url)
	require.NoError(t, err)
	first, second := newAddr(), newAddr()
	list := []base.Invoker{newFake(first), newFake(second)}
	c.SetInvokers(list)
	listed(instance.Default(), first, second)
	drains(instance.Default(), first)
	assert.Equal(t, []string{second}, addrsOf(c.Route(list[0].GetURL(), newCall())))
}

func BenchmarkRoute(b *testing.B) {
	for _, n := range []int{2, 10, 100, 1000} {
		for _, hidden := range []bool{false, true} {
			b.Run(fmt.Sprintf("instances=%d hidden=%v", n, hidden), func(b *testing.B) {
				table := instance.New(instance.DefaultSettings())
				var list []base.Invoker
				for i := range n {
					addr := fmt.Sprintf("10.0.%d.%d:20000", i/250, i%250)
					list = append(list, newFake(addr))
					listed(table, addr)
				}
				if hidden {
					drains(table, list[0].GetURL().Location)
				}
				r := &drainingRouter{table: table}
				inv := newCall()
				b.ReportAllocs()
				for b.Loop() {
					r.Route(list, nil, inv)
				}
			})
		}
	}
}
