// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package blacklist is a load balancer that leaves out the instances that fail and lets another one choose among the rest.
//
// Who fails is decided where the calls are counted (cluster/instance, fed by the consumer filter cgraceful); this package
// only reads it:
//
//   - An ejected instance gets no request until its time is over and a dial in the background has reached it. Then one
//     live request tries it: success restores it, failure ejects it for longer.
//   - An instance whose last dial was refused gets none until a dial succeeds.
//   - If more than graceful.blacklist.max-percent of the candidates are ejected for broken connections or timeouts (one of
//     two always may be), or less than graceful.blacklist.panic-percent are usable, the judgement is more likely wrong
//     than the instances: such ejections are ignored then.
//   - Where nobody is usable the last resorts are ejected instances, then draining ones. One that the registry has removed
//     never is.
//
// graceful.blacklist.loadbalance names the load balancer that chooses among the rest, any that is registered. The default
// is "warmup".
//
// A blank import registers it as the load balancer "blacklist".
package blacklist

import (
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
)

import (
	"github.com/dubbogo/graceful/config"
	_ "github.com/dubbogo/graceful/internal/bootstrap" // loads the settings, also where nothing else is imported
	"github.com/dubbogo/graceful/internal/pick"
	_ "github.com/dubbogo/graceful/internal/probe" // dials who is left out
	"github.com/dubbogo/graceful/internal/settings"
)

// Name is what the load balancer is called in a reference's loadbalance.
const Name = "blacklist"

// byWeight is the delegate that needs no list of its own: it is weighted choice, which the picker does itself.
const byWeight = "warmup"

func init() {
	extension.SetLoadbalance(Name, New)
}

// LoadBalance chooses among the instances that are not failing.
type LoadBalance struct {
	picker   pick.Picker
	settings func() *config.Settings
}

var shared = LoadBalance{settings: settings.Get}

// New returns the load balancer of the process: dubbo-go asks for one with every call.
func New() loadbalance.LoadBalance { return &shared }

// Select returns one of the invokers, nil if there are none.
func (b *LoadBalance) Select(invokers []base.Invoker, invocation base.Invocation) base.Invoker {
	s := &b.settings().Blacklist
	limits := pick.Limits{MaxPercent: s.MaxPercent, PanicPercent: s.PanicPercent}
	switch s.Loadbalance {
	case byWeight, Name: // itself would never end
		return b.picker.Healthy(invokers, invocation, limits)
	}
	// A new one for each call, as dubbo-go does it: the state of a foreign load balancer is its own affair.
	return b.picker.Through(extension.GetLoadbalance(s.Loadbalance), invokers, invocation, limits)
}
