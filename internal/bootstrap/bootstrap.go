// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap is where this module enters an application: dubbo-go shows every service and every reference to its
// config post-processor before it is exported or referred.
//
// The first of these calls makes the settings final, or ends the start: dubbo-go's hooks return no error, and a process
// that runs on with settings nobody wanted is worse than one that does not start. Every call then adapts the URL at hand,
// so that a blank import is enough (see adapt.go), and hands it to the parts of this module that asked for it.
package bootstrap

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/global"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/settings"
)

const name = "graceful"

func init() {
	extension.SetConfigPostProcessor(name, &postProcessor{stderr: os.Stderr, exit: os.Exit})
	settings.OnLoad(func(s *config.Settings) { instance.Default().Configure(limits(s)) })
}

var hooks struct {
	sync.Mutex
	first     []func()
	service   []func(*common.URL)
	reference []func(*common.URL)
}

// OnFirst has f run once, at the first service or reference URL, after the settings are final and before that URL is
// touched. It is meant for init: a function that comes later than that URL is not run.
func OnFirst(f func()) {
	hooks.Lock()
	defer hooks.Unlock()
	hooks.first = append(hooks.first, f)
}

// OnService has f run with the URL of every service before it is exported, after this package has adapted it.
func OnService(f func(*common.URL)) {
	hooks.Lock()
	defer hooks.Unlock()
	hooks.service = append(hooks.service, f)
}

// OnReference has f run with the URL of every reference before it is referred, after this package has adapted it.
func OnReference(f func(*common.URL)) {
	hooks.Lock()
	defer hooks.Unlock()
	hooks.reference = append(hooks.reference, f)
}

type postProcessor struct {
	stderr io.Writer
	exit   func(code int)

	once sync.Once
}

// PostProcessServiceConfig is called by dubbo-go for every service.
func (p *postProcessor) PostProcessServiceConfig(url *common.URL) {
	p.first(url)
	adaptService(url)
	hooks.Lock()
	fs := slices.Clone(hooks.service)
	hooks.Unlock()
	for _, f := range fs {
		f(url)
	}
}

// PostProcessReferenceConfig is called by dubbo-go for every reference.
func (p *postProcessor) PostProcessReferenceConfig(url *common.URL) {
	p.first(url)
	// Registries of a client that is configured in code are seen here only.
	if registries, ok := attribute[map[string]*global.RegistryConfig](url, constant.RegistriesConfigKey); ok {
		if err := settings.CheckRegistries(registries); err != nil {
			p.stop(err)
		}
	}
	adaptReference(url, settings.Get())
	hooks.Lock()
	fs := slices.Clone(hooks.reference)
	hooks.Unlock()
	for _, f := range fs {
		f(url)
	}
}

// first returns when the settings are final and every OnFirst function has returned; a second URL that arrives
// meanwhile waits for that.
func (p *postProcessor) first(url *common.URL) {
	p.once.Do(func() {
		shutdown, _ := attribute[*global.ShutdownConfig](url, constant.ShutdownConfigPrefix)
		if err := settings.Load(shutdown); err != nil {
			p.stop(err)
		}
		hooks.Lock()
		fs := slices.Clone(hooks.first)
		hooks.Unlock()
		for _, f := range fs {
			f()
		}
	})
}

// stop ends the process with one line that names the key, the value and what is allowed.
func (p *postProcessor) stop(err error) {
	fmt.Fprintf(p.stderr, "graceful: %v\n", err)
	p.exit(1)
}

// limits hands the settings on to the instance table, which knows nothing of package config. What has no key keeps its
// default.
func limits(s *config.Settings) instance.Settings {
	l := instance.DefaultSettings()
	l.ConnectErrors = s.Blacklist.ConnectErrors
	l.TransportErrors = s.Blacklist.TransportErrors
	l.TimeoutErrors = s.Blacklist.TimeoutErrors
	l.Base = s.Blacklist.Base
	l.Max = s.Blacklist.Max
	l.NoticeTime = s.Blacklist.NoticeTime
	l.MaxPercent = s.Blacklist.MaxPercent
	l.PanicPercent = s.Blacklist.PanicPercent
	l.DialInterval = s.HealthCheck.Interval
	l.WarmupWindow = s.Warmup.Window
	l.WarmupCurve = s.Warmup.Curve
	l.WarmupFloor = s.Warmup.Floor
	l.WarmupRequests = s.Warmup.Requests
	return l
}

func attribute[T any](url *common.URL, key string) (T, bool) {
	v, _ := url.GetAttribute(key)
	t, ok := v.(T)
	return t, ok
}
