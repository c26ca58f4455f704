// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"time"
)

import (
	"github.com/dubbogo/graceful/config"
)

func ExampleDecode() {
	// What dubbo.custom.config-map of a dubbogo.yml holds.
	configMap := map[string]any{
		"graceful":               map[string]any{"drain": map[string]any{"timeout": "5s"}},
		"graceful.warmup.window": "90s",
	}
	s, _, err := config.Decode(configMap)
	fmt.Println(s.Drain.Timeout, s.Warmup.Window, err)

	configMap["graceful.drain.timout"] = "9s"
	_, _, err = config.Decode(configMap)
	fmt.Println(err)
	// Output:
	// 5s 1m30s <nil>
	// graceful.drain.timout: 9s is set, but there is no such key, the nearest is graceful.drain.timeout; allowed: graceful.drain.timeout = a duration from 0s to 24h
}

func ExampleOption() {
	s := config.Default()
	s.Apply(config.WithLoadbalance("blacklist"), config.WithDrainTimeout(5*time.Second))
	fmt.Println(s.Loadbalance, s.Drain.Timeout, s.Validate())
	// Output: blacklist 5s <nil>
}
