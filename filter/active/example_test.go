// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active_test

import (
	"errors"
	"fmt"
)

import (
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"
)

import (
	"github.com/dubbogo/graceful/filter/active"
)

// An application that sends requests again by itself, for instance to another cluster, asks whether that is safe.
func ExampleIsNotExecuted() {
	outage := triple_protocol.NewWireError(triple_protocol.CodeUnavailable, errors.New("database is down"))
	fmt.Println(active.IsNotExecuted(outage)) // the handler's own answer: it has run
	// Output: false
}
