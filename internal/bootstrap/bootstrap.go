// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"sync"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
)

var hooks struct {
	sync.Mutex
	first     []func()
	service   []func(*common.URL)
	reference []func(*common.URL)
}

// OnFirst has f run once, at the first service or reference URL, after the settings are final.
// It is meant for init: a function that comes later than that URL is not run.
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
