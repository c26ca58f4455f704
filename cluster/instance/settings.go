// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"time"
)

// Settings are the limits of every decision. Zero values are taken as they are; start from [DefaultSettings].
type Settings struct {
	// Consecutive errors that eject, by class; 0 never ejects for that class. One refused connection is proof; one
	// connection that broke under a request usually means a dead process, and a trial a second later costs one request;
	// a single timeout may be a slow request, five in a row are not.
	ConnectErrors   int
	TransportErrors int
	TimeoutErrors   int

	// Base is the first ejection, Max the longest. A second is about the time in which a process restarts or a
	// connection pool recovers; a minute is as long as one can wait for a repaired instance to be noticed.
	Base time.Duration
	Max  time.Duration

	// HealthyInterval takes one off the multiplier for each time it passes without an ejection.
	HealthyInterval time.Duration

	// DialInterval is the longest time between two dials of an instance that is out; at least 250 ms.
	DialInterval time.Duration

	// NoticeTime is how long an instance that announced its leaving is left out. It has to outlast every drain; and it
	// is the way back for one that was marked by mistake.
	NoticeTime time.Duration

	// MaxPercent and PanicPercent are kept here for the balancers, which apply them per selection.
	MaxPercent   int
	PanicPercent int

	// Warm-up: see [Entry.Weight]. A window of 0 switches it off.
	WarmupWindow   time.Duration
	WarmupCurve    float64
	WarmupFloor    float64
	WarmupRequests int
}

// DefaultSettings returns the defaults of the module.
func DefaultSettings() Settings {
	return Settings{
		ConnectErrors:   1,
		TransportErrors: 1,
		TimeoutErrors:   5,
		Base:            time.Second,
		Max:             time.Minute,
		HealthyInterval: 30 * time.Second,
		DialInterval:    10 * time.Second,
		NoticeTime:      2 * time.Minute,
		MaxPercent:      50,
		PanicPercent:    20,
		WarmupWindow:    2 * time.Minute,
		WarmupCurve:     1,
		WarmupFloor:     0.1,
		WarmupRequests:  100,
	}
}
