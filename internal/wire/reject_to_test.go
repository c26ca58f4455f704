// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"testing"
)

import (
	"github.com/stretchr/testify/assert"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

func TestRejectionRepeatsTheAddress(t *testing.T) {
	msg := wire.RejectMessageTo("1-a", "10.0.0.1:20000")
	start, ok := wire.ParseReject(msg)
	assert.True(t, ok)
	assert.Equal(t, "1-a", start)

	for name, tc := range map[string]struct {
		msg, to string
		ok      bool
	}{
		"alone":               {msg, "10.0.0.1:20000", true},
		"inside another text": {"java exception: x - " + msg + " (again)", "10.0.0.1:20000", true},
		"IPv6":                {wire.RejectMessageTo("1-a", "[::1]:20000"), "[::1]:20000", true},
		"not said":            {wire.RejectMessage("1-a"), "", false},
		"no address":          {wire.RejectMessageTo("1-a", "a b"), "", false},
		"no marker":           {"a to 10.0.0.1:20000", "", false},
		"the first one only":  {wire.RejectMessage("2-b") + ", " + msg, "", false},
		"stripped":            {wire.StripMarks(msg), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			to, ok := wire.ParseRejectTo(tc.msg)
			assert.Equal(t, tc.ok, ok)
			assert.Equal(t, tc.to, to)
		})
	}
}
