// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"context"
	"time"
)

// BeforeShutdown runs all phases of a shutdown and returns when they are over: what an application calls that takes the signals
// itself (dubbo.shutdown.internal-signal: false) and has more to stop than dubbo-go. A deadline of ctx shortens the budget; when ctx
// is cancelled it returns at once, while the shutdown goes on. It never ends the process.
//
// The error joins everything that failed: errors.Is(err, ErrCutOff) says that requests were cut off. Every call after the first
// joins the shutdown that is on its way and returns the same.
func BeforeShutdown(ctx ...context.Context) error {
	if len(ctx) > 0 && ctx[0] != nil {
		return process.shutdown(ctx[0], "BeforeShutdown")
	}
	return process.shutdown(context.Background(), "BeforeShutdown")
}

// Shutdown is BeforeShutdown for a program that ends its own server: Serve returns nil when it is over.
func Shutdown(ctx context.Context) error { return process.shutdown(ctx, "Shutdown") }

// Wait waits until a shutdown is over, whoever asked for it, and returns its result; it starts none. ServeContext returns as soon as
// its context ends, while the shutdown runs on: a main that uses it calls Wait before it returns.
func Wait(ctx context.Context) error { return process.wait(ctx) }

// Offline takes this instance out of the traffic, phases NotReady to Settled, and leaves it running: it still serves whoever calls
// it. Online takes it back. The health services are not touched, and records in a registry without our decorator stay, since neither
// could be taken back. It returns what failed, and returns early with ErrWentOnline when Online comes before it is done.
func Offline(ctx context.Context) error { return process.offline(ctx) }

// Online ends an offline run: UP, with a higher sequence number, in every registry, and ready again. It does nothing while the
// instance is online, and returns ErrShuttingDown once the process is ending.
func Online(ctx context.Context) error { return process.goOnline(ctx) }

// Draining returns a channel that closes when this instance begins to leave, or when ctx ends: a handler of long streams, or a job
// that takes work from elsewhere, gives ctx the context of its work and so has one channel to wait on; ctx.Err() tells the two apart.
func Draining(ctx context.Context) <-chan struct{} { return process.draining(ctx) }

// OnPhase has f run in every run when the work of a phase is done; the next phase waits for it, at most limit (0 means
// shutdown.callback-timeout) and never beyond the phase's part of the budget, which ctx carries. Several functions of one phase run
// one after another in the order in which they were given. An error is logged, and returned by whoever asked for the shutdown.
func OnPhase(p Phase, name string, limit time.Duration, f func(ctx context.Context) error) (remove func()) {
	return process.hooks.add(&hook{phase: p, name: name, limit: limit, f: f})
}

// Subscribe has f called with every event, in their order, from a goroutine of its own: f may take its time, it holds nothing up.
// At the end of a shutdown the last events are waited for, at most 200 ms. After cancel no further call of f begins.
func Subscribe(f func(Event)) (cancel func()) { return process.bus.subscribe(f) }

// Status returns the state of this moment.
func Status() Snapshot { return process.status() }
