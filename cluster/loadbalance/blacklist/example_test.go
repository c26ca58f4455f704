// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package blacklist_test

import (
	"fmt"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/invocation"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	_ "github.com/dubbogo/graceful/cluster/loadbalance/blacklist"
	"github.com/dubbogo/graceful/internal/attempt"
)

// A reference names the load balancer:
//
//	dubbo:
//	  consumer:
//	    references:
//	      Backend: {interface: shop.Backend, loadbalance: blacklist}
//
// Here one of two instances has refused a connection, and all requests go to the other one.
func Example() {
	var invokers []base.Invoker
	for _, addr := range []string{"10.0.0.1:20000", "10.0.0.2:20000"} {
		url, err := common.NewURL("tri://" + addr + "/shop.Backend?interface=shop.Backend")
		if err != nil {
			panic(err)
		}
		invokers = append(invokers, base.NewBaseInvoker(url))
	}

	// The filter cgraceful does this with the outcome of every call.
	now := time.Now()
	entry := instance.Default().Obtain("10.0.0.1:20000", now)
	entry.Begin(now)
	entry.End(attempt.NotExecuted, time.Millisecond, now)

	lb := extension.GetLoadbalance("blacklist")
	call := invocation.NewRPCInvocationWithOptions(invocation.WithMethodName("Order"))
	requests := make(map[string]int)
	for range 100 {
		requests[lb.Select(invokers, call).GetURL().Location]++
	}
	fmt.Println(requests)
	// Output: map[10.0.0.2:20000:100]
}
