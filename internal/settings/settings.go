// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings is the one place that reads the settings of this module out of dubbo-go.
//
// They are read once, when the first service or reference is set up: the values of dubbogo.yml, over them the
// options given to Configure, and below both what dubbo.shutdown says. internal/bootstrap calls Load at that moment; a
// package that uses Get imports it for that.
package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

import (
	"dubbo.apache.org/dubbo-go/v3"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/global"

	"github.com/dubbogo/gost/log/logger"
)

import (
	"github.com/dubbogo/graceful/config"
)

// ErrTooLate is returned when settings are given after they were read.
var ErrTooLate = errors.New("graceful: the settings were read when the first service or reference was set up; " +
	"call Configure and FromInstance before NewServer, NewClient and dubbo.Load")

var current atomic.Pointer[config.Settings]

var state struct {
	sync.Mutex
	options    []config.Option
	fromIns    bool // configMap and registries come from an instance, not from dubbo.Load
	configMap  map[string]any
	registries map[string]*global.RegistryConfig
	loaded     bool
	err        error
	shutdown   *global.ShutdownConfig
	waiting    []func(*config.Settings)
}

func init() {
	s := config.Default()
	current.Store(&s)
}

// Get returns the settings: the defaults until they are loaded, the final ones after. The value must not be changed.
func Get() *config.Settings { return current.Load() }

// Shutdown returns dubbo.shutdown as the first service or reference carried it, nil if none did. Its values arrive
// filled with defaults: a default cannot be told from an explicit value.
func Shutdown() *global.ShutdownConfig {
	state.Lock()
	defer state.Unlock()
	return state.shutdown
}

// OnLoad has f called with the settings once they are final, at once if they are already.
func OnLoad(f func(*config.Settings)) {
	state.Lock()
	final := state.loaded && state.err == nil
	if !final {
		state.waiting = append(state.waiting, f)
	}
	state.Unlock()
	if final {
		f(Get())
	}
}

// Configure lays options over what dubbogo.yml says. Options of several calls add up. A value that is not allowed is
// returned at once, and then none of these options counts.
func Configure(opts ...config.Option) error {
	state.Lock()
	defer state.Unlock()
	if state.loaded {
		return ErrTooLate
	}
	all := append(slices.Clone(state.options), opts...)
	s := config.Default()
	s.Apply(all...)
	if err := s.Validate(); err != nil {
		return fmt.Errorf("graceful: %w", err)
	}
	state.options = all
	return nil
}

// FromInstance reads the custom part of dubbogo.yml from an instance made with dubbo.NewInstance, whose configuration is
// not global, and checks the instance's registries.
func FromInstance(ins *dubbo.Instance) error {
	options := ins.GetInstanceOptionsSnapshot()
	if options == nil {
		return errors.New("graceful: FromInstance needs an instance that dubbo.NewInstance made")
	}
	var configMap map[string]any
	if options.Custom != nil {
		configMap = options.Custom.ConfigMap
	}
	if _, _, err := config.Decode(configMap); err != nil {
		return fmt.Errorf("graceful: %w", err)
	}
	if err := CheckRegistries(options.Registries); err != nil {
		return fmt.Errorf("graceful: %w", err)
	}
	state.Lock()
	defer state.Unlock()
	if state.loaded {
		return ErrTooLate
	}
	state.fromIns, state.configMap, state.registries = true, configMap, options.Registries
	return nil
}

// Load makes the settings final, once: a second call returns what the first did. shutdown is dubbo.shutdown, or nil.
func Load(shutdown *global.ShutdownConfig) error {
	state.Lock()
	if state.loaded {
		defer state.Unlock()
		return state.err
	}
	s, err := read(shutdown)
	state.loaded, state.err, state.shutdown = true, err, shutdown
	var waiting []func(*config.Settings)
	if err == nil {
		current.Store(&s)
		waiting, state.waiting = state.waiting, nil
	}
	state.Unlock()
	// Without the lock: they may well ask for Shutdown.
	for _, f := range waiting {
		f(Get())
	}
	return err
}

// Isolate makes this package as it is in a process that has just started, now and when the test t ends. It is for tests of packages
// that load settings; they cannot run in parallel, since settings belong to the process.
func Isolate(t interface{ Cleanup(func()) }) {
	reset := func() {
		state.Lock()
		defer state.Unlock()
		state.options, state.fromIns, state.configMap, state.registries = nil, false, nil, nil
		state.loaded, state.err, state.shutdown, state.waiting = false, nil, nil, nil
		s := config.Default()
		current.Store(&s)
	}
	reset()
	t.Cleanup(reset)
}

// read is called with the lock held.
func read(shutdown *global.ShutdownConfig) (config.Settings, error) {
	configMap, registries := state.configMap, state.registries
	if !state.fromIns {
		if custom := dubbo.GetCustomConfigSnapshot(); custom != nil {
			configMap = custom.ConfigMap
		}
		if loaded := dubbo.GetInstanceOptionsSnapshot(); loaded != nil {
			registries = loaded.Registries
		}
	}
	s, _, err := config.Decode(configMap)
	if err != nil {
		return s, err
	}
	s.Apply(state.options...)
	s, notes := withUpstream(s, shutdown)
	for _, note := range notes {
		logger.Infof("[Graceful][Settings] %s", note)
	}
	if err := s.Validate(); err != nil {
		return s, err
	}
	if err := checkBalancers(&s, extension.GetAllLoadbalanceNames()); err != nil {
		return s, err
	}
	return s, CheckRegistries(registries)
}

// checkBalancers finds a load balancer that nobody registered: dubbo-go would panic at the first request. A default is not checked,
// since the package that would use it may not be imported.
func checkBalancers(s *config.Settings, registered []string) error {
	slices.Sort(registered)
	for _, b := range []struct{ key, name string }{{"blacklist.loadbalance", s.Blacklist.Loadbalance}, {"loadbalance", s.Loadbalance}} {
		if b.name == "" || !s.IsSet(b.key) || slices.Contains(registered, b.name) {
			continue
		}
		return &config.Error{
			Key: config.Prefix + "." + b.key, Value: b.name, Problem: "is no registered load balancer (is its package imported?)",
			Allowed: strings.Join(registered, ", "),
		}
	}
	return nil
}

// CheckRegistries returns an error for the first registry whose graceful.delegate cannot work.
func CheckRegistries(registries map[string]*global.RegistryConfig) error {
	ids := make([]string, 0, len(registries))
	for id := range registries {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		reg := registries[id]
		if reg == nil {
			continue
		}
		protocol := reg.Protocol
		// Registries of an instance were translated already; those given to server.NewServer or client.NewClient were not.
		if scheme, _, found := strings.Cut(reg.Address, "://"); found {
			protocol = scheme
		}
		_, err := config.Delegate(protocol, reg.Params)
		var invalid *config.Error
		if errors.As(err, &invalid) {
			named := *invalid
			named.Key = "dubbo.registries." + id + "." + invalid.Key
			return &named
		}
	}
	return nil
}
