// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"os"
	"testing"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/filter"
	"dubbo.apache.org/dubbo-go/v3/graceful_shutdown"

	"github.com/dubbogo/gost/log/logger"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleKey); role != "" {
		os.Exit(playRole(role))
	}
	// As the coordinator does it: both names stand for the same filters.
	for name, ours := range map[string]string{
		constant.GracefulShutdownProviderFilterKey: ProviderKey,
		constant.GracefulShutdownConsumerFilterKey: ConsumerKey,
	} {
		extension.SetFilter(name, func() filter.Filter {
			f, _ := extension.GetFilter(ours)
			return f
		})
	}
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
