// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_test

import (
	"fmt"
	"time"
)

import (
	"github.com/dubbogo/graceful"
	"github.com/dubbogo/graceful/config"
)

// An application that is configured in code says what dubbogo.yml would, before its servers and clients are made.
func ExampleConfigure() {
	fmt.Println(graceful.Configure(
		config.WithLoadbalance("blacklist"),
		config.WithDrainTimeout(5*time.Second),
		config.WithShutdownGracePeriod(45*time.Second),
	))
	fmt.Println(graceful.Configure(config.WithWarmupWindow(10 * time.Millisecond)))
	// Output:
	// <nil>
	// graceful: graceful.warmup.window: 10ms is not allowed; allowed: a duration from 1s to 24h
}
