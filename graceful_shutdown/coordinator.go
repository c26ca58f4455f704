// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

import (
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/announce"
	"github.com/dubbogo/graceful/internal/drain"
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/wire"
)

var (
	// ErrCutOff says that requests were still being served when their time was over.
	ErrCutOff = errors.New("requests were cut off")
	// ErrShuttingDown is returned by Online when the process is not offline but ending.
	ErrShuttingDown = errors.New("the process is shutting down")
	// ErrWentOnline is returned by Offline when Online came before it was done.
	ErrWentOnline = errors.New("the process went back online")
)

// system is everything the coordinator moves. The process has one; tests make their own.
type system struct {
	settings   func() *config.Settings
	kubernetes bool

	setStatus  func(wire.Status) *self.State
	setReady   func(bool)
	publishers func() []announce.Publisher
	registries registries
	callers    *drain.Callers
	inbound    *drain.Counter
	outbound   *drain.Counter
	notify     func(context.Context) error            // health services: NOT_SERVING
	destroy    func(context.Context) (n int, _ error) // protocols
	callbacks  func() []callback                      // of the application, in their order
	release    func(context.Context)                  // dubbo-go's Serve returns
	exit       func(code int, sig os.Signal)          // ends the process
}

// registries are those that dubbo-go drives itself, without our decorator.
type registries interface {
	count() int
	unregister()
}

// callback is one shutdown callback of the application.
type callback struct {
	name string
	f    func()
}

// coordinator owns the way out of this process. There is at most one run at a time.
type coordinator struct {
	sys   system
	bus   bus
	hooks hooks

	mu      sync.Mutex
	run     *run               // nil while serving
	serving context.Context    // ends when a run begins
	leaving context.CancelFunc // ends serving
	online  *comeback          // the last Online, whose writes must not overtake those of the next run
	behind  bool               // the last Online did not reach every registry
	last    error              // result of the shutdown, once over is closed
	over    chan struct{}      // closed when a shutdown is over
	quit    atomic.Bool
}

func newCoordinator(sys system) *coordinator {
	c := &coordinator{sys: sys, over: make(chan struct{})}
	c.serving, c.leaving = context.WithCancel(context.Background())
	return c
}

// request asks for a run.
type request struct {
	trigger  string
	target   Phase
	deadline time.Time // of the caller, zero if it has none
	signal   os.Signal // set when the process is to end with the run
	upstream bool      // dubbo-go has destroyed its protocols and runs the callbacks itself
}

// run is one way through the phases, by one goroutine at a time.
type run struct {
	c       *coordinator
	ctx     context.Context // ends only when Online takes the run back
	cancel  context.CancelFunc
	phases  [phases]*phase
	started time.Time // the first request

	worked chan struct{} // closed when all the phases of a shutdown are over
	done   chan struct{} // closed after that, when dubbo-go has been told

	mu          sync.Mutex
	trigger     string
	asked       time.Time // when the present target was set
	target      Phase
	at          Phase
	idle        chan struct{} // closed when the goroutine has reached the target
	plan        plan
	deadline    time.Time
	cancelPhase context.CancelFunc
	tighten     *time.Timer
	signal      os.Signal
	watchdog    *time.Timer
	upstream    bool
	finishing   bool
	late        bool // the signal came when the run was finishing, which then does not end the process
	errs        []error
	cut         int64
	err         error

	// Only the run's goroutine uses these.
	since        time.Time // when the responses began to carry the mark
	unregistered time.Time
	parted       bool // told those who cannot be told the opposite: health services, registries without our decorator
	mark         wire.Mark
}

// leave begins a run, or joins the one that is on its way. A shutdown that finds an offline run goes on where that stands, with
// a budget of its own from now on.
func (c *coordinator) leave(q request) *run {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	s := c.sys.settings()
	total, _ := budgetOf(s.Shutdown, c.sys.kubernetes)
	if !q.deadline.IsZero() {
		total = max(0, min(total, q.deadline.Sub(now)))
	}

	r := c.run
	if r == nil {
		r = &run{c: c, started: now, worked: make(chan struct{}), done: make(chan struct{})}
		r.ctx, r.cancel = context.WithCancel(context.Background())
		for p := NotReady; int(p) < phases; p++ {
			r.phases[p] = newPhase(p)
		}
		c.run = r
		c.leaving()
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if q.signal != nil && r.signal == nil {
		r.signal, r.late = q.signal, r.finishing
		r.watchdog = time.AfterFunc(total, r.overdue)
	}
	if q.target <= r.target {
		return r
	}
	resumed := r.target != Serving
	r.trigger, r.target, r.upstream, r.asked = q.trigger, q.target, q.upstream, now
	r.plan = newPlan(total-margin(total), s.Drain, s.Shutdown.CallbackTimeout, len(c.sys.callbacks())+len(c.hooks.of(Callbacks)))
	r.deadline = now.Add(r.plan.total)
	c.bus.emit(RunStarted{At: now, Trigger: q.trigger, Target: q.target, Budget: total, Resumed: resumed})

	if r.idle == nil || isClosed(r.idle) {
		r.idle = make(chan struct{})
		go r.walk()
	} else if r.cancelPhase != nil {
		// The phase that is on its way got its slice from another budget.
		r.tighten = time.AfterFunc(r.plan.limit(r.at, r.plan.total), r.cancelPhase)
	}
	return r
}

// margin is kept back from a budget for what comes after the last phase: the last lines of log, and returning to the caller.
func margin(total time.Duration) time.Duration { return min(total/20, 250*time.Millisecond) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// walk goes from phase to phase until the target, which may move further away meanwhile.
func (r *run) walk() {
	for {
		p, ok := r.next()
		if !ok {
			return
		}
		r.step(p)
	}
}

// next moves to the next phase. At the target it ends the goroutine's work: for an offline run by leaving it idle, for a
// shutdown by finishing it.
func (r *run) next() (Phase, bool) {
	r.mu.Lock()
	if r.at < r.target && r.ctx.Err() == nil {
		r.at++
		p := r.at
		r.mu.Unlock()
		return p, true
	}
	shutdown := r.target == Callbacks && r.ctx.Err() == nil
	if !shutdown {
		r.c.bus.emit(RunFinished{At: time.Now(), Trigger: r.trigger, Target: r.target, Took: time.Since(r.asked), Err: errors.Join(r.errs...)})
		close(r.idle)
		r.mu.Unlock()
		return 0, false
	}
	r.finishing = true
	r.mu.Unlock()
	r.finish()
	return 0, false
}

// step does one phase.
func (r *run) step(id Phase) {
	c, ph := r.c, r.phases[id]
	now := time.Now()

	r.mu.Lock()
	limit := r.plan.limit(id, r.deadline.Sub(now))
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	r.cancelPhase = cancel
	r.mu.Unlock()

	ph.begin(now)
	c.bus.emit(PhaseStarted{At: now, Phase: id, Limit: limit})
	t := &task{run: r, id: id}
	stop := t.report(now)
	err := t.work(ctx)
	err = errors.Join(err, r.runHooks(id, t))
	stop()

	r.mu.Lock()
	if r.tighten != nil {
		r.tighten.Stop()
		r.tighten = nil
	}
	r.cancelPhase = nil
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s: %w", id, err))
	}
	r.mu.Unlock()

	timedOut := ctx.Err() != nil && t.left > 0
	cancel()
	now = time.Now()
	took := ph.reach(now, timedOut)
	c.bus.emit(PhaseReached{At: now, Phase: id, Took: took, Count: t.count, Left: t.left, TimedOut: timedOut, Err: err})
}

// allow returns a context for something extra in a phase: at most want, and never what the later phases can count on.
func (r *run) allow(id Phase, want time.Duration) (context.Context, context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return context.WithTimeout(r.ctx, max(0, min(want, time.Until(r.deadline)-r.plan.reserved(id))))
}

// runHooks runs the functions given to OnPhase, one after another in the order they were given.
func (r *run) runHooks(id Phase, t *task) error {
	var errs []error
	for _, h := range r.c.hooks.of(id) {
		if err := r.runHook(id, t, h.name, h.limit, h.f); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *run) runHook(id Phase, t *task, name string, limit time.Duration, f func(context.Context) error) error {
	if limit <= 0 {
		limit = r.c.sys.settings().Shutdown.CallbackTimeout
	}
	ctx, cancel := r.allow(id, limit)
	defer cancel()
	t.setWaiting(func() string { return name })
	start := time.Now()
	err := bounded(ctx, f)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	now := time.Now()
	r.c.bus.emit(HookDone{At: now, Phase: id, Name: name, Took: now.Sub(start), Err: err})
	return err
}

// finish ends a shutdown: the process, if a signal asked for it, else the wait of everybody who asked.
func (r *run) finish() {
	c := r.c
	r.mu.Lock()
	err := errors.Join(r.errs...)
	sig, code := r.signal, r.exitCode()
	e := RunFinished{
		At: time.Now(), Trigger: r.trigger, Target: r.target, Took: time.Since(r.asked), CutOff: r.cut, Err: err,
		Exiting: sig != nil, ExitCode: code,
	}
	r.err = err
	r.mu.Unlock()
	c.bus.emit(e)
	if sig != nil {
		// Before dubbo-go is told: Serve must not return, or main would go on and end the process with a code of its own.
		c.end(code, sig)
	}
	// When Serve and Shutdown return main may end the process.
	c.flush()
	close(r.worked)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	_ = bounded(ctx, func(ctx context.Context) error { c.sys.release(ctx); return nil })
	cancel()
	c.mu.Lock()
	c.last = err
	close(c.over)
	c.mu.Unlock()
	r.mu.Lock()
	close(r.idle)
	r.mu.Unlock()
	close(r.done)
}

func (r *run) began() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// exitCode is called with r.mu held.
func (r *run) exitCode() int {
	if r.cut > 0 {
		return r.c.sys.settings().Shutdown.ExitCode
	}
	return 0
}

// overdue ends the process when the budget of a signal is over and the run, against all its bounds, is not.
func (r *run) overdue() {
	code := 0
	cut := r.c.sys.inbound.InFlight()
	if cut > 0 {
		code = r.c.sys.settings().Shutdown.ExitCode
	}
	now := time.Now()
	r.c.bus.emit(RunFinished{At: now, Trigger: "budget is over", Target: Callbacks, Took: now.Sub(r.began()), CutOff: cut, Err: context.DeadlineExceeded, Exiting: true, ExitCode: code})
	r.c.end(code, nil)
}

// flushLimit bounds the wait for subscribers that have not seen the last events yet, the log first of all.
const flushLimit = 200 * time.Millisecond

func (c *coordinator) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	c.bus.flush(ctx)
}

// end leaves the process, once.
func (c *coordinator) end(code int, sig os.Signal) {
	if c.quit.Swap(true) {
		return
	}
	c.flush()
	c.sys.exit(code, sig)
}

// shutdown runs all phases and waits for them.
func (c *coordinator) shutdown(ctx context.Context, trigger string) error {
	q := request{trigger: trigger, target: Callbacks}
	q.deadline, _ = ctx.Deadline()
	r := c.leave(q)
	select {
	case <-r.done:
		return r.result()
	case <-ctx.Done():
	}
	if isClosed(r.done) {
		return r.result()
	}
	return fmt.Errorf("shutdown goes on in phase %s: %w", r.current(), ctx.Err())
}

func (r *run) result() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *run) current() Phase {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

// wait waits for the end of a shutdown, whoever asked for it.
func (c *coordinator) wait(ctx context.Context) error {
	select {
	case <-c.over:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.last
	case <-ctx.Done():
		return ctx.Err()
	}
}

// offline runs the phases up to Settled and waits for them.
func (c *coordinator) offline(ctx context.Context) error {
	q := request{trigger: "Offline", target: Settled}
	q.deadline, _ = ctx.Deadline()
	r := c.leave(q)
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-r.phases[Settled].reached:
	case <-idle:
	case <-ctx.Done():
		if !r.phases[Settled].isReached() {
			return fmt.Errorf("going offline goes on in phase %s: %w", r.current(), ctx.Err())
		}
	}
	if r.ctx.Err() != nil && !r.phases[Settled].isReached() {
		return ErrWentOnline
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.errs...)
}

// goOnline takes an offline run back: UP with a higher sequence number in every registry. Called again after it failed, it
// publishes again.
func (c *coordinator) goOnline(ctx context.Context) error {
	c.mu.Lock()
	var idle chan struct{}
	if r := c.run; r != nil {
		r.mu.Lock()
		if r.target == Callbacks {
			r.mu.Unlock()
			c.mu.Unlock()
			return ErrShuttingDown
		}
		idle = r.idle
		r.cancel()
		r.mu.Unlock()
		c.run = nil
		c.serving, c.leaving = context.WithCancel(context.Background())
	} else if !c.behind {
		c.mu.Unlock()
		return nil
	}
	state := c.sys.setStatus(wire.Up)
	ctx, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	back := &comeback{cancel: cancel, done: make(chan struct{})}
	previous := c.online
	c.online = back
	c.behind = true
	c.mu.Unlock()
	defer close(back.done)

	// Whatever was being written before must have been written, or given up, before this UP is.
	if err := previous.stop(ctx); err != nil {
		return err
	}
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err := onAll(ctx, c.sys.publishers(), func(ctx context.Context, p announce.Publisher) error {
		return retry(ctx, func(ctx context.Context) error { return p.Announce(ctx, state.Mark()) })
	})
	if err == nil {
		c.mu.Lock()
		c.behind = false
		c.mu.Unlock()
	}
	c.bus.emit(WentOnline{At: time.Now(), Seq: state.Seq, Err: err})
	return err
}

// comeback is an Online that may still be writing.
type comeback struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// stop cancels the comeback and waits until it writes no more. A nil one is not writing.
func (b *comeback) stop(ctx context.Context) error {
	if b == nil {
		return nil
	}
	b.cancel()
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settleComeback waits until an Online that is still writing has stopped, so that its UP cannot land after the run's DRAINING.
func (c *coordinator) settleComeback(ctx context.Context) error {
	c.mu.Lock()
	back := c.online
	c.mu.Unlock()
	return back.stop(ctx)
}

// draining returns a channel that closes when a run begins, or when ctx ends.
func (c *coordinator) draining(ctx context.Context) <-chan struct{} {
	c.mu.Lock()
	serving := c.serving
	c.mu.Unlock()
	if ctx.Done() == nil || serving.Err() != nil {
		return serving.Done()
	}
	either, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(serving, cancel)
	context.AfterFunc(either, func() { stop() })
	return either.Done()
}
