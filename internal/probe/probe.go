// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package probe dials instances that a consumer has ejected, so that they come back without risking a live request.
//
// One goroutine owns the whole. When a dial is due is the table's decision (instance.Entry.NextDial): it sleeps until the
// first one is, or until the table reports a change, and while nobody is ejected it does nothing.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"

	"github.com/dubbogo/gost/log/logger"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/bootstrap"
)

const (
	// parallel is how many dials run at once: a round to a thousand instances that swallow packets takes 24 s, and no
	// process opens a thousand sockets in one moment.
	parallel = 64

	// timeout bounds a dial. A listener answers within a round trip; TCP repeats a lost SYN after one second.
	timeout = 1500 * time.Millisecond
)

// Prober dials the ejected instances of a table. The zero value works on the table of the process.
type Prober struct {
	// Table tells who needs a dial and takes the results; nil is instance.Default().
	Table *instance.Table

	// Dial tries to reach an address; nil connects by TCP and closes at once.
	Dial func(ctx context.Context, addr string) error

	mu      sync.Mutex
	started bool
	stopped bool
	cancel  context.CancelFunc
	done    chan struct{}

	news    sync.Mutex
	changed map[string]struct{} // addresses that the table reported since the owner looked
	wake    chan struct{}
}

// process is the prober of this process. It starts with the first reference: before that nobody is called.
var process Prober

func init() {
	bootstrap.OnReference(func(*common.URL) { process.Start() })
}

// Stop ends the prober of the process for good and waits for its dials. The coordinator calls it when nothing is called any
// more.
func Stop() { process.Stop() }

// Start begins to watch the table. It may be called any number of times; after Stop it does nothing.
func (p *Prober) Start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started || p.stopped {
		return
	}
	p.started = true
	if p.Table == nil {
		p.Table = instance.Default()
	}
	if p.Dial == nil {
		p.Dial = dial
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.done = cancel, make(chan struct{})
	p.wake, p.changed = make(chan struct{}, 1), make(map[string]struct{})
	go p.run(ctx)
}

// Stop ends it and waits until its goroutines are gone. It may be called any number of times, also before Start.
func (p *Prober) Stop() {
	p.mu.Lock()
	p.stopped = true
	started := p.started
	p.mu.Unlock()
	if started {
		p.cancel()
		<-p.done
	}
}

// settle is how long a connection must stand to count. The kernel completes connections for a process that is being killed
// for a moment after it has reset the first ones, and resets them as well.
const settle = 100 * time.Millisecond

// dial connects, and waits for settle that nobody ends the connection. A server that is sound says nothing meanwhile, since
// the client speaks first in Triple, gRPC and the dubbo protocol.
func dial(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err = conn.SetReadDeadline(time.Now().Add(settle)); err != nil {
		return err
	}
	if _, err = conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return fmt.Errorf("connection was ended at once: %w", err)
}

// notice takes a change of the table down. It is called with nothing locked, on whatever goroutine made the change.
func (p *Prober) notice(addr string) {
	p.news.Lock()
	p.changed[addr] = struct{}{}
	p.news.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// outcome is what a dial came to.
type outcome struct {
	addr string
	err  error
}

func (p *Prober) run(ctx context.Context) {
	defer close(p.done)
	defer p.Table.OnChange(p.notice)()
	p.Table.Each(func(e *instance.Entry) bool {
		if !e.NextDial().IsZero() {
			p.notice(e.Addr()) // it was ejected before there was a prober
		}
		return true
	})

	var (
		watched  = make(map[string]bool) // who needs a dial now or later; true while it is being dialled
		outcomes = make(chan outcome)
		dialing  int
		timer    = time.NewTimer(0)
	)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			for ; dialing > 0; dialing-- {
				<-outcomes
			}
			return
		case <-p.wake:
			p.adopt(watched)
		case o := <-outcomes:
			dialing--
			watched[o.addr] = false
			p.conclude(o)
		case <-timer.C:
		}
		queue := p.queue(watched)
		for len(queue) > 0 && dialing < parallel && !queue[0].due.After(time.Now()) {
			addr := queue[0].addr
			queue = queue[1:]
			dialing++
			watched[addr] = true
			go func() { outcomes <- outcome{addr, p.try(ctx, addr)} }()
		}
		timer.Stop()
		if len(queue) > 0 && dialing < parallel {
			timer.Reset(time.Until(queue[0].due))
		}
	}
}

// appointment is a dial that is due some time.
type appointment struct {
	addr string
	due  time.Time
}

// queue returns who is to be dialled, the one that has waited longest first, and forgets who needs no dial any more.
func (p *Prober) queue(watched map[string]bool) []appointment {
	var queue []appointment
	for addr, busy := range watched {
		if busy {
			continue
		}
		if due := p.due(addr); due.IsZero() {
			delete(watched, addr)
		} else {
			queue = append(queue, appointment{addr, due})
		}
	}
	slices.SortFunc(queue, func(a, b appointment) int { return a.due.Compare(b.due) })
	return queue
}

// due returns when an instance should be dialled, the zero time if it should not.
func (p *Prober) due(addr string) time.Time {
	if e := p.Table.Lookup(addr); e != nil {
		return e.NextDial()
	}
	return time.Time{}
}

// adopt takes in the changes.
func (p *Prober) adopt(watched map[string]bool) {
	p.news.Lock()
	changed := p.changed
	p.changed = make(map[string]struct{})
	p.news.Unlock()
	for addr := range changed {
		if !watched[addr] {
			watched[addr] = false
		}
	}
}

func (p *Prober) try(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return p.Dial(ctx, addr)
}

// conclude hands what a dial came to on to the table.
func (p *Prober) conclude(o outcome) {
	now := time.Now()
	// Asked as the queue is filled, so that a dial without a result cannot be due again at once.
	if due := p.due(o.addr); due.IsZero() || due.After(now) {
		return // another instance is there, or a live request has restored it meanwhile
	}
	e := p.Table.Lookup(o.addr)
	if e == nil {
		return
	}
	before := e.Verdict(now)
	e.Dialed(o.err == nil, now)
	switch after := e.Verdict(now); {
	case o.err == nil:
		logger.Infof("[Graceful][Probe] instance=%s dial=ok was=%s is=%s", o.addr, before, after)
	case after != before:
		logger.Warnf("[Graceful][Probe] instance=%s dial=failed was=%s is=%s err=%v", o.addr, before, after, o.err)
	default:
		logger.Debugf("[Graceful][Probe] instance=%s dial=failed is=%s err=%v", o.addr, after, o.err)
	}
}
