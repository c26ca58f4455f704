// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pick chooses one invoker out of a list by weight, and leaves out the instances that should get no request now.
//
// It is what the balancers "warmup" and "blacklist" have in common. The choice is by rejection sampling: take one at
// random, keep it with the probability weight/maximum, after eight misses walk through the list once. So a choice costs
// the same among ten instances and among a thousand, takes no lock and allocates nothing, and nothing has to be kept for
// a list, which dubbo-go hands in as a new slice each time.
package pick
