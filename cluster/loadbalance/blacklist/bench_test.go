// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package blacklist

import (
	"fmt"
	"testing"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance"
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance/random"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/invocation"

	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/cluster/loadbalance/warmup"
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/attempt"
)

// providerURL is a URL as a consumer gets it from a registry, with what a provider publishes of itself.
func providerURL(tb testing.TB, i int) *common.URL {
	tb.Helper()
	url, err := common.NewURL(fmt.Sprintf("tri://10.%d.%d.%d:20000/shop.Backend?accesslog=&anyhost=true&app.version=1.0"+
		"&application=shop-provider&async=false&auth=&bean.name=Backend&cluster=failover&environment=prod&execute.limit="+
		"&export=true&interface=shop.Backend&loadbalance=random&message_size=4&methods=Order,Cancel&module=sample"+
		"&name=shop-provider&organization=dubbo-go&owner=dubbo-go&param.sign=&pid=%d&registry.role=3"+
		"&release=dubbo-golang-3.3.2&retries=&serialization=protobuf&service.filter=echo,token,accesslog,tps,generic_service,"+
		"execute,pgraceful&side=provider&timestamp=1700000000&tps.limit.interval=&tps.limit.rate=&tps.limiter=&warmup=&weight=0",
		i>>16&255, i>>8&255, i&255, 1000+i))
	require.NoError(tb, err)
	return url
}

func providers(tb testing.TB, n int) []base.Invoker {
	tb.Helper()
	list := make([]base.Invoker, n)
	for i := range list {
		list[i] = base.NewBaseInvoker(providerURL(tb, i+1))
	}
	return list
}

var sink base.Invoker

// BenchmarkSelect sets this balancer and warmup beside upstream's random, with the invocation that a call makes anew each
// time. "none" makes the invocation and selects nobody: what the others allocate beyond it is theirs. "troubled" is the
// costly case: an instance is ejected and a tenth of the others is warming up, so that every sample looks into the table.
func BenchmarkSelect(b *testing.B) {
	healthy := instance.New(instance.DefaultSettings())
	defaults := config.Default()
	settings := func() *config.Settings { return &defaults }
	for _, n := range []int{2, 10, 100, 1000} {
		invokers := providers(b, n)
		troubled := instance.New(instance.DefaultSettings())
		now := time.Now()
		for i, invoker := range invokers {
			addr := invoker.GetURL().Location
			troubled.Observe(addr, instance.Observation{Preexisting: i%10 != 9}, now)
		}
		first := troubled.Lookup(invokers[0].GetURL().Location)
		first.Begin(now)
		first.End(attempt.Transport, 0, now)

		ours := func(t *instance.Table) *LoadBalance {
			lb := &LoadBalance{settings: settings}
			lb.picker.Table = t
			return lb
		}
		for _, lb := range []struct {
			name string
			loadbalance.LoadBalance
		}{
			{"none", passThrough{}},
			{"upstream-random", random.NewRandomLoadBalance()},
			{"warmup", warmup.New()},
			{"blacklist", ours(healthy)},
			{"blacklist-troubled", ours(troubled)},
		} {
			b.Run(fmt.Sprintf("%s/n=%d", lb.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					sink = lb.Select(invokers, invocation.NewRPCInvocationWithOptions(invocation.WithMethodName("Order")))
				}
			})
		}
	}
}

type passThrough struct{}

func (passThrough) Select(invokers []base.Invoker, _ base.Invocation) base.Invoker {
	return invokers[0]
}
