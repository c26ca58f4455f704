// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"
)

const (
	// exitReserve is kept of the grace period for what follows the budget: the runtime's exit, logs, the next container hook.
	exitReserve = 5 * time.Second

	// defaultBudget is dubbo-go's own total timeout, for processes that no platform kills.
	defaultBudget = 60 * time.Second

	// kubernetesGracePeriod is the default of terminationGracePeriodSeconds.
	kubernetesGracePeriod = 30 * time.Second
)

// Budget is the time that all phases of the shutdown have together: Timeout where it is set, else the grace period less
// 5 s, else 60 s. In Kubernetes a grace period of 30 s is assumed where none is set. It also returns that grace
// period, 0 if there is none, for the log line that shows the arithmetic.
func (s Shutdown) Budget(kubernetes bool) (budget, gracePeriod time.Duration) {
	gracePeriod = s.GracePeriod
	if gracePeriod == 0 && kubernetes {
		gracePeriod = kubernetesGracePeriod
	}
	switch {
	case s.Timeout > 0:
		return s.Timeout, gracePeriod
	case gracePeriod > 0:
		return gracePeriod - exitReserve, gracePeriod
	default:
		return defaultBudget, 0
	}
}
