// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package warmup_test

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
	_ "github.com/dubbogo/graceful/cluster/loadbalance/warmup"
)

// A reference names the load balancer:
//
//	dubbo:
//	  consumer:
//	    references:
//	      Backend: {interface: shop.Backend, loadbalance: warmup}
//
// Here the second of two instances has just appeared. Its weight is a tenth of the other's: one request of eleven.
func Example() {
	var invokers []base.Invoker
	for _, addr := range []string{"10.0.0.1:20000", "10.0.0.2:20000"} {
		url, err := common.NewURL("tri://" + addr + "/shop.Backend?interface=shop.Backend")
		if err != nil {
			panic(err)
		}
		invokers = append(invokers, base.NewBaseInvoker(url))
	}

	// The registry decorator does this with every list of instances.
	instance.Default().Observe("10.0.0.1:20000", instance.Observation{Preexisting: true}, time.Now())
	instance.Default().Observe("10.0.0.2:20000", instance.Observation{}, time.Now())

	lb := extension.GetLoadbalance("warmup")
	call := invocation.NewRPCInvocationWithOptions(invocation.WithMethodName("Order"))
	requests := make(map[string]float64)
	for range 100_000 {
		requests[lb.Select(invokers, call).GetURL().Location]++
	}
	fmt.Printf("%.2f\n", requests["10.0.0.2:20000"]/100_000)
	// Output: 0.09
}
