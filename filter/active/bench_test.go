// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"context"
	"testing"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/filter"
	"dubbo.apache.org/dubbo-go/v3/global"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/invocation"
	"dubbo.apache.org/dubbo-go/v3/protocol/protocolwrapper"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"

	"github.com/stretchr/testify/assert"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

// terminal stands for a protocol: it answers at once, after it has done to the invocation what dubbo-go's protocols do to each.
type terminal struct{ base.BaseInvoker }

func (i *terminal) Invoke(_ context.Context, inv base.Invocation) result.Result {
	inv.SetAttachment(constant.InterfaceKey, "shop.Backend")
	return &result.RPCResult{Attrs: map[string]any{"k": "v"}}
}

// benchURL is what a merged provider URL looks like; dubbo-go's consumer filter writes it out for every request.
func benchURL(protocol string) *common.URL {
	return common.NewURLWithOptions(
		common.WithProtocol(protocol), common.WithIp("10.0.0.1"), common.WithPort("20000"), common.WithPath("shop.Backend"),
		common.WithInterface("shop.Backend"), common.WithMethods([]string{"Order"}),
		common.WithParamsValue(constant.ApplicationKey, "shop-client"), common.WithParamsValue(constant.TimestampKey, "1700000000"),
		common.WithParamsValue(constant.ReleaseKey, "dubbo-golang-3.3.2"), common.WithParamsValue(constant.SerializationKey, "protobuf"),
		common.WithParamsValue(constant.LoadbalanceKey, "random"), common.WithParamsValue(constant.ClusterKey, "failfast"),
		common.WithParamsValue(constant.SideKey, "provider"), common.WithParamsValue(constant.PIDKey, "4711"),
	)
}

// setUp gives a filter of dubbo-go what its own shutdown gives it.
func setUp(f filter.Filter) filter.Filter {
	if s, ok := f.(interface{ Set(string, any) }); ok {
		s.Set(constant.GracefulShutdownFilterShutdownConfig, global.DefaultShutdownConfig())
	}
	return f
}

// request is a fresh invocation, as the Triple server makes one.
func request() *invocation.RPCInvocation {
	return invocation.NewRPCInvocation("Order", nil, map[string]any{
		wire.HeaderCaller: benchCaller, "content-type": benchType, "user-agent": benchType,
	})
}

var (
	benchCaller = []string{wire.Caller{App: "shop-client", IP: "10.0.0.9", Start: "1700000000000-0123456789abcdef", To: "10.0.0.1:20000"}.Format()}
	benchType   = []string{"application/grpc+proto"}
)

// attemptOf is a fresh invocation, as the client makes one and the cluster hands it on.
func attemptOf() *invocation.RPCInvocation {
	inv := invocation.NewRPCInvocationWithOptions(invocation.WithMethodName("Order"),
		invocation.WithAttachments(map[string]any{constant.TimeoutKey: "", constant.RetriesKey: ""}))
	inv.SetAttribute(constant.CallTypeKey, constant.CallUnary)
	return inv
}

type side struct {
	name     string
	fresh    func() *invocation.RPCInvocation
	ours     filter.Filter
	upstream func() filter.Filter
}

func sides() []side {
	return []side{
		{"provider", request, provider, func() filter.Filter { return setUp(upstreamProvider) }},
		{"consumer", attemptOf, consumer, func() filter.Filter { return setUp(upstreamConsumer) }},
	}
}

func chainOf(name string, f filter.Filter, protocol string) base.Invoker {
	extension.SetFilter(name, func() filter.Filter { return f })
	url := benchURL(protocol)
	url.SetParam(constant.ServiceFilterKey, name)
	return protocolwrapper.BuildInvokerChain(&terminal{BaseInvoker: *base.NewBaseInvoker(url)}, constant.ServiceFilterKey)
}

func BenchmarkFilter(b *testing.B) {
	for _, protocol := range protocols {
		for _, s := range sides() {
			for _, c := range []struct {
				name string
				f    filter.Filter
			}{{"pass-through", passThrough{}}, {"dubbo-go", s.upstream()}, {"graceful", s.ours}} {
				chain := chainOf("bench-"+s.name+c.name, c.f, protocol)
				b.Run(protocol+"/"+s.name+"/"+c.name, func(b *testing.B) {
					ctx := context.Background()
					b.ReportAllocs()
					for b.Loop() {
						chain.Invoke(ctx, s.fresh())
					}
				})
			}
		}
	}
}

// What the filters add to a request: nothing to the heap.
func TestFiltersAllocateNothing(t *testing.T) {
	for _, protocol := range protocols {
		for _, s := range sides() {
			t.Run(protocol+" "+s.name, func(t *testing.T) {
				if raceEnabled && protocol == "tri" && s.name == "consumer" {
					t.Skip("with the race detector sync.Pool drops what it is given, at random")
				}
				ctx := context.Background()
				through := chainOf("allocs-through", passThrough{}, protocol)
				ours := chainOf("allocs-ours", s.ours, protocol)
				ours.Invoke(ctx, s.fresh())
				want := testing.AllocsPerRun(1000, func() { through.Invoke(ctx, s.fresh()) })
				got := testing.AllocsPerRun(1000, func() { ours.Invoke(ctx, s.fresh()) })
				assert.Equal(t, want, got)
			})
		}
	}
}
