// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

import (
	"go.uber.org/goleak"
)

// roleKey carries the role of a child process: dubbo-go's shutdown is one per process, so whatever involves it runs in a child, which
// is this test binary.
const roleKey = "GRACEFUL_SHUTDOWN_TEST_ROLE"

func TestMain(m *testing.M) {
	if v := os.Getenv(roleKey); v != "" {
		var r role
		if err := json.Unmarshal([]byte(v), &r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(90)
		}
		os.Exit(r.play())
	}
	// dubbo-go and what it imports start goroutines in their inits.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}
