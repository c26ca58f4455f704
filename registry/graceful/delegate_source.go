// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

import (
	"github.com/dubbogo/gost/log/logger"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/remoting"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

// recordData is the attribute under which a registry hands on what it keeps beside a provider's URL: the marks.
const recordData = "graceful.record-data"

// delegateSource makes lists out of the delegate's own subscription: it folds the events into the set of providers.
type delegateSource struct {
	registry *interfaceRegistry
	ref      *common.URL
}

func (s *delegateSource) follow(ctx context.Context, emit func([]item)) {
	for pause := firstRetry; ctx.Err() == nil; {
		began := time.Now()
		err := s.once(ctx, emit)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxRetry {
			pause = firstRetry // it had worked
		}
		logger.Warnf("[Graceful][Registry] registry=%q ended the subscription of service=%q, subscribing again in %s: %v", s.registry.Name(), s.ref.ServiceKey(), pause, err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		pause = min(2*pause, maxRetry)
	}
}

var errSubscriptionEnded = errors.New("subscription ended")

// once subscribes and returns when the delegate's subscription ends. What it knows begins with the full list, so deletes
// that happened between two subscriptions are not missed.
func (s *delegateSource) once(ctx context.Context, emit func([]item)) error {
	d, err := s.registry.theDelegate()
	if err != nil {
		return err
	}
	f := newFold(s.ref, emit)
	defer f.close()
	if err = d.LoadSubscribeInstances(s.ref.Clone(), f); err != nil {
		return err
	}
	f.open()
	stopped := context.AfterFunc(ctx, func() {
		if unErr := d.UnSubscribe(s.ref.Clone(), f); unErr != nil {
			logger.Debugf("[Graceful][Registry] registry=%q service=%q unsubscribe: %v", s.registry.Name(), s.ref.ServiceKey(), unErr)
		}
	})
	defer stopped()
	if err = d.Subscribe(s.ref.Clone(), f); err != nil {
		return err
	}
	if s.registry.key.delegate == constant.NacosKey {
		<-ctx.Done() // its Subscribe returns at once and goes on in the background
		return nil
	}
	return errSubscriptionEnded
}

func (s *delegateSource) query(ctx context.Context) ([]item, error) {
	d, err := s.registry.theDelegate()
	if err != nil {
		return nil, err
	}
	type answer struct {
		items []item
		err   error
	}
	result := make(chan answer, 1)
	go func() {
		var items []item
		f := newFold(s.ref, func(list []item) { items = list })
		loadErr := d.LoadSubscribeInstances(s.ref.Clone(), f)
		f.open()
		f.close()
		result <- answer{items: items, err: loadErr}
	}()
	select {
	case a := <-result:
		return a.items, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fold is the listener of a delegate: it turns single events into complete lists.
type fold struct {
	ref  *common.URL
	emit func([]item)

	mu       sync.Mutex
	items    map[string]item // by URL, since two processes may stand at one address for a moment
	complete bool
	closed   bool
	next     int64
}

var _ registry.NotifyListener = (*fold)(nil)

func newFold(ref *common.URL, emit func([]item)) *fold {
	return &fold{ref: ref, emit: emit, items: make(map[string]item)}
}

// open says that the list is complete now.
func (f *fold) open() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.complete = true
	f.emitLocked()
}

// close has later events ignored: some delegates never let go of a listener.
func (f *fold) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

func (f *fold) Notify(e *registry.ServiceEvent) {
	if e == nil || e.Service == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.apply(e) {
		f.emitLocked()
	}
}

// NotifyAll takes a complete list.
func (f *fold) NotifyAll(events []*registry.ServiceEvent, done func()) {
	defer done()
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.items)
	for _, e := range events {
		if e != nil && e.Service != nil {
			f.apply(e)
		}
	}
	f.complete = true
	f.emitLocked()
}

func (f *fold) apply(e *registry.ServiceEvent) bool {
	var beside wire.Mark
	if data, ok := e.Service.GetAttribute(recordData); ok {
		if text, isText := data.(string); isText {
			if m, err := wire.ParseMark(text); err == nil {
				beside = m
			}
		}
	}
	it, ok := interfaceItem(f.ref, e.Service, beside)
	if !ok {
		return false
	}
	id := it.key + "#" + e.Service.GetParam(constant.TimestampKey, "")
	if e.Action == remoting.EventTypeDel {
		if _, known := f.items[id]; !known {
			return false
		}
		delete(f.items, id)
		return true
	}
	f.next++
	it.order = f.next
	if old, known := f.items[id]; known && old.mark.Start == it.mark.Start {
		it.order = old.order
	}
	f.items[id] = it
	return true
}

func (f *fold) emitLocked() {
	if f.closed || !f.complete {
		return
	}
	out := make([]item, 0, len(f.items))
	for _, id := range slices.Sorted(maps.Keys(f.items)) {
		out = append(out, f.items[id])
	}
	f.emit(out)
}
