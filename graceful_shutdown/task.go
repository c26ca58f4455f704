// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/announce"
	"github.com/dubbogo/graceful/internal/drain"
	"github.com/dubbogo/graceful/internal/probe"
	"github.com/dubbogo/graceful/internal/wire"
)

// task is the work of one phase.
type task struct {
	run   *run
	id    Phase
	count int
	left  int

	mu      sync.Mutex
	waiting func() string
}

// setWaiting says what the phase waits for from now on.
func (t *task) setWaiting(what func() string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = what
}

func (t *task) waitingFor(what string) { t.setWaiting(func() string { return what }) }

// report emits an event each second until stop is called.
func (t *task) report(start time.Time) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				t.mu.Lock()
				what := t.waiting
				t.mu.Unlock()
				e := PhaseWaiting{At: now, Phase: t.id, Elapsed: now.Sub(start)}
				if what != nil {
					e.For = what()
				}
				t.run.c.bus.emit(e)
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// work dispatches to the phase. A panic in it is an error of the phase: the phases after it matter all the more.
func (t *task) work(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panicked: %v", p)
		}
	}()
	switch t.id {
	case NotReady:
		return t.notReady()
	case Announced:
		return t.announce(ctx)
	case Quiesced:
		return t.quiesce(ctx)
	case Unregistered:
		return t.unregister(ctx)
	case Settled:
		return t.settle(ctx)
	case Rejecting:
		return t.reject()
	case InboundDrained:
		return t.drainInbound(ctx)
	case OutboundDrained:
		return t.drainOutbound(ctx)
	case Closed:
		return t.close(ctx)
	case Callbacks:
		return t.callbacks()
	default:
		return fmt.Errorf("unknown %s", t.id)
	}
}

func (t *task) sys() *system { return &t.run.c.sys }

func (t *task) notReady() error {
	r := t.run
	if r.shutdown() {
		t.sys().setReady(false)
	}
	// Online sets UP under the same lock, after it has taken the run back: a run that was must not set DRAINING after it.
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.ctx.Err() == nil {
		r.mark = t.sys().setStatus(wire.Draining).Mark()
		r.since = time.Now()
	}
	return nil
}

func (r *run) shutdown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.target == Callbacks
}

func (t *task) announce(ctx context.Context) error {
	if err := t.run.c.settleComeback(ctx); err != nil {
		return fmt.Errorf("an Online does not end: %w", err)
	}
	pubs := t.sys().publishers()
	t.count = len(pubs)
	t.waitingFor("the registries to take DRAINING")
	var err error
	t.left, err = onAll(ctx, pubs, func(ctx context.Context, p announce.Publisher) error {
		return retry(ctx, func(ctx context.Context) error { return p.Announce(ctx, t.run.mark) })
	})
	return err
}

// quiesce waits for the callers and for the registries at the same time. A registry that does not show the mark in time is no
// error of its own: the unregister that follows is what counts, and is reported when it fails.
func (t *task) quiesce(ctx context.Context) error {
	confirmed := make(chan int, 1)
	pubs := t.sys().publishers()
	go func() {
		unconfirmed, _ := onAll(ctx, pubs, func(ctx context.Context, p announce.Publisher) error {
			return p.Confirmed(ctx, t.run.mark)
		})
		confirmed <- unconfirmed
	}()
	d := t.sys().settings().Drain
	t.waitForCallers(ctx, func(now time.Time) verdict {
		return quiesced(t.views(), t.run.since, now, d)
	})
	if t.left == 0 {
		t.waitingFor("the registries to show DRAINING")
	}
	t.left += <-confirmed
	return nil
}

func (t *task) views() (out []drain.CallerView) {
	t.sys().callers.Each(func(v drain.CallerView) { out = append(out, v) })
	return out
}

// waitForCallers evaluates decide whenever its verdict can have changed, until it is done or ctx ends.
func (t *task) waitForCallers(ctx context.Context, decide func(time.Time) verdict) {
	for {
		v := decide(time.Now())
		t.count, t.left = v.callers, v.left
		if v.done {
			return
		}
		t.waitingFor(v.who)
		timer := time.NewTimer(v.next)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (t *task) unregister(ctx context.Context) error {
	pubs := t.sys().publishers()
	t.count = len(pubs) + t.sys().registries.count()
	t.waitingFor("the registries to remove the records")

	others := make(chan error, 1)
	final := t.run.shutdown()
	go func() {
		if !final {
			others <- nil
			return
		}
		others <- t.unregisterOthers(ctx)
	}()
	failed, err := onAll(ctx, pubs, func(ctx context.Context, p announce.Publisher) error {
		return retry(ctx, p.Withdraw)
	})
	if otherErr := <-others; otherErr != nil {
		failed++
		err = errors.Join(err, otherErr)
	}
	t.left = failed
	t.run.unregistered = time.Now()
	if final {
		t.run.parted = true
		err = errors.Join(err, t.notify())
	}
	return err
}

// unregisterOthers has dubbo-go unregister what it registered without our decorator. Nothing could bring these records back, so it
// is left to a real shutdown, as the health services are.
func (t *task) unregisterOthers(ctx context.Context) error {
	if t.sys().registries.count() == 0 {
		return nil
	}
	err := bounded(ctx, func(context.Context) error { t.sys().registries.unregister(); return nil })
	if err != nil {
		return fmt.Errorf("dubbo-go's registries: %w", err)
	}
	return nil
}

// notify tells the consumers that watch the health services. Vanilla Triple consumers answer with a tombstone of 30 s, so it is
// only for a process that does not come back.
func (t *task) notify() error {
	ctx, cancel := t.run.allow(t.id, time.Second)
	defer cancel()
	t.waitingFor("the health services")
	return t.sys().notify(ctx)
}

func (t *task) settle(ctx context.Context) error {
	d := t.sys().settings().Drain
	t.waitForCallers(ctx, func(now time.Time) verdict {
		return settled(t.views(), t.run.since, t.run.unregistered, now, d)
	})
	return nil
}

func (t *task) reject() error {
	var err error
	if !t.run.parted {
		t.run.parted = true
		t.sys().setReady(false)
		err = t.part()
	}
	t.sys().inbound.Reject()
	return err
}

// part does what Offline, which came this far, has left out because it cannot be taken back, and what it may have failed to do. The
// callers that learn of it only now get their time to move.
func (t *task) part() error {
	ctx, cancel := t.run.allow(t.id, time.Second)
	defer cancel()
	_, err := onAll(ctx, t.sys().publishers(), func(ctx context.Context, p announce.Publisher) error { return p.Withdraw(ctx) })
	err = errors.Join(err, t.unregisterOthers(ctx), t.notify())
	if t.sys().registries.count() > 0 {
		t.run.unregistered = time.Now()
		moving, stop := t.run.allow(t.id, t.sys().settings().Drain.SettleTimeout)
		defer stop()
		err = errors.Join(err, t.settle(moving))
	}
	return err
}

// drainInbound waits for zero, and then lets the connections linger: a filter returns before its response is written. That is
// true of rejections as well, so any of them costs one full linger, but only one: callers that know nothing go on for ever.
func (t *task) drainInbound(ctx context.Context) error {
	in := t.sys().inbound
	t.count = int(in.InFlight())
	t.progressOf(in)
	select {
	case <-in.Zero():
	case <-ctx.Done():
		if cut := in.InFlight(); cut > 0 {
			t.left = int(cut)
			t.run.mu.Lock()
			t.run.cut = cut
			t.run.mu.Unlock()
			return fmt.Errorf("%w: %d still being served%s", ErrCutOff, cut, t.unanswered())
		}
	}
	linger := t.sys().settings().Shutdown.Linger
	from := in.LastLeave()
	if _, rejected := in.Total(); rejected > 0 {
		from = time.Now()
	}
	t.waitingFor("the last responses to be written")
	sleep(ctx, time.Until(from.Add(linger)))
	return nil
}

// unanswered names callers that wait for an answer, as far as that can be told: their last request came after their last answer.
func (t *task) unanswered() string {
	var names []string
	window := t.sys().settings().Drain.CallerWindow
	for _, v := range t.views() {
		if !v.LastSeen.After(v.AckedAt) || time.Since(v.LastSeen) > window {
			continue
		}
		if v.Unknown {
			names = append(names, "callers without this module")
		} else {
			names = append(names, v.Caller.App+"@"+v.Caller.IP)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ", last asked by " + some(names, len(names))
}

func (t *task) progressOf(c *drain.Counter) {
	t.setWaiting(func() string { return fmt.Sprintf("%d requests", c.InFlight()) })
}

// drainOutbound waits for zero, and lingers too: the filter returns before whoever called has looked at the answer. That costs nothing
// where the call was part of a request, which lingered already.
func (t *task) drainOutbound(ctx context.Context) error {
	out := t.sys().outbound
	t.count = int(out.InFlight())
	t.progressOf(out)
	select {
	case <-out.Zero():
	case <-ctx.Done():
		t.left = int(out.InFlight())
	}
	sleep(ctx, time.Until(out.LastLeave().Add(t.sys().settings().Shutdown.Linger)))
	return nil
}

func (t *task) close(ctx context.Context) error {
	t.waitingFor("protocols and registry connections to close")
	type destroyed struct {
		n   int
		err error
	}
	protocols := make(chan destroyed, 1)
	go func() {
		if t.run.upstreamClosed() {
			protocols <- destroyed{}
			return
		}
		n, err := t.sys().destroy(ctx)
		protocols <- destroyed{n, err}
	}()
	pubs := t.sys().publishers()
	var err error
	t.left, err = onAll(ctx, pubs, func(ctx context.Context, p announce.Publisher) error { return p.Close(ctx) })
	probe.Stop() // nobody is called any more
	d := <-protocols
	t.count = d.n + len(pubs)
	return errors.Join(d.err, err)
}

func (r *run) upstreamClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.upstream
}

// callbacks runs the application's callbacks one after another, each once.
func (t *task) callbacks() error {
	if t.run.upstreamClosed() {
		return nil
	}
	var errs []error
	list := t.sys().callbacks()
	t.count = len(list)
	for _, cb := range list {
		err := t.run.runHook(Callbacks, t, cb.name, 0, func(context.Context) error { cb.f(); return nil })
		if err != nil {
			t.left++
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
