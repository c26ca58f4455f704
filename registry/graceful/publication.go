// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

import (
	"github.com/dubbogo/gost/log/logger"
)

import (
	"github.com/dubbogo/graceful/internal/announce"
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/wire"
)

const (
	// A registry that is down is asked again after firstRetry, then twice as long each time, at most maxRetry, with jitter:
	// many instances that wait for the same registry must not come back in step.
	firstRetry = 100 * time.Millisecond
	maxRetry   = 5 * time.Second
	// attemptTimeout bounds one attempt to write all records; the next one starts with a fresh connection state.
	attemptTimeout = 5 * time.Second
	// A registry says by itself what it shows, but not when: read back after firstLook, at most every maxLook.
	firstLook = 5 * time.Millisecond
	maxLook   = 100 * time.Millisecond
)

// ErrStopped is returned for a record that comes after the process has taken its records out of the registry for good.
var ErrStopped = errors.New("registration is closed")

// publication is what this process has in one registry on one level, and the only writer of it. Callers change what is
// wanted and may wait; one goroutine makes the registry agree, again and again until it does or is told to stop.
type publication struct {
	name string // "zookeeper 127.0.0.1:2181 interface"
	id   string // the registry's id in dubbogo.yml
	pub  publisher

	mu        sync.Mutex
	records   map[string]record // collected, by key
	order     []string
	open      bool // the gate is open: records are published
	withdrawn bool
	closed    bool
	mark      wire.Mark // newest announced; the zero mark: take self.Current()
	stale     []record  // to be removed: unregistered one by one
	version   uint64    // raised by every change of what is wanted
	done      uint64    // version the registry agrees with
	lastErr   error
	published bool          // something of ours may be in the registry
	written   bool          // the registry had all of it once
	lost      bool          // the connection came back: what we know of the registry is old
	changed   chan struct{} // closed and replaced when done or lastErr changes
	cancel    context.CancelCauseFunc
	remove    func()                                   // out of announce
	closing   func()                                   // run by Close before the connection goes; may be nil
	tagging   func(context.Context, []record) []record // adds the drain tag to records; may be nil
	tags      map[string]string                        // what it added, by key, for as long as this process drains

	wake   chan struct{}
	ended  chan struct{} // closed by the first withdrawal or by Close: whoever waits for the gate stops waiting
	stop   context.CancelFunc
	worker sync.WaitGroup

	down    chan struct{} // closed when everything is released
	downErr error
}

var _ announce.Publisher = (*publication)(nil)

func newPublication(name, id string, pub publisher) *publication {
	return &publication{
		name: name, id: id, pub: pub,
		records: make(map[string]record), changed: make(chan struct{}), wake: make(chan struct{}, 1),
		ended: make(chan struct{}), down: make(chan struct{}),
	}
}

// Name implements announce.Publisher.
func (p *publication) Name() string { return p.name }

// collect takes a record, and returns false if its key is known already: a dynamic override exports a service again,
// and dubbo-go never registers that a second time either.
func (p *publication) collect(r record) (added bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false, fmt.Errorf("%s: %w", p.name, ErrStopped)
	}
	key := r.key()
	old, known := p.records[key]
	if known && (r.instance == nil || sameInstance(old, r)) {
		return false, nil
	}
	if !known {
		p.order = append(p.order, key)
	}
	p.records[key] = r
	p.stale = slices.DeleteFunc(p.stale, func(s record) bool { return s.key() == key })
	p.useLocked()
	if p.open && !p.withdrawn {
		p.wantLocked()
	}
	return true, nil
}

// use makes the publication known to the coordinator.
func (p *publication) use() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.useLocked()
}

func (p *publication) useLocked() {
	if p.remove == nil && !p.closed {
		p.remove = announce.Add(p)
	}
}

// sameInstance compares what two instance records publish; dubbo-go registers once per exported service, mostly the same.
func sameInstance(a, b record) bool {
	return a.instance.GetTag() == b.instance.GetTag() && maps.Equal(a.instance.GetMetadata(), b.instance.GetMetadata())
}

// drop forgets a record and has it removed; false if it is not known.
func (p *publication) drop(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, known := p.records[key]
	if !known {
		return false
	}
	delete(p.records, key)
	p.order = slices.DeleteFunc(p.order, func(k string) bool { return k == key })
	if p.published {
		p.stale = append(p.stale, r)
		p.wantLocked()
	}
	return true
}

// openGate publishes what was collected and what comes later. A process that leaves already, or has withdrawn its records,
// publishes nothing, and openGate returns false; an announcement of UP, which ends that, then does.
func (p *publication) openGate() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if !p.open {
		p.open = true
		if leaving() {
			// The coordinator may be past the step in which it would withdraw this one.
			p.withdrawn = true
			p.endLocked()
		}
		if len(p.order) > 0 && !p.withdrawn {
			p.wantLocked()
		}
	}
	return !p.withdrawn
}

// leaving tells whether this process drains.
func leaving() bool { return self.Current().Status == wire.Draining }

// isOpen tells whether records are published as they come.
func (p *publication) isOpen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// addresses lists where the collected records say that this process listens.
func (p *publication) addresses() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, key := range p.order {
		if a := p.records[key].address(); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// wantLocked notes that what is wanted has changed, interrupts an attempt that would publish something older, and has
// the worker look.
func (p *publication) wantLocked() {
	p.version++
	if p.cancel != nil {
		p.cancel(errSuperseded)
	}
	p.startLocked()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

var errSuperseded = errors.New("superseded by a newer state")

func (p *publication) startLocked() {
	if p.stop != nil || p.closed {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.pub.Watch(p.reconnected)
	p.worker.Go(func() { p.run(ctx) })
}

// reconnected is called by the publisher when the connection came back.
func (p *publication) reconnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.written || p.closed {
		return // the attempt that waits for the connection goes on by itself
	}
	p.lost = true
	p.wantLocked()
}

// Announce implements announce.Publisher. UP after a withdrawal publishes the records again.
func (p *publication) Announce(ctx context.Context, m wire.Mark) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return fmt.Errorf("%s: %w", p.name, ErrStopped)
	}
	if m.Start != p.mark.Start || m.Seq >= p.mark.Seq {
		p.mark = m
	}
	if m.Status == wire.Up && p.withdrawn {
		p.withdrawn = false
	}
	if !p.open || p.withdrawn || len(p.order) == 0 {
		p.mu.Unlock()
		return nil
	}
	p.wantLocked()
	version := p.version
	p.mu.Unlock()
	return p.await(ctx, version)
}

// Withdraw implements announce.Publisher: nothing is published from now on, and what is there is gone when it returns nil.
func (p *publication) Withdraw(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	if !p.withdrawn {
		p.withdrawn = true
		p.endLocked()
		if p.published || p.stop != nil {
			p.wantLocked()
		}
	}
	version, idle := p.version, p.stop == nil
	p.mu.Unlock()
	if idle {
		return nil
	}
	return p.await(ctx, version)
}

// Confirmed implements announce.Publisher.
func (p *publication) Confirmed(ctx context.Context, m wire.Mark) error {
	for pause := firstLook; ; pause = min(2*pause, maxLook) {
		p.mu.Lock()
		recs := p.wantedLocked()
		p.mu.Unlock()
		if len(recs) == 0 {
			return nil
		}
		err := p.pub.Shows(ctx, recs, m)
		if err == nil {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%s: %w: %w", p.name, context.Cause(ctx), err)
		}
	}
}

// Close implements announce.Publisher. Records that are still there are left to the registry's expiry. What does not end
// within ctx ends in the background.
func (p *publication) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		p.endLocked()
		close(p.changed)
		go p.tearDown(p.stop, p.remove)
	}
	p.mu.Unlock()
	select {
	case <-p.down:
		return p.downErr
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", p.name, context.Cause(ctx))
	}
}

func (p *publication) tearDown(stop context.CancelFunc, remove func()) {
	defer close(p.down)
	if remove != nil {
		remove()
	}
	if stop != nil {
		stop()
	}
	p.worker.Wait()
	if p.closing != nil {
		p.closing()
	}
	p.downErr = p.pub.Close()
}

func (p *publication) endLocked() {
	select {
	case <-p.ended:
	default:
		close(p.ended)
	}
}

// logRegistryDown tells once what it means that a registry is down: the worker goes on trying.
func logRegistryDown(name string, err error) {
	logger.Warnf("[Graceful][Registry] registry=%q is down: this process serves but is not listed yet, retrying in the background: %v", name, err)
}

// await waits until the registry agrees with the version, and returns the last error if ctx ends first.
func (p *publication) await(ctx context.Context, version uint64) error {
	for {
		p.mu.Lock()
		done, changed, lastErr, closed := p.done, p.changed, p.lastErr, p.closed
		p.mu.Unlock()
		if done >= version {
			return nil
		}
		if closed {
			return fmt.Errorf("%s: %w", p.name, ErrStopped)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if lastErr != nil {
				return fmt.Errorf("%s: %w (last attempt: %w)", p.name, context.Cause(ctx), lastErr)
			}
			return fmt.Errorf("%s: %w", p.name, context.Cause(ctx))
		}
	}
}

// settle waits until the registry agrees with what is wanted now.
func (p *publication) settle(ctx context.Context) error {
	p.mu.Lock()
	version := p.version
	p.mu.Unlock()
	return p.await(ctx, version)
}

// run is the only writer. It ends with ctx.
func (p *publication) run(ctx context.Context) {
	var (
		retry   <-chan time.Time
		timer   *time.Timer
		failing bool
		pause   = firstRetry
	)
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			pause = firstRetry
		case <-retry:
		}
		if timer != nil {
			timer.Stop()
			retry = nil
		}
		err := p.attempt(ctx)
		switch {
		case err == nil:
			if failing {
				failing = false
				logger.Infof("[Graceful][Registry] registry=%q is back, records are up to date", p.name)
			}
		case ctx.Err() != nil:
			return
		case errors.Is(err, errSuperseded):
			// the wake-up for the newer state is waiting
		default:
			if !failing {
				failing = true
				logger.Warnf("[Graceful][Registry] registry=%q cannot be written, retrying until it can or the process stops: %v", p.name, err)
			} else {
				logger.Debugf("[Graceful][Registry] registry=%q still cannot be written: %v", p.name, err)
			}
			timer = time.NewTimer(pause/2 + rand.N(pause/2+1))
			retry = timer.C
			pause = min(2*pause, maxRetry)
		}
	}
}

// attempt brings the registry up to what is wanted at this moment.
func (p *publication) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, cancelTimeout := context.WithTimeout(ctx, attemptTimeout)
	defer cancelTimeout()

	p.mu.Lock()
	if p.done == p.version {
		p.mu.Unlock()
		return nil
	}
	version, lost := p.version, p.lost
	mark := p.markLocked()
	drains := mark.Status == wire.Draining
	if !drains {
		p.tags = nil
	}
	want, stale, all := p.wantedLocked(), slices.Clone(p.stale), p.allLocked()
	removeAll := p.withdrawn && p.published
	p.lost = false
	if len(want) > 0 {
		p.published = true // from here on something may be there, whatever the error
	}
	p.cancel = cancel
	ask := drains && p.tags == nil && p.tagging != nil && len(want) > 0 && wantsTag()
	p.mu.Unlock()
	if ask {
		// Asked once per drain: what is published again after a reconnect must be what was announced.
		want = p.tagging(ctx, want)
		p.mu.Lock()
		p.tags = make(map[string]string)
		for _, r := range want {
			p.tags[r.key()] = r.tag
		}
		p.mu.Unlock()
	}

	var err error
	switch {
	case removeAll:
		err = p.pub.Remove(ctx, append(all, stale...))
	default:
		if len(want) > 0 {
			err = p.pub.Put(ctx, want, mark)
		}
		if len(stale) > 0 {
			err = errors.Join(err, p.pub.Remove(ctx, stale))
		}
	}
	if err != nil && errors.Is(context.Cause(ctx), errSuperseded) {
		err = errSuperseded
	}

	p.mu.Lock()
	p.cancel = nil
	p.lastErr = err
	if err == nil {
		p.done = version
		p.stale = slices.DeleteFunc(p.stale, func(s record) bool {
			return slices.ContainsFunc(stale, func(r record) bool { return r.key() == s.key() })
		})
		p.written = p.written || len(want) > 0
		if removeAll && p.version == version {
			p.published, p.written = false, false
		}
	} else if lost {
		p.lost = true
	}
	closed := p.closed
	if !closed {
		close(p.changed)
		p.changed = make(chan struct{})
	}
	p.mu.Unlock()
	if err == nil && lost && !removeAll && !closed {
		logger.Infof("[Graceful][Registry] registry=%q reconnected, %d records published again with status=%s", p.name, len(want), mark.Status)
		recovered(p.id)
	}
	return err
}

// wantedLocked lists the records that should be in the registry now.
func (p *publication) wantedLocked() []record {
	if !p.open || p.withdrawn || p.closed {
		return nil
	}
	return p.allLocked()
}

func (p *publication) allLocked() []record {
	out := make([]record, 0, len(p.order))
	for _, key := range p.order {
		r := p.records[key]
		r.tag = p.tags[key]
		out = append(out, r)
	}
	return out
}

// markLocked is the newest of what was announced and what this process says of itself: a record that is written again
// after a reconnect must never tell an older state.
func (p *publication) markLocked() wire.Mark {
	now := self.Current().Mark()
	if p.mark.Start == now.Start && p.mark.Seq <= now.Seq || p.mark.Status == wire.Unknown {
		return now
	}
	return p.mark
}
