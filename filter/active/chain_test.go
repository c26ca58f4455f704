// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/cluster/interceptor/retry"
	_ "github.com/dubbogo/graceful/cluster/router/draining"
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/wire"
)

// inOrder is a load balancer that prefers the instances in the order in which a test wants them.
type inOrder struct {
	mu    sync.Mutex
	addrs []string
}

func (l *inOrder) Select(invokers []base.Invoker, _ base.Invocation) base.Invoker {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.MinFunc(invokers, func(a, b base.Invoker) int {
		return slices.Index(l.addrs, a.GetURL().Location) - slices.Index(l.addrs, b.GetURL().Location)
	})
}

var order = new(inOrder)

func preferring(t testing.TB, addrs ...string) client.ReferenceOption {
	t.Helper()
	order.mu.Lock()
	order.addrs = addrs
	order.mu.Unlock()
	extension.SetLoadbalance("in-order", func() loadbalance.LoadBalance { return order })
	return client.WithLoadBalance("in-order")
}

func urls(protocol string, addrs ...string) string {
	var list []string
	for _, a := range addrs {
		list = append(list, protocol+"://"+a)
	}
	return strings.Join(list, ";")
}

// client -> proxy -> provider that rejects. The proxy hands on what it hears; that it was asked is a fact, so nobody may ask another
// proxy, whether or not the proxy has the module.
func TestProxyOfARejectingProviderRunsOnce(t *testing.T) {
	for _, protocol := range protocols {
		for _, filters := range []string{ProviderKey, ""} {
			for _, registry := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s filters=%q registry=%v", protocol, filters, registry), func(t *testing.T) {
					backend := newIface()
					provider := startChild(t, protocol, backend, "rejects")
					ask := refer(t, protocol, backend, urls(protocol, provider.addr), withFilter())

					var executed atomic.Int64
					front := newIface()
					proxy := &Handler{call: func(ctx context.Context, req string) (string, error) {
						executed.Add(1)
						return ask(ctx, req)
					}}
					addr := serve(t, protocol, front, filters, proxy)
					// Another proxy that a retry could go to.
					other := startChild(t, protocol, front, "serves")
					if registry {
						listed(provider.addr, provider.start)
						if filters != "" {
							listed(addr, self.Current().Start)
						}
						listed(other.addr, other.start)
					}
					call := refer(t, protocol, front, urls(protocol, addr, other.addr), withFilter(), preferring(t, addr, other.addr))
					before := retry.Retried()
					_, err := call(context.Background(), "ok")
					require.Error(t, err)
					assert.EqualValues(t, 1, executed.Load())
					assert.Equal(t, before, retry.Retried())
					assert.False(t, IsNotExecuted(err), "%v", err)

					s, _ := statusOf(instance.Default().Lookup(addr))
					assert.NotEqual(t, wire.Draining, s, "the proxy is not marked")
					assert.Equal(t, instance.Usable, instance.Default().Lookup(addr).Verdict(time.Now()))
					s, _ = statusOf(instance.Default().Lookup(provider.addr))
					assert.Equal(t, wire.Draining, s, "the provider is")
				})
			}
		}
	}
}

// A rejection by the provider itself is nobody's failure: the request goes to another instance, whatever the cluster.
func TestRejectedRequestGoesElsewhere(t *testing.T) {
	for _, protocol := range protocols {
		for _, registry := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s registry=%v", protocol, registry), func(t *testing.T) {
				iface := newIface()
				rejecting := startChild(t, protocol, iface, "rejects")
				f := newFaulty(t)
				addr := serve(t, protocol, iface, ProviderKey, f.handler())
				if registry {
					listed(rejecting.addr, rejecting.start)
					listed(addr, self.Current().Start)
				}
				call := refer(t, protocol, iface, urls(protocol, rejecting.addr, addr), withFilter(), preferring(t, rejecting.addr, addr))
				before := retry.Retried()
				for range 3 {
					_, err := call(context.Background(), "ok")
					require.NoError(t, err)
				}
				assert.EqualValues(t, 3, f.calls.Load())
				assert.EqualValues(t, 1, retry.Retried()-before, "from the second request on the router hides it")
			})
		}
	}
}

// A refused connection too, and so does the request that finds the connection closed under it before it was sent.
func TestRefusedRequestGoesElsewhere(t *testing.T) {
	iface := newIface()
	f := newFaulty(t)
	addr := serve(t, "tri", iface, ProviderKey, f.handler())
	dead := "127.0.0.1:" + freePort(t)
	call := refer(t, "tri", iface, urls("tri", dead, addr), withFilter(), preferring(t, dead, addr))
	_, err := call(context.Background(), "ok")
	require.NoError(t, err)
	assert.Equal(t, instance.Unreachable, instance.Default().Lookup(dead).Verdict(time.Now()))

	t.Run("all of them", func(t *testing.T) {
		other := "127.0.0.1:" + freePort(t)
		call := refer(t, "tri", iface, urls("tri", dead, other), withFilter(), preferring(t, dead, other))
		before := retry.Retried()
		_, err := call(context.Background(), "ok")
		require.Error(t, err)
		assert.True(t, IsNotExecuted(err), "%v", err)
		assert.EqualValues(t, 1, retry.Retried()-before, "as often as there are others")
	})
}

// Failover hides its first attempt, which was executed and then lost its connection. What the second one says must not lead to a
// retry: the cluster may run the request once more, the retry never.
func TestExecutedAttemptIsNeverRepeatedByTheRetry(t *testing.T) {
	for name, second := range map[string]struct {
		refused bool
		runs    int64
	}{
		"then success":           {false, 2},
		"then a refused attempt": {true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			iface := newIface()
			f := newFaulty(t)
			addr := serve(t, "tri", iface, ProviderKey, f.handler())
			g := newGate(t, addr)
			next := addr
			if second.refused {
				next = "127.0.0.1:" + freePort(t)
			}
			third := startChild(t, "tri", iface, "serves")
			call := refer(t, "tri", iface, urls("tri", g.addr(), next, third.addr), withFilter(),
				client.WithClusterFailOver(), client.WithRetries(1), preferring(t, g.addr(), next, third.addr))
			var wg sync.WaitGroup
			wg.Go(func() {
				<-f.entered
				g.breakAll(true)
			})
			before := retry.Retried()
			_, err := call(context.Background(), "block once")
			wg.Wait()
			assert.Equal(t, second.refused, err != nil)
			assert.Equal(t, second.runs, f.calls.Load())
			assert.Equal(t, before, retry.Retried())
		})
	}
}

// dubbo-go 1545, and a database outage: whatever handlers answer, nobody is ejected.
func TestAnswersEjectNobody(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			iface := newIface()
			f := newFaulty(t)
			addr := serve(t, protocol, iface, ProviderKey, f.handler())
			call := refer(t, protocol, iface, urls(protocol, addr), withFilter())
			for range 20 {
				for _, req := range []string{"unavailable", "business", "deadline", "panic"} {
					_, err := call(context.Background(), req)
					require.Error(t, err)
				}
			}
			assert.EqualValues(t, 80, f.calls.Load())
			e := instance.Default().Lookup(addr)
			assert.Equal(t, instance.Usable, e.Verdict(time.Now()))
			s, _ := statusOf(e)
			assert.NotEqual(t, wire.Draining, s)
		})
	}
}
