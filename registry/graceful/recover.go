// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"fmt"
	"slices"
	"sync"
)

import (
	"github.com/dubbogo/gost/log/logger"
)

var recovery struct {
	sync.Mutex
	hooks []func(registryID string)
}

// OnRecover has f called each time a registry came back after its connection was lost and the records of this process have
// been published again with the present status. registryID is the registry's key in dubbogo.yml. f should return soon:
// it holds up that registry's next publication.
func OnRecover(f func(registryID string)) {
	recovery.Lock()
	defer recovery.Unlock()
	recovery.hooks = append(recovery.hooks, f)
}

func recovered(registryID string) {
	recovery.Lock()
	hooks := slices.Clone(recovery.hooks)
	recovery.Unlock()
	for _, f := range hooks {
		if err := call(f, registryID); err != nil {
			logger.Errorf("[Graceful][Registry] recovery hook failed, registry=%s: %v", registryID, err)
		}
	}
}

func call(f func(string), registryID string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	f(registryID)
	return nil
}
