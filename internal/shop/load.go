// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// LoadArgs are the arguments of a client's command "load".
type LoadArgs struct {
	// Rate is the number of requests a second.
	Rate float64 `json:"rate"`
	// Prefix begins every request id; it must be unique in a run.
	Prefix string `json:"prefix"`
	// Count ends the load after that many requests; 0 leaves it to the command "stop".
	Count int `json:"count,omitempty"`
}

// LoadSummary answers the commands "stop" and "wait".
type LoadSummary struct {
	Start time.Time `json:"start"`
	Stop  time.Time `json:"stop"`
	// Planned follows from start, stop and rate alone; Sent and Answered are counted.
	Planned  int `json:"planned"`
	Sent     int `json:"sent"`
	Answered int `json:"answered"`
	// Late is the longest time that a request went out after its intended moment.
	Late time.Duration `json:"late"`
}

var (
	errLoadRuns = errors.New("load runs already")
	errNoLoad   = errors.New("no load runs")
	errBadRate  = errors.New("rate: want more than 0")
)

// generator sends requests at start + n*interval, whatever has become of the ones before. Each has
// its own goroutine and there is no bound on them: a client that waits for answers before it sends
// on would hide exactly the stalls that are looked for.
type generator struct {
	args     LoadArgs
	interval time.Duration
	start    time.Time
	send     func(id string, intended time.Time)

	stop     chan struct{} // closed when stopAt is set
	stopOnce sync.Once
	stopAt   time.Time

	done     chan struct{} // closed when the last answer is there
	requests sync.WaitGroup
	sent     int
	answered atomic.Int64
	late     time.Duration
}

func newGenerator(args LoadArgs, send func(id string, intended time.Time)) (*generator, error) {
	if args.Rate <= 0 {
		return nil, errBadRate
	}
	return &generator{
		args:     args,
		interval: time.Duration(float64(time.Second) / args.Rate),
		send:     send,
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
		start:    time.Now(),
	}, nil
}

// run blocks until the load has been stopped and every request is answered.
func (g *generator) run() {
	defer close(g.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; g.args.Count == 0 || n < g.args.Count; n++ {
		at := g.start.Add(time.Duration(n) * g.interval)
		if !g.waitUntil(at, timer) {
			break
		}
		g.late = max(g.late, time.Since(at))
		g.sent++
		g.requests.Go(func() {
			g.send(requestID(g.args.Prefix, n), at)
			g.answered.Add(1)
		})
	}
	g.requests.Wait()
}

// waitUntil reports false if the load was stopped before at. A moment that has passed is not
// waited for, so that a generator that fell behind catches up.
func (g *generator) waitUntil(at time.Time, timer *time.Timer) bool {
	stop := (<-chan struct{})(g.stop)
	for {
		select {
		case <-g.stop:
			if !at.Before(g.stopAt) {
				return false
			}
			stop = nil // still owed
		default:
		}
		wait := time.Until(at)
		if wait <= 0 {
			return true
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-stop:
		}
	}
}

// end stops the load now; requests intended before are still sent.
func (g *generator) end() {
	g.stopOnce.Do(func() {
		g.stopAt = time.Now()
		close(g.stop)
	})
}

func (g *generator) summary(ctx context.Context) (LoadSummary, error) {
	select {
	case <-g.done:
	case <-ctx.Done():
		return LoadSummary{}, ctx.Err()
	}
	s := LoadSummary{Start: g.start, Sent: g.sent, Answered: int(g.answered.Load()), Late: g.late}
	select {
	case <-g.stop:
		s.Stop = g.stopAt
		s.Planned = int((g.stopAt.Sub(g.start) + g.interval - 1) / g.interval)
		if g.args.Count > 0 {
			s.Planned = min(s.Planned, g.args.Count)
		}
	default:
		s.Stop = g.start.Add(time.Duration(g.args.Count) * g.interval)
		s.Planned = g.args.Count
	}
	return s, nil
}
