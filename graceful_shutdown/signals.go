// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

import (
	upstream "dubbo.apache.org/dubbo-go/v3/graceful_shutdown"
)

// impatience is how long after the first signal a second one ends the process at once. Ctrl-C reaches parent and child, and the
// parent often passes it on: two signals at the same moment are one wish.
const impatience = time.Second

// taken are the signals that begin a shutdown: those that dubbo-go takes, less SIGHUP when the process was started by nohup.
func taken() []os.Signal {
	return slices.DeleteFunc(slices.Clone(upstream.ShutdownSignals), func(s os.Signal) bool {
		return s == os.Kill || s == syscall.SIGHUP && signal.Ignored(s)
	})
}

// listen takes the signals until stop is called.
func (c *coordinator) listen(signals ...os.Signal) (stop func()) {
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, signals...)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		c.obey(ch, quit)
	}()
	return func() {
		signal.Stop(ch)
		close(quit)
		<-done
	}
}

func (c *coordinator) obey(ch <-chan os.Signal, quit <-chan struct{}) {
	var first time.Time
	for {
		select {
		case <-quit:
			return
		case sig := <-ch:
			now := time.Now()
			forced := !first.IsZero() && now.Sub(first) >= impatience && (sig == syscall.SIGTERM || sig == os.Interrupt)
			c.bus.emit(SignalReceived{At: now, Signal: sig, Forced: forced})
			switch {
			case first.IsZero():
				first = now
				c.leaveOn(sig)
			case forced:
				c.end(128+number(sig), nil)
			}
		}
	}
}

// leaveOn begins a shutdown that ends the process, or makes the one that is on its way do so.
func (c *coordinator) leaveOn(sig os.Signal) {
	r := c.leave(request{trigger: "signal " + sig.String(), target: Callbacks, signal: sig})
	r.mu.Lock()
	late := r.late
	r.mu.Unlock()
	if !late {
		return
	}
	// The application's own Shutdown is over, or as good as over.
	go func() {
		<-r.done
		r.mu.Lock()
		code := r.exitCode()
		r.mu.Unlock()
		c.end(code, sig)
	}()
}

func number(sig os.Signal) int {
	if n, ok := sig.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}
