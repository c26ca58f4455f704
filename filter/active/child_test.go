// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

const roleKey = "GRACEFUL_ACTIVE_TEST_ROLE"

func playRole(string) int { return 0 }
