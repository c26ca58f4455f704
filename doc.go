// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package graceful makes instances of dubbo-go services come and go without a caller noticing.
package graceful
