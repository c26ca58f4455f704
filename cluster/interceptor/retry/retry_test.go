// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package retry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

import (
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/available"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/broadcast"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failback"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failfast"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failover"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failsafe"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/forking"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/zoneaware"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/loadbalance/random"

	"dubbo.apache.org/dubbo-go/v3/cluster/cluster"
	"dubbo.apache.org/dubbo-go/v3/cluster/directory/static"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/global"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/invocation"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"

	"github.com/dubbogo/gost/log/logger"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pgregory.net/rapid"
)

import (
	"github.com/dubbogo/graceful/cluster/interceptor/retry"
	_ "github.com/dubbogo/graceful/cluster/router/draining"
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/settings"
)

func TestMain(m *testing.M) {
	logger.SetLoggerLevel("fatal")
	m.Run()
}

const iface = "graceful.test.Service"

// ok is the outcome of an attempt that succeeds.
const ok attempt.Class = 255

// fleet is the instances of a service. Each answers as the plan says, in the order of the attempts, or as the instance always does.
type fleet struct {
	mu     sync.Mutex
	plan   []attempt.Class
	always map[string]attempt.Class
	took   time.Duration
	local  bool     // not executed because this side's invoker was destroyed
	went   []string // addresses of the attempts
}

// attempts is what cgraceful does, around an instance that answers by plan.
type attempts struct {
	base.BaseInvoker
	f *fleet
}

func (a *attempts) Invoke(_ context.Context, inv base.Invocation) result.Result {
	f := a.f
	addr := a.GetURL().Location
	v, _ := inv.GetAttribute(attempt.Key)
	log, _ := v.(*attempt.Log)
	if log.Refuse(addr) {
		return &result.RPCResult{Err: errors.New("refused")}
	}
	if f.took > 0 {
		time.Sleep(f.took)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.went)
	f.went = append(f.went, addr)
	class, fixed := f.always[addr]
	if !fixed {
		class = ok
		if n < len(f.plan) {
			class = f.plan[n]
		}
	}
	if class == ok {
		return &result.RPCResult{Rest: addr}
	}
	if log == nil {
		log = new(attempt.Log)
		inv.SetAttribute(attempt.Key, log)
	}
	if f.local {
		addr = ""
	}
	log.Add(addr, class)
	return &result.RPCResult{Err: fmt.Errorf("%s of attempt %d", class, n+1)}
}

func (f *fleet) invokers(n int, params string) []base.Invoker {
	var list []base.Invoker
	for i := range n {
		url, _ := common.NewURL(fmt.Sprintf("fake://10.0.0.%d:20000/%s?interface=%s&retries=0&%s", i+1, iface, iface, params))
		url.SetAttribute(constant.ApplicationKey, global.DefaultApplicationConfig())
		list = append(list, &attempts{BaseInvoker: *base.NewBaseInvoker(url), f: f})
	}
	return list
}

func (f *fleet) cluster(t require.TestingT, strategy string, n int, params string) base.Invoker {
	c, err := extension.GetCluster(strategy)
	require.NoError(t, err)
	return c.Join(static.NewDirectory(f.invokers(n, "cluster="+strategy+"&"+params)))
}

func newCall() *invocation.RPCInvocation {
	inv := invocation.NewRPCInvocation("Call", nil, nil)
	inv.SetAttribute(constant.CallTypeKey, constant.CallUnary)
	return inv
}

func distinct(s []string) bool {
	seen := map[string]bool{}
	for _, x := range s {
		if seen[x] {
			return false
		}
		seen[x] = true
	}
	return true
}

func TestSendsAgainWhatWasNotExecuted(t *testing.T) {
	const no, reset, late = attempt.NotExecuted, attempt.Transport, attempt.Timeout
	for _, strategy := range []string{"failfast", "failover", "available", "failsafe", "zoneAware"} {
		for name, tc := range map[string]struct {
			n     int
			plan  []attempt.Class
			went  int
			fails bool
		}{
			"success":                     {n: 3, went: 1},
			"refused once":                {n: 3, plan: []attempt.Class{no}, went: 2},
			"refused twice":               {n: 3, plan: []attempt.Class{no, no}, went: 3},
			"refused by all":              {n: 3, plan: []attempt.Class{no, no, no, no}, went: 3, fails: true},
			"refused by the only one":     {n: 1, plan: []attempt.Class{no, no}, went: 1, fails: true},
			"reset":                       {n: 3, plan: []attempt.Class{reset}, went: 1, fails: true},
			"timeout":                     {n: 3, plan: []attempt.Class{late}, went: 1, fails: true},
			"business error":              {n: 3, plan: []attempt.Class{attempt.Answered}, went: 1, fails: true},
			"given up":                    {n: 3, plan: []attempt.Class{attempt.Canceled}, went: 1, fails: true},
			"refused, then reset":         {n: 3, plan: []attempt.Class{no, reset}, went: 2, fails: true},
			"refused, then business":      {n: 3, plan: []attempt.Class{no, attempt.Answered}, went: 2, fails: true},
			"refused twice, then timeout": {n: 3, plan: []attempt.Class{no, no, late}, went: 3, fails: true},
		} {
			t.Run(strategy+" "+name, func(t *testing.T) {
				f := &fleet{plan: tc.plan}
				before := retry.Retried()
				res := f.cluster(t, strategy, tc.n, "").Invoke(context.Background(), newCall())
				assert.Len(t, f.went, tc.went)
				assert.True(t, distinct(f.went), "%v", f.went)
				assert.EqualValues(t, tc.went-1, retry.Retried()-before)
				switch {
				case strategy == "failsafe":
					assert.NoError(t, res.Error())
					assert.Equal(t, !tc.fails, res.Result() != nil)
				case tc.fails:
					assert.Error(t, res.Error())
					assert.Contains(t, res.Error().Error(), fmt.Sprintf("attempt %d", tc.went), "the error of the last attempt")
				default:
					assert.NoError(t, res.Error())
				}
			})
		}
	}
}

// Failover hides its earlier attempts. If one of them may have been executed the call must not be sent again.
func TestEveryAttemptCounts(t *testing.T) {
	no, reset := attempt.NotExecuted, attempt.Transport
	for name, tc := range map[string]struct {
		retries int
		plan    []attempt.Class
		went    int
		fails   bool
	}{
		"reset after the write, then refused": {1, []attempt.Class{reset, no}, 2, true},
		"refused, then reset":                 {1, []attempt.Class{no, reset}, 2, true},
		"refused twice":                       {1, []attempt.Class{no, no}, 3, false},
		"an answer, then refused":             {1, []attempt.Class{attempt.Answered, no}, 2, true},
		"reset, then success":                 {1, []attempt.Class{reset}, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fleet{plan: tc.plan}
			inv := newCall()
			inv.SetAttachment(constant.RetriesKey, fmt.Sprint(tc.retries))
			res := f.cluster(t, "failover", 5, "").Invoke(context.Background(), inv)
			assert.Len(t, f.went, tc.went)
			assert.Equal(t, tc.fails, res.Error() != nil)
		})
	}
}

func TestSomeClustersAreLeftAlone(t *testing.T) {
	for strategy, went := range map[string]int{"broadcast": 3, "forking": 2, "failback": 1} {
		t.Run(strategy, func(t *testing.T) {
			f := &fleet{plan: []attempt.Class{attempt.NotExecuted, attempt.NotExecuted, attempt.NotExecuted, ok}}
			before := retry.Retried()
			c := f.cluster(t, strategy, 3, "forks=2")
			c.Invoke(context.Background(), newCall())
			if strategy != "failback" { // its own repetition comes a second later
				defer c.Destroy()
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			assert.LessOrEqual(t, len(f.went), went)
			assert.Equal(t, before, retry.Retried())
		})
	}
}

// The strategy of a reference stands in the URL that the registry's URL carries.
func TestStrategyInsideARegistryURL(t *testing.T) {
	f := &fleet{plan: []attempt.Class{attempt.NotExecuted}}
	inner := f.cluster(t, "broadcast", 2, "")
	url, _ := common.NewURL("registry://127.0.0.1:2181")
	url.SubURL, _ = common.NewURL("fake://127.0.0.1/" + iface + "?interface=" + iface + "&cluster=broadcast")
	zone, err := extension.GetCluster("zoneAware")
	require.NoError(t, err)
	outer := zone.Join(static.NewDirectory([]base.Invoker{&through{BaseInvoker: *base.NewBaseInvoker(url), to: inner}}))
	before := retry.Retried()
	outer.Invoke(context.Background(), newCall())
	assert.Len(t, f.went, 2, "once each")
	assert.Equal(t, before, retry.Retried())
}

// through is a cluster as the invoker of another one.
type through struct {
	base.BaseInvoker
	to base.Invoker
}

func (i *through) Invoke(ctx context.Context, inv base.Invocation) result.Result {
	return i.to.Invoke(ctx, inv)
}

func TestOnlyTheOutermostActs(t *testing.T) {
	f := &fleet{plan: []attempt.Class{attempt.NotExecuted, attempt.NotExecuted, attempt.NotExecuted, attempt.NotExecuted, attempt.NotExecuted}}
	inner := f.cluster(t, "failfast", 3, "")
	url, _ := common.NewURL("registry://127.0.0.1:2181")
	url.SubURL, _ = common.NewURL("fake://127.0.0.1/" + iface + "?interface=" + iface + "&cluster=failfast")
	zone, err := extension.GetCluster("zoneAware")
	require.NoError(t, err)
	outer := zone.Join(static.NewDirectory([]base.Invoker{&through{BaseInvoker: *base.NewBaseInvoker(url), to: inner}}))
	before := retry.Retried()
	inv := newCall()
	require.Error(t, outer.Invoke(context.Background(), inv).Error())
	assert.Len(t, f.went, 3, "each instance once, not once per level")
	assert.True(t, distinct(f.went))
	assert.EqualValues(t, 2, retry.Retried()-before)

	t.Run("an invocation that is used again is another call", func(t *testing.T) {
		f.went, f.plan = nil, []attempt.Class{attempt.NotExecuted}
		require.NoError(t, outer.Invoke(context.Background(), inv).Error())
		assert.Len(t, f.went, 2)
	})
}

func TestSwitchedOff(t *testing.T) {
	settings.Isolate(t)
	require.NoError(t, settings.Configure(config.WithRetryEnabled(false)))
	require.NoError(t, settings.Load(nil))
	require.False(t, settings.Get().Retry.Enabled)
	f := &fleet{plan: []attempt.Class{attempt.NotExecuted}}
	require.Error(t, f.cluster(t, "failfast", 3, "").Invoke(context.Background(), newCall()).Error())
	assert.Len(t, f.went, 1)
}

// An invoker that this process destroyed says nothing about its instance, which may have another one by now.
func TestSameInstanceAgainAfterADestroyedInvoker(t *testing.T) {
	f := &fleet{plan: []attempt.Class{attempt.NotExecuted}, local: true}
	require.NoError(t, f.cluster(t, "failfast", 1, "").Invoke(context.Background(), newCall()).Error())
	assert.Len(t, f.went, 2)

	f = &fleet{plan: []attempt.Class{attempt.NotExecuted, attempt.NotExecuted, attempt.NotExecuted}, local: true}
	require.Error(t, f.cluster(t, "failfast", 1, "").Invoke(context.Background(), newCall()).Error())
	assert.Len(t, f.went, 2, "no more often than there are instances")
}

func TestDeadline(t *testing.T) {
	every := map[string]attempt.Class{}
	for i := range 9 {
		every[fmt.Sprintf("10.0.0.%d:20000", i+1)] = attempt.NotExecuted
	}
	for name, tc := range map[string]struct {
		params, timeout string
		deadline        time.Duration
		callType        string
		went            int
	}{
		"of the caller":               {deadline: 250 * time.Millisecond, went: 3},
		"of the reference":            {params: "timeout=250ms", went: 3},
		"of the call":                 {params: "timeout=10s", timeout: "250ms", went: 3},
		"as the dubbo protocol wrote": {timeout: "250", went: 3},
		"none":                        {went: 9},
		"of the reference, a stream":  {params: "timeout=250ms", callType: constant.CallServerStream, went: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{always: every, took: 100 * time.Millisecond}
				ctx := context.Background()
				if tc.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					defer cancel()
				}
				inv := newCall()
				if tc.timeout != "" {
					inv.SetAttachment(constant.TimeoutKey, tc.timeout)
				}
				if tc.callType != "" {
					inv.SetAttribute(constant.CallTypeKey, tc.callType)
				}
				require.Error(t, f.cluster(t, "failfast", 9, tc.params).Invoke(ctx, inv).Error())
				assert.Len(t, f.went, tc.went)
				if v, _ := inv.GetAttachment(constant.TimeoutKey); strings.HasPrefix(name, "as the dubbo") {
					d, err := time.ParseDuration(v)
					require.NoError(t, err, "what the next attempt of the dubbo protocol understands")
					assert.LessOrEqual(t, d, 150*time.Millisecond)
				}
			})
		})
	}
	t.Run("given up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		f := &fleet{always: every}
		require.Error(t, f.cluster(t, "failfast", 9, "").Invoke(ctx, newCall()).Error())
		assert.Len(t, f.went, 1)
	})
}

// Whatever happens to the attempts: none goes twice to one instance, at most one of them can have been executed, and a call fails
// only if no instance was left, or one attempt may have been executed.
func TestNeverTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "instances")
		classes := []attempt.Class{ok, attempt.NotExecuted, attempt.NotExecuted, attempt.Transport, attempt.Timeout, attempt.Answered}
		f := &fleet{always: map[string]attempt.Class{}}
		usable := 0
		for i := range n {
			c := rapid.SampledFrom(classes).Draw(t, "class")
			f.always[fmt.Sprintf("10.0.0.%d:20000", i+1)] = c
			if c != attempt.NotExecuted {
				usable++
			}
		}
		res := f.cluster(t, "failfast", n, "").Invoke(context.Background(), newCall())
		if !distinct(f.went) {
			t.Fatalf("twice to one instance: %v", f.went)
		}
		executed := 0
		for _, a := range f.went {
			if f.always[a] != attempt.NotExecuted {
				executed++
			}
		}
		if executed > 1 {
			t.Fatalf("executed %d times", executed)
		}
		if executed == 0 && usable > 0 {
			t.Fatal("given up although an instance was left")
		}
		if (res.Error() == nil) != (executed == 1 && f.always[f.went[len(f.went)-1]] == ok) {
			t.Fatalf("result %v", res.Error())
		}
	})
}

// silent answers every request.
type silent struct{ base.BaseInvoker }

var answer = new(result.RPCResult)

func (*silent) Invoke(context.Context, base.Invocation) result.Result { return answer }

func BenchmarkInvoke(b *testing.B) {
	inner := &silent{BaseInvoker: *base.NewBaseInvoker(common.NewURLWithOptions())}
	for name, invoker := range map[string]base.Invoker{"without": inner, "with": cluster.BuildInterceptorChain(inner)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				invoker.Invoke(context.Background(), newCall())
			}
		})
	}
}
