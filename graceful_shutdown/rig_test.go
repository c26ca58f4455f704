// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

import (
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/announce"
	"github.com/dubbogo/graceful/internal/drain"
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/wire"
)

// rig is a coordinator over fakes, with a journal of everything that it did and every event that it told.
type rig struct {
	*coordinator
	t        *testing.T
	set      config.Settings
	in, out  *drain.Counter
	known    *drain.Callers
	pubs     []announce.Publisher
	cbs      []callback
	others   int
	notifyF  func(context.Context) error
	destroyF func(context.Context) error

	stop    chan struct{} // ends what load has started
	load    sync.WaitGroup
	mu      sync.Mutex
	journal []string
	events  []Event
	state   self.State
	exits   []int
	start   time.Time
}

// bubble runs f with a rig, in fake time.
func bubble(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, set: config.Default(), in: new(drain.Counter), out: new(drain.Counter), known: new(drain.Callers), stop: make(chan struct{}), start: time.Now()}
		r.state = self.State{Start: "1-a", Seq: 1, Status: wire.Up}
		r.coordinator = newCoordinator(system{
			settings:  func() *config.Settings { return &r.set },
			setStatus: r.setStatus,
			setReady:  func(v bool) { r.note("ready=%v", v) },
			publishers: func() []announce.Publisher {
				return slices.Clone(r.pubs)
			},
			registries: r,
			callers:    r.known,
			inbound:    r.in,
			outbound:   r.out,
			notify: func(ctx context.Context) error {
				r.note("notify")
				if r.notifyF != nil {
					return bounded(ctx, r.notifyF)
				}
				return nil
			},
			destroy: func(ctx context.Context) (int, error) {
				r.note("destroy rejecting=%v", r.in.Rejecting())
				if r.destroyF != nil {
					return 1, bounded(ctx, r.destroyF)
				}
				return 1, nil
			},
			callbacks: func() []callback { return r.cbs },
			release:   func(context.Context) { r.note("release") },
			exit: func(code int, _ os.Signal) {
				r.note("exit %d", code)
				r.mu.Lock()
				r.exits = append(r.exits, code)
				r.mu.Unlock()
				runtime.Goexit() // as little comes back from os.Exit
			},
		})
		r.bus.subscribe(func(e Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		})
		f(t, r)
		close(r.stop)
		r.load.Wait()
		r.leaving()
	})
}

func (r *rig) setStatus(s wire.Status) *self.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.Status != s {
		r.state.Status = s
		r.state.Seq++
	}
	r.journal = append(r.journal, "status="+s.String())
	state := r.state
	return &state
}

func (r *rig) count() int  { return r.others }
func (r *rig) unregister() { r.note("unregister others") }

func (r *rig) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journal = append(r.journal, fmt.Sprintf(format, args...))
}

func (r *rig) did() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.journal)
}

func (r *rig) exited() []int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.exits)
}

func (r *rig) seen() []Event {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// reached lists the phases in the order of their events.
func (r *rig) reached() (out []Phase) {
	for _, e := range r.seen() {
		if e, ok := e.(PhaseReached); ok {
			out = append(out, e.Phase)
		}
	}
	return out
}

// phase returns how a phase ended.
func (r *rig) phase(p Phase) PhaseReached {
	r.t.Helper()
	for _, e := range r.seen() {
		if e, ok := e.(PhaseReached); ok && e.Phase == p {
			return e
		}
	}
	require.FailNow(r.t, "phase not reached", "%s", p)
	return PhaseReached{}
}

func (r *rig) callback(name string, f func()) {
	r.cbs = append(r.cbs, callback{name: name, f: func() {
		r.note("callback %s", name)
		f()
	}})
}

// caller makes a request of a caller; with ack, its response carried the mark.
func (r *rig) caller(app string, ack bool) *drain.CallerEntry {
	h := ""
	if app != "" {
		h = wire.Caller{App: app, IP: "10.0.0.1", Start: "1-" + app, To: "10.0.0.9:1"}.Format()
	}
	e := r.known.Seen(h, "10.0.0.9:1", time.Now())
	if ack {
		e.Acked(time.Now())
	}
	return e
}

// every calls f at intervals, in a goroutine that ends with the test.
func (r *rig) every(d time.Duration, f func(i int)) {
	r.load.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for i := 0; ; i++ {
			f(i)
			select {
			case <-tick.C:
			case <-r.stop:
				return
			}
		}
	})
}

// fake is a registry. A nil function does nothing.
type fake struct {
	r         *rig
	name      string
	announceF func(context.Context, wire.Mark) error
	withdrawF func(context.Context) error
	confirmF  func(context.Context, wire.Mark) error
	closeF    func(context.Context) error
}

func (r *rig) registry(name string) *fake {
	f := &fake{r: r, name: name}
	r.pubs = append(r.pubs, f)
	return f
}

func (f *fake) Name() string { return f.name }

func (f *fake) Announce(ctx context.Context, m wire.Mark) (err error) {
	if f.announceF != nil {
		err = f.announceF(ctx, m)
	}
	f.r.note("%s announce %s seq=%d ok=%v", f.name, m.Status, m.Seq, err == nil)
	return err
}

func (f *fake) Withdraw(ctx context.Context) (err error) {
	if f.withdrawF != nil {
		err = f.withdrawF(ctx)
	}
	f.r.note("%s withdraw ok=%v rejecting=%v", f.name, err == nil, f.r.in.Rejecting())
	return err
}

func (f *fake) Confirmed(ctx context.Context, m wire.Mark) error {
	if f.confirmF != nil {
		return f.confirmF(ctx, m)
	}
	f.r.note("%s confirmed %s", f.name, m.Status)
	return nil
}

func (f *fake) Close(ctx context.Context) error {
	f.r.note("%s close", f.name)
	if f.closeF != nil {
		return f.closeF(ctx)
	}
	return nil
}

// hang never returns, whatever its context says, until the bubble's test is over.
func hang(t *testing.T) func() {
	quit := make(chan struct{})
	t.Cleanup(func() { close(quit) })
	return func() { <-quit }
}
