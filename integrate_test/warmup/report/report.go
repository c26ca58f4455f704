// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report is what the consumer of the warm-up measurement tells the test.
package report

import (
	"time"
)

// Fifths is in how many parts the window is looked at.
const Fifths = 5

// Fifth is a fifth of the window.
type Fifth struct {
	Requests int     `json:"requests"`
	Fresh    int     `json:"fresh"`    // served by the fresh instance
	Expected float64 `json:"expected"` // what the formula says for Fresh: the sum of the share at the age of each request
}

// Report is one measurement.
type Report struct {
	Fifths     [Fifths]Fifth `json:"fifths"`
	Failed     []string      `json:"failed,omitempty"`
	WarmIsWarm bool          `json:"warm_is_warm"` // the other instance has its full weight
	Slowest    time.Duration `json:"slowest"`
}

// Add counts a request that was sent when the fresh instance had that age.
func (r *Report) Add(age, window time.Duration, fresh bool) {
	f := &r.Fifths[min(int(age*Fifths/window), Fifths-1)]
	f.Requests++
	if fresh {
		f.Fresh++
	}
	f.Expected += Share(age, window)
}

// Weight is the full weight of the fresh instance in multiples of the other's.
const Weight = 3

// Share is the part of the traffic that a fresh instance should get beside one that is warm: with the default curve 1 and
// floor 0.1 its weight is max(0.1, age/window) of its full one.
func Share(age, window time.Duration) float64 {
	w := Weight * min(max(0.1, float64(age)/float64(window)), 1)
	return w / (w + 1)
}
