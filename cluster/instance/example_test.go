// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"fmt"
	"time"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/wire"
)

// What a consumer knows of three instances after one has announced its leaving, and another has broken a connection.
func Example() {
	now := time.Now()
	settings := instance.DefaultSettings()
	settings.WarmupWindow = 0
	table := instance.New(settings)

	for i, addr := range []string{"10.0.0.1:20000", "10.0.0.2:20000", "10.0.0.3:20000"} {
		table.Observe(addr, instance.Observation{
			Mark: wire.Mark{Status: wire.Up, Start: fmt.Sprintf("170000000000%d-0123456789abcdef", i), Seq: 1},
		}, now)
	}

	first := table.Lookup("10.0.0.1:20000")
	table.MarkDraining(first.Addr(), first.StartID(), instance.FromResponse, now)

	second := table.Lookup("10.0.0.2:20000")
	second.Begin(now)
	second.End(attempt.Transport, 0, now)

	for _, v := range table.Snapshot(now) {
		fmt.Printf("%s %s: %s (%s)\n", v.Addr, v.Verdict, v.Why, v.By)
	}
	// Output:
	// 10.0.0.1:20000 draining: it announced that it leaves (response)
	// 10.0.0.2:20000 ejected: its connections break (requests)
	// 10.0.0.3:20000 usable:  ()
}
