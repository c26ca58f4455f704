// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"sync"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/require"

	"dubbo.apache.org/dubbo-go/v3/registry"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

const testWait = 20 * time.Second

// lists collects what a subscriber is handed.
type lists struct {
	mu     sync.Mutex
	all    [][]string
	change chan struct{}
}

func newLists() *lists { return &lists{change: make(chan struct{}, 1)} }

func (l *lists) Notify(*registry.ServiceEvent) { panic("lists are handed on whole") }

func (l *lists) NotifyAll(events []*registry.ServiceEvent, done func()) {
	defer done()
	var urls []string
	for _, e := range events {
		urls = append(urls, e.Service.Location+"?"+e.Service.GetParam(wire.KeyStatus, "")+e.Service.GetParam(wire.KeyStart, ""))
	}
	l.mu.Lock()
	l.all = append(l.all, urls)
	l.mu.Unlock()
	select {
	case l.change <- struct{}{}:
	default:
	}
}

func (l *lists) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

func (l *lists) last() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return nil
	}
	return l.all[len(l.all)-1]
}

func (l *lists) await(t *testing.T, what string, ok func([]string) bool) {
	t.Helper()
	deadline := time.After(testWait)
	for !ok(l.last()) {
		select {
		case <-l.change:
		case <-deadline:
			require.FailNow(t, "list never came", "%s; last: %v", what, l.last())
		}
	}
}

// apps is a listener of service level.
type apps struct {
	collector
	lists chan []item
}

func newApps(name string) *apps {
	a := &apps{lists: make(chan []item, 64)}
	a.collector.name = name
	a.collector.emit = func(items []item) { a.lists <- items }
	return a
}

func (a *apps) await(t *testing.T, what string, ok func([]item) bool) []item {
	t.Helper()
	deadline := time.After(testWait)
	for {
		select {
		case l := <-a.lists:
			if ok(l) {
				return l
			}
		case <-deadline:
			require.FailNow(t, "list never came", what)
		}
	}
}

// hookFor is OnRecover for one test.
func hookFor(t *testing.T, f func(string)) {
	t.Helper()
	recovery.Lock()
	before := recovery.hooks
	recovery.Unlock()
	OnRecover(f)
	t.Cleanup(func() {
		recovery.Lock()
		defer recovery.Unlock()
		recovery.hooks = before
	})
}
