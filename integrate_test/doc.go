// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integrate_test proves the promise of the module on real processes and real registries:
// a client calls proxies, proxies call providers, under an open-loop load, with the cluster strategy
// failfast and no retries, while instances are rolled, restarted, scaled, frozen out and killed.
//
// It is built with the tag "integration" and run by make test. The servers are those of
// internal/testserver, processes and accounting those of internal/rollout. Zero means zero: a single
// failed request fails a test, and so does a request that was planned and not sent, sent and not
// answered, or answered without exactly one execution.
package integrate_test
