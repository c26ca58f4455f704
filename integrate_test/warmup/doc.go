// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package warmup measures, in real processes, which share of the traffic an instance gets that has just started.
package warmup
