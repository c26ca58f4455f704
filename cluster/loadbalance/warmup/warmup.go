// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package warmup is a weighted random load balancer that gives an instance that has just started a small share first.
//
// The share grows by the formula
//
//	weight(age) = W * max(floor, (age/window)^curve)
//
// where W is the weight in the provider's URL (0 or absent is 100) and age is the time since this consumer saw the
// instance appear. Floor, window and curve are settings under graceful.warmup. The warm-up ends when the window is over
// and graceful.warmup.requests were served, at the latest at twice the window. Instances that warm up all at once have
// equal shares.
//
// A blank import registers it as the load balancer "warmup".
package warmup

import (
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
)

import (
	_ "github.com/dubbogo/graceful/internal/bootstrap" // loads the settings, also where nothing else is imported
	"github.com/dubbogo/graceful/internal/pick"
)

// Name is what the load balancer is called in a reference's loadbalance and in graceful.blacklist.loadbalance.
const Name = "warmup"

func init() {
	extension.SetLoadbalance(Name, New)
}

// LoadBalance chooses by weight among the instances.
type LoadBalance struct {
	picker pick.Picker
}

var shared LoadBalance

// New returns the load balancer of the process: dubbo-go asks for one with every call.
func New() loadbalance.LoadBalance { return &shared }

// Select returns one of the invokers, nil if there are none.
func (b *LoadBalance) Select(invokers []base.Invoker, invocation base.Invocation) base.Invoker {
	return b.picker.Weighted(invokers, invocation)
}
