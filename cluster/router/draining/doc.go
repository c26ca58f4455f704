// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package draining keeps requests away from instances that leave, whatever load balancer and cluster strategy a reference uses.
//
// The router ([Key]) runs last in every chain and hides, for as long as others are left, the instances that announced their leaving
// and those that their registry has removed while calls to them are under way. While none is hidden it hands on the very list it was
// given, at the price of one atomic load and one look at the invocation.
//
// The list that it hands on is never empty: where nobody better is left it has the draining instances, then the removed ones, and
// for a transparent retry those that it has tried already.
//
// The package also takes the consumer's directories away from dubbo-go's closing events (Triple and grpc health watches, closing
// marks), which would destroy an invoker under the calls that use it and keep its address out for 30 s, a restarted process
// included. The event becomes a DRAINING mark instead.
package draining

import (
	"dubbo.apache.org/dubbo-go/v3/cluster/router"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/registry/directory"
)

// Key names the router.
const Key = "graceful-draining"

func init() {
	extension.SetRouterFactory(Key, func() router.PriorityRouterFactory { return factory{} })

	extension.SetDefaultRegistryDirectory(quiet(directory.NewRegistryDirectory))
	extension.SetDirectory(constant.RegistryProtocol, quiet(directory.NewRegistryDirectory))
	// By the name of the decorator too, or dubbo-go warns at each reference that it has to take the default.
	extension.SetDirectory("graceful", quiet(directory.NewRegistryDirectory))
	extension.SetDirectory(constant.ServiceRegistryProtocol, quiet(directory.NewServiceDiscoveryRegistryDirectory))
}
