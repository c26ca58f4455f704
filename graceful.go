// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"dubbo.apache.org/dubbo-go/v3"
)

import (
	_ "github.com/dubbogo/graceful/cluster/interceptor/retry"
	_ "github.com/dubbogo/graceful/cluster/loadbalance/blacklist"
	_ "github.com/dubbogo/graceful/cluster/loadbalance/warmup"
	_ "github.com/dubbogo/graceful/cluster/router/draining"
	"github.com/dubbogo/graceful/config"
	_ "github.com/dubbogo/graceful/filter/active"
	_ "github.com/dubbogo/graceful/graceful_shutdown"
	_ "github.com/dubbogo/graceful/internal/bootstrap"
	"github.com/dubbogo/graceful/internal/settings"
	_ "github.com/dubbogo/graceful/registry/etcdv3"
	_ "github.com/dubbogo/graceful/registry/graceful"
)

// ErrTooLate is what Configure and FromInstance return once a service or reference has been set up: by then the settings
// are in use.
var ErrTooLate = settings.ErrTooLate

// Configure changes settings from code. Options win over dubbogo.yml, and those of several calls add up. It must be called
// before dubbo.Load, NewServer and NewClient.
//
// The error is config.ErrInvalid when a value is not allowed, and names the key, the value and what is allowed; then
// none of the options counts. A load balancer's name is checked later, when everything that registers one has been
// imported: a wrong one ends the start.
func Configure(opts ...config.Option) error { return settings.Configure(opts...) }

// FromInstance takes the settings of an instance that dubbo.NewInstance made, from its custom configuration
// (dubbo.WithCustom), and checks its registries. dubbo.Load needs no such call: what it loads is global. It must be
// called before NewServer and NewClient.
func FromInstance(ins *dubbo.Instance) error { return settings.FromInstance(ins) }
