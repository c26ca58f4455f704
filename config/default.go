// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"
)

// Default returns the settings that hold where nothing is set. The comment of each field of Settings tells why.
func Default() Settings {
	return Settings{
		Retry:       Retry{Enabled: true},
		HealthCheck: HealthCheck{Interval: 10 * time.Second},
		Drain: Drain{
			Timeout:         3 * time.Second,
			Quiet:           200 * time.Millisecond,
			SettleTimeout:   8 * time.Second,
			CallerWindow:    60 * time.Second,
			OutboundTimeout: 3 * time.Second,
		},
		Warmup: Warmup{
			Window:   2 * time.Minute,
			Curve:    1,
			Floor:    0.1,
			Requests: 100,
			Policy:   "random",
		},
		Blacklist: Blacklist{
			ConnectErrors:   1,
			TransportErrors: 1,
			TimeoutErrors:   5,
			Base:            time.Second,
			Max:             60 * time.Second,
			MaxPercent:      50,
			PanicPercent:    20,
			NoticeTime:      2 * time.Minute,
			Loadbalance:     "warmup",
		},
		Register: Register{
			Timeout:   10 * time.Second,
			OnTimeout: "register",
		},
		Shutdown: Shutdown{
			Linger:          100 * time.Millisecond,
			ExitCode:        1,
			CallbackTimeout: 5 * time.Second,
		},
		Registry: Registry{HoldTimeout: 30 * time.Second},
	}
}
