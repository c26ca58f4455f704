// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"context"
	"os"
	"testing"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/filter"
	_ "dubbo.apache.org/dubbo-go/v3/filter/graceful_shutdown"
	"dubbo.apache.org/dubbo-go/v3/graceful_shutdown"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"

	"github.com/dubbogo/gost/log/logger"

	"go.uber.org/goleak"
)

// consumerAlias is cgraceful under another name.
const consumerAlias = "cgraceful-alias"

// dubbo-go's own, for comparison.
var upstreamProvider, upstreamConsumer filter.Filter

// passThrough is a filter that does nothing.
type passThrough struct{}

func (passThrough) Invoke(ctx context.Context, invoker base.Invoker, inv base.Invocation) result.Result {
	return invoker.Invoke(ctx, inv)
}

func (passThrough) OnResponse(_ context.Context, res result.Result, _ base.Invoker, _ base.Invocation) result.Result {
	return res
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleKey); role != "" {
		os.Exit(playRole(role))
	}
	upstreamProvider, _ = extension.GetFilter(constant.GracefulShutdownProviderFilterKey)
	upstreamConsumer, _ = extension.GetFilter(constant.GracefulShutdownConsumerFilterKey)
	// The provider's as the coordinator does it: both names stand for the same filter. The consumer's second name is in every chain by
	// default; here it does nothing, so that there are callers without the module.
	extension.SetFilter(constant.GracefulShutdownProviderFilterKey, func() filter.Filter { return provider })
	extension.SetFilter(constant.GracefulShutdownConsumerFilterKey, func() filter.Filter { return passThrough{} })
	extension.SetFilter(consumerAlias, func() filter.Filter { return consumer })
	graceful_shutdown.Init(graceful_shutdown.WithoutInternalSignal())
	logger.SetLoggerLevel("fatal")
	// Servers and connections of dubbo-go live until the process ends.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*serverConn).serve"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*serverConn).readFrames"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"),
		goleak.IgnoreAnyFunction("dubbo.apache.org/dubbo-go/v3/protocol/triple.(*Server).startTransport.func1"),
		goleak.IgnoreAnyFunction("dubbo.apache.org/dubbo-go/v3/protocol/triple.(*TripleInvoker).startHealthWatch.func1"),
		goleak.IgnoreAnyFunction("github.com/apache/dubbo-getty.(*server).runTCPEventLoop.func1"),
		goleak.IgnoreAnyFunction("github.com/apache/dubbo-getty.(*client).RunEventLoop"),
		goleak.IgnoreAnyFunction("github.com/apache/dubbo-getty.(*client).reConnect"),
		goleak.IgnoreAnyFunction("github.com/apache/dubbo-getty.(*session).handlePackage"),
		goleak.IgnoreAnyFunction("github.com/apache/dubbo-getty.(*session).run"),
		goleak.IgnoreAnyFunction("github.com/dubbogo/gost/container/chan.(*UnboundedChan).run"),
		goleak.IgnoreAnyFunction("github.com/dubbogo/gost/time.NewTimerWheel.func1"),
		goleak.IgnoreAnyFunction("github.com/dubbogo/gost/sync.(*taskPoolSimple).worker"),
	)
}
