// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

import (
	"github.com/dubbogo/gost/log/logger"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
)

import (
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/settings"
)

// ErrNotReady is returned to dubbo-go, and ends the start, when `register.on-timeout` is stop and the process was not
// ready to be registered within `register.timeout`, and when its port belongs to another process.
var ErrNotReady = errors.New("not ready to be registered")

const (
	// A listener and the app's own check cannot tell when they are ready: they are asked again after askFirst, at most every askMost.
	askFirst = 5 * time.Millisecond
	askMost  = 200 * time.Millisecond
	// dialTimeout bounds one attempt to reach the process's own listener.
	dialTimeout = time.Second
)

// onlineGate holds the first registration back until this process can serve. There is one per process: whatever its
// registries, it is ready or it is not.
type onlineGate struct {
	mu      sync.Mutex
	checks  map[string]func(context.Context) error
	needs   map[string]chan struct{} // what the references wait for: open until it is there
	own     map[string]struct{}      // what this process exports itself
	started time.Time                // when the first hook said that everything is exported
	passed  bool
	ports   map[string]error // of the services, as claim found them

	settings func() config.Register
	dial     func(ctx context.Context, address string) error
}

var gate = newGate()

func newGate() *onlineGate {
	return &onlineGate{
		checks: make(map[string]func(context.Context) error), needs: make(map[string]chan struct{}), own: make(map[string]struct{}),
		settings: func() config.Register { return settings.Get().Register }, dial: dialSelf,
	}
}

// RegisterReadiness adds a check of the application's own: the instance is not registered before it returns nil. It is
// called again, with a pause of at most 200 ms, until it does; ctx ends with `register.timeout` or with the process. A
// second check with the same name replaces the first. Call it before the server starts.
func RegisterReadiness(name string, check func(ctx context.Context) error) {
	gate.mu.Lock()
	defer gate.mu.Unlock()
	gate.checks[name] = check
}

// need notes that a reference waits for something; the returned function says that it is there, once and for all.
func (g *onlineGate) need(what string) (have func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch, ok := g.needs[what]
	if !ok {
		ch = make(chan struct{})
		g.needs[what] = ch
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		select {
		case <-ch:
		default:
			close(ch)
		}
	}
}

// exports notes that this process is a provider of that itself.
func (g *onlineGate) exports(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.own[what] = struct{}{}
}

// forget drops a need that nobody has any more.
func (g *onlineGate) forget(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch, ok := g.needs[what]; ok {
		select {
		case <-ch:
		default:
			close(ch)
		}
		delete(g.needs, what)
	}
}

// wait returns nil when the process may be registered, and at once after it has passed once, except that a listener which
// was not among those asked before is asked now. stop ends it early, with errStoppedWaiting.
func (g *onlineGate) wait(stop <-chan struct{}, addresses []string) error {
	for _, address := range addresses {
		if err := g.foreign(address); err != nil {
			logger.Errorf("[Graceful][Registry] not registered: %v", err)
			return err
		}
	}
	s := g.settings()
	g.mu.Lock()
	if g.started.IsZero() {
		g.started = time.Now()
	}
	delayed := max(0, s.Delay-time.Since(g.started))
	passed := g.passed
	checks := maps.Clone(g.checks)
	needs := maps.Clone(g.needs)
	for name := range g.own {
		delete(needs, name) // it would wait for itself
	}
	g.mu.Unlock()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer cancel()
	watcher.Go(func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	})

	begin := time.Now()
	bounded, cancelBounded := context.WithTimeout(ctx, s.Timeout)
	defer cancelBounded()
	var (
		work    sync.WaitGroup
		mu      sync.Mutex
		missing []string
	)
	pending := func(what string, f func(context.Context) error) {
		work.Go(func() {
			if err := f(bounded); err != nil {
				mu.Lock()
				missing = append(missing, fmt.Sprintf("%s (%v)", what, err))
				mu.Unlock()
			}
		})
	}
	for _, address := range addresses {
		pending("listener "+address, func(ctx context.Context) error {
			return untilNil(ctx, func(ctx context.Context) error { return g.dial(ctx, address) })
		})
	}
	if !passed {
		for name, check := range checks {
			pending("readiness check "+name, func(ctx context.Context) error { return untilNil(ctx, check) })
		}
		for what, there := range needs {
			pending("provider of "+what, func(ctx context.Context) error {
				select {
				case <-there:
					return nil
				case <-ctx.Done():
					return errNoProvider
				}
			})
		}
		// The delay runs beside the checks and is not part of their time.
		work.Go(func() {
			if delayed <= 0 {
				return
			}
			timer := time.NewTimer(delayed)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		})
	}
	work.Wait()
	if ctx.Err() != nil {
		return errStoppedWaiting
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		what := strings.Join(missing, "; ")
		if s.OnTimeout == "stop" {
			return fmt.Errorf("%w within register.timeout=%s: %s", ErrNotReady, s.Timeout, what)
		}
		logger.Warnf("[Graceful][Registry] registering although not ready within register.timeout=%s: %s", s.Timeout, what)
	}
	g.mu.Lock()
	first := !g.passed
	g.passed = true
	g.mu.Unlock()
	if first {
		logger.Infof("[Graceful][Registry] ready to be registered took=%s delay=%s", time.Since(begin).Round(time.Millisecond), s.Delay)
	}
	return nil
}

var (
	errStoppedWaiting = errors.New("stopped before registration")
	errNoProvider     = errors.New("no provider yet")
)

// untilNil calls f until it returns nil, or returns its last error when ctx ends.
func untilNil(ctx context.Context, f func(context.Context) error) error {
	for pause := askFirst; ; pause = min(2*pause, askMost) {
		err := safely(ctx, f)
		if err == nil {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// safely runs a check of the application's: a panic is an error like any other, and one that does not listen to its
// context is left alone when that ends.
func safely(ctx context.Context, f func(context.Context) error) error {
	result := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				result <- fmt.Errorf("panic: %v", r)
			}
		}()
		result <- f(ctx)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// claim finds out whether the port of a service that is about to be exported is free. dubbo-go only logs that a listener cannot
// bind, and the process that has the port would answer the dial below in our place. Only the first service of a port can
// tell: after it the port is taken by ourselves.
func (g *onlineGate) claim(u *common.URL) {
	if u.Port == "" || u.Port == "0" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.ports[u.Port]; known {
		return
	}
	if g.ports == nil {
		g.ports = make(map[string]error)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(u.Ip, u.Port))
	if err == nil {
		err = l.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		err = nil // whatever else there is, the listener itself will meet
	}
	g.ports[u.Port] = err
}

// foreign returns an error if the listener of an address belongs to somebody else.
func (g *onlineGate) foreign(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil // the dial says so
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err = g.ports[port]; err != nil {
		return fmt.Errorf("%w: port %s of this host belongs to another process: %w", ErrNotReady, port, err)
	}
	return nil
}

// dialSelf asks whether the listener behind a record accepts connections. The advertised address may not be reachable
// from inside (NAT, a container's published port), so the loopback of the same port counts too; a port that only the
// outside has cannot be asked at all.
func dialSelf(ctx context.Context, address string) error {
	if os.Getenv(constant.DubboPortToRegistryKey) != "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	results := make(chan error, 2)
	for _, a := range []string{address, net.JoinHostPort("localhost", port)} {
		go func() {
			conn, dialErr := new(net.Dialer).DialContext(ctx, "tcp", a)
			if dialErr == nil {
				_ = conn.Close() // it was only asked whether it accepts
			}
			results <- dialErr
		}()
	}
	if err = <-results; err == nil {
		return nil
	}
	if second := <-results; second == nil {
		return nil
	}
	return err
}
