// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

import (
	"github.com/dubbogo/gost/log/logger"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/registry"

	"golang.org/x/sync/errgroup"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/settings"
	"github.com/dubbogo/graceful/internal/wire"
)

// item is one provider as a registry lists it: a URL on interface level, an instance on service level, without marks.
type item struct {
	key       string   // the same service at the same address, whichever process is there
	order     int64    // of two items with one key the one with the higher order is the younger
	addresses []string // ip:port of everything the item stands for
	services  []string // service keys, for the calls under way; service level: known after it was handed on
	mark      wire.Mark
	timestamp int64 // unix ms, 0 if unknown
	release   string
	url       *common.URL
	instance  registry.ServiceInstance
	content   string // what is handed on, to tell whether it changed
}

// source is where the lists of one subscription come from.
type source interface {
	// follow calls emit with complete lists, the first one as soon as it is known and another after each change, until ctx
	// ends. It deals with every trouble of the registry itself and never emits a list that the registry did not give.
	follow(ctx context.Context, emit func([]item))
	// query asks the registry for the list as it is now.
	query(ctx context.Context) ([]item, error)
}

// doubter is a source that knows when its registry is in trouble.
type doubter interface {
	// troubled tells whether the registry was away a short time ago, so that it may have lost records of processes that live.
	troubled() bool
}

// A registry that was away for longer than its sessions deletes the records of processes that live, and they come back as
// soon as those processes notice. While the registry is in trouble, a removal that the provider did not announce is
// therefore believed only when the provider accepts no connection, or has not come back within doubtMax.
const (
	doubtMax   = 5 * time.Second
	doubtPause = 250 * time.Millisecond
)

// An empty list that nobody announced is asked for again before it is believed: at least emptyAsks times, emptyPause apart,
// and for as long as one of the providers that said who they are still accepts connections, at most emptyMost. A registry that
// has lost its sessions fills up again as its clients reconnect, each in its own time. Providers that never published an id
// may have been taken out by hand, and are believed to be.
const (
	emptyAsks  = 3
	emptyPause = 300 * time.Millisecond
	emptyMost  = 30 * time.Second
)

// holdMin is how long every removal is held back: the time between the choice of an instance and the count of the call.
const holdMin = 50 * time.Millisecond

// A provider that is new in the list is dialled before it is handed on. dubbo-go connects to what it is handed while it
// changes its list: a dead one, as a killed process leaves behind until its session expires, costs it seconds, in which
// there is nobody to call. One that cannot be connected to is dialled again every dialPause.
const (
	connectTimeout = 500 * time.Millisecond
	dialPause      = time.Second
	dialsAtOnce    = 32
)

// subscription follows the list of one service and hands it on. What a list says of the instances goes into the
// instance table at once; what is handed on goes through one goroutine, which always hands on the newest list, so that
// nothing is handed on out of order or twice at a time, and a slow listener costs lists, not order.
//
// A provider that is gone from the list is still handed on while this process has calls of that service under way to
// it: what is handed on decides which connections dubbo-go closes.
type subscription struct {
	name     string // for logs
	source   source
	hand     func([]item)         // called by one goroutine, never twice with the same content
	services func(item) []string  // service keys of an item; nil: item.services
	have     func()               // called when a provider that can be connected to was handed on; may be nil
	limit    func() time.Duration // registry.hold-timeout
	dial     func(ctx context.Context, address string) bool
	table    *instance.Table
	presence *presence

	mu     sync.Mutex
	known  bool            // there was a list
	listed map[string]item // the newest list
	keys   []string        // its order
	holds  map[string]*hold
	doubts map[string]*hold   // removed from the list, not believed yet
	asking context.CancelFunc // an unannounced empty list is being asked for again
	again  bool               // hand the list on although it did not change
	later  *time.Timer        // sets again

	wake  chan struct{}
	first chan struct{} // closed when the first list was handed on
	ctx   context.Context
	stop  context.CancelFunc
	work  sync.WaitGroup
}

// hold is a removal that waits for calls under way.
type hold struct {
	item   item
	cancel context.CancelFunc
	over   bool // nothing waits any more; it still hides the provider until a list without it was handed on
}

func newSubscription(name string, src source, hand func([]item)) *subscription {
	s := &subscription{
		name: name, source: src, hand: hand, table: instance.Default(), presence: present,
		limit: func() time.Duration { return settings.Get().Registry.HoldTimeout }, dial: dialProvider,
		listed: make(map[string]item), holds: make(map[string]*hold), doubts: make(map[string]*hold),
		wake: make(chan struct{}, 1), first: make(chan struct{}),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

func (s *subscription) start() {
	s.work.Go(func() { s.source.follow(s.ctx, s.receive) })
	s.work.Go(s.run)
}

// close ends the subscription, waits for its goroutines, and takes its addresses out of the count. Nothing more is handed on.
func (s *subscription) close() {
	s.stop()
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.later != nil {
		s.later.Stop()
	}
	for key := range s.holds {
		s.endHoldLocked(key)
	}
	for key, d := range s.doubts {
		s.listed[key] = d.item
		delete(s.doubts, key)
	}
	for _, it := range s.listed {
		for _, a := range it.addresses {
			s.presence.move(a, it.mark.Start, -1, 0)
		}
	}
	clear(s.listed)
}

// receive takes a complete list from the source.
func (s *subscription) receive(items []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	if s.asking != nil {
		if len(items) == 0 {
			return
		}
		s.asking()
		s.asking = nil
	}
	if len(items) == 0 && s.unannouncedLocked() {
		ctx, cancel := context.WithCancel(s.ctx)
		s.asking = cancel
		s.work.Go(func() {
			defer cancel()
			s.askAgain(ctx)
		})
		return
	}
	s.applyLocked(items)
}

// unannouncedLocked: there are providers, and at least one of them never said that it leaves.
func (s *subscription) unannouncedLocked() bool {
	for _, it := range s.listed {
		for _, a := range it.addresses {
			e := s.table.Lookup(a)
			if e == nil {
				continue
			}
			if status, _, _ := e.Status(); status != wire.Draining {
				return true
			}
		}
	}
	return false
}

// askAgain asks the registry whether the list is really empty.
func (s *subscription) askAgain(ctx context.Context) {
	logger.Warnf("[Graceful][Registry] list of service=%q became empty although nobody announced it, asking again", s.name)
	began := time.Now()
	for asked := 0; asked < emptyAsks || time.Since(began) < emptyMost && s.alive(ctx); {
		timer := time.NewTimer(emptyPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		items, err := s.source.query(ctx)
		if err != nil {
			continue // a registry that does not answer proves nothing
		}
		asked++
		if len(items) > 0 {
			s.settle(ctx, items)
			return
		}
	}
	logger.Warnf("[Graceful][Registry] list of service=%q is empty", s.name)
	s.settle(ctx, nil)
}

// alive tells whether a provider of the newest list that said who it is accepts connections.
func (s *subscription) alive(ctx context.Context) bool {
	s.mu.Lock()
	var addresses []string
	for _, it := range s.listed {
		if it.mark.Start != "" && len(it.addresses) > 0 {
			addresses = append(addresses, it.addresses[0])
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var (
		found atomic.Bool
		dials errgroup.Group
	)
	dials.SetLimit(dialsAtOnce)
	for _, a := range addresses {
		dials.Go(func() error {
			if s.dial(ctx, a) {
				found.Store(true)
				cancel() // one is enough
			}
			return nil
		})
	}
	_ = dials.Wait() // none returns an error
	return found.Load()
}

// settle applies the answer, unless a newer list has come meanwhile.
func (s *subscription) settle(ctx context.Context, items []item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		s.asking = nil
		s.applyLocked(items)
	}
}

// applyLocked makes items the newest list: the table knows what it says, removals with calls under way are held, and the
// handing goroutine is woken.
func (s *subscription) applyLocked(items []item) {
	preexisting := !s.known
	s.known = true
	items = youngest(items)
	next := make(map[string]item, len(items))
	keys := make([]string, 0, len(items))
	for _, it := range items {
		old, was := s.listed[it.key]
		if d := s.doubts[it.key]; d != nil {
			d.cancel()
			delete(s.doubts, it.key)
			old, was = d.item, true // it was counted all the time
		}
		if was && len(it.services) == 0 {
			it.services = old.services
		}
		next[it.key] = it
		keys = append(keys, it.key)
		for _, a := range it.addresses {
			s.presence.observe(a, instance.Observation{
				Mark: it.mark, Timestamp: it.timestamp, Release: it.release, Source: instance.FromRegistry, Preexisting: preexisting,
			}, !was || !slices.Contains(old.addresses, a))
		}
		if was {
			for _, a := range old.addresses {
				if !slices.Contains(it.addresses, a) {
					s.presence.move(a, old.mark.Start, -1, 0)
				}
			}
		}
		if _, held := s.holds[it.key]; held {
			s.endHoldLocked(it.key)
		}
	}
	for key, old := range s.listed {
		if _, still := next[key]; still {
			continue
		}
		if s.doubtfulLocked(old) {
			s.doubtLocked(old)
		} else {
			s.removeLocked(old)
		}
	}
	s.listed, s.keys = next, keys
	s.kick()
}

// doubtfulLocked: the registry is in trouble, and the provider has this module but never said that it leaves.
func (s *subscription) doubtfulLocked(it item) bool {
	d, ok := s.source.(doubter)
	if !ok || it.mark.Start == "" || len(it.addresses) == 0 || !d.troubled() {
		return false
	}
	e := s.table.Lookup(it.addresses[0])
	if e == nil || e.StartID() != it.mark.Start {
		return false // another process has the address
	}
	status, _, _ := e.Status()
	return status != wire.Draining
}

// doubtLocked keeps a provider in what is handed on until it comes back, accepts no connection, says that it leaves, or the
// time is over.
func (s *subscription) doubtLocked(it item) {
	ctx, cancel := context.WithTimeout(s.ctx, doubtMax)
	d := &hold{item: it, cancel: cancel}
	s.doubts[it.key] = d
	logger.Warnf("[Graceful][Registry] provider=%q of service=%q was removed by a registry that was away, kept while it accepts connections, at most for %s", it.key, s.name, doubtMax)
	s.work.Go(func() {
		defer cancel()
		for s.believable(ctx, it) {
			timer := time.NewTimer(doubtPause)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.doubts[it.key] != d || s.ctx.Err() != nil {
			return // it is back
		}
		delete(s.doubts, it.key)
		s.removeLocked(it)
		s.kick()
	})
}

// believable tells whether the provider may still be there.
func (s *subscription) believable(ctx context.Context, it item) bool {
	e := s.table.Lookup(it.addresses[0])
	if ctx.Err() != nil || e == nil || e.StartID() != it.mark.Start {
		return false
	}
	if status, _, _ := e.Status(); status == wire.Draining {
		return false
	}
	return s.reaches(ctx, it.addresses[0])
}

// removeLocked holds a provider that is gone from the list while there are calls to it. A call that has chosen it already
// may not be counted yet, so that every removal is held for a moment.
func (s *subscription) removeLocked(it item) {
	for _, a := range it.addresses {
		s.presence.move(a, it.mark.Start, -1, 1)
	}
	limit := s.limit()
	ctx, cancel := context.WithTimeout(s.ctx, max(limit, holdMin))
	h := &hold{item: it, cancel: cancel}
	s.holds[it.key] = h
	began := time.Now()
	s.work.Go(func() {
		defer cancel()
		timer := time.NewTimer(holdMin)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		for ctx.Err() == nil {
			f := s.busy(it)
			if f == nil {
				break
			}
			select {
			case <-f.Zero():
			case <-ctx.Done():
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.holds[it.key] != h {
			return // it was listed again
		}
		if ctx.Err() != nil && s.ctx.Err() == nil {
			logger.Warnf("[Graceful][Registry] removal of provider=%q of service=%q no longer held back after registry.hold-timeout=%s, calls to it are still under way", it.key, s.name, limit)
		} else {
			logger.Debugf("[Graceful][Registry] removal of provider=%q of service=%q was held back for %s", it.key, s.name, time.Since(began))
		}
		h.over = true
		s.kick()
	})
}

// busy returns a count of calls to the item that is not zero, or nil.
func (s *subscription) busy(it item) *instance.Flight {
	services := it.services
	if s.services != nil {
		services = s.services(it)
	}
	for _, a := range it.addresses {
		e := s.table.Lookup(a)
		if e == nil {
			continue
		}
		for _, service := range services {
			if f := e.Flight(service); f.Count() > 0 {
				return f
			}
		}
	}
	return nil
}

func (s *subscription) endHoldLocked(key string) {
	h := s.holds[key]
	delete(s.holds, key)
	h.cancel()
	for _, a := range h.item.addresses {
		s.presence.move(a, h.item.mark.Start, 0, -1)
	}
}

func (s *subscription) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// handAgain has the present list handed on once more, for a listener that is new.
func (s *subscription) handAgain() {
	s.mu.Lock()
	s.again = true
	s.mu.Unlock()
	s.kick()
}

// handAfter has the list handed on once more after a while, unless it is before.
func (s *subscription) handAfter(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	if s.later != nil {
		s.later.Stop()
	}
	s.later = time.AfterFunc(d, s.handAgain)
}

// outLocked is what is handed on: the newest list, and the providers that are held back.
func (s *subscription) outLocked() []item {
	out := make([]item, 0, len(s.keys)+len(s.doubts)+len(s.holds))
	for _, key := range s.keys {
		out = append(out, s.listed[key])
	}
	for _, key := range slices.Sorted(maps.Keys(s.doubts)) {
		out = append(out, s.doubts[key].item)
	}
	for _, key := range slices.Sorted(maps.Keys(s.holds)) {
		if h := s.holds[key]; !h.over {
			out = append(out, h.item)
		}
	}
	return out
}

// endHolds ends the holds that were over when the list was made that has now been handed on.
func (s *subscription) endHolds(over map[string]*hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, h := range over {
		if s.holds[key] == h {
			s.endHoldLocked(key)
		}
	}
}

// current is what was or is about to be handed on, and whether any list is known.
func (s *subscription) current() ([]item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outLocked(), s.known
}

// given is what was handed on of one provider, and whether it could be connected to then.
type given struct {
	content string
	live    bool
}

// run hands lists on.
func (s *subscription) run() {
	var (
		handed map[string]given
		redial <-chan time.Time
	)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-redial:
		}
		s.mu.Lock()
		out := s.outLocked()
		known, again := s.known, s.again
		s.again = false
		over := make(map[string]*hold)
		for key, h := range s.holds {
			if h.over {
				over[key] = h
			}
		}
		s.mu.Unlock()
		if !known {
			continue
		}
		live, dead := s.connectable(out, handed)
		redial = nil
		if dead {
			redial = time.After(dialPause)
		}
		if len(live) > 0 {
			out = live // else all there is: a list is never emptied for what a dial says
		}
		contents := make(map[string]given, len(out))
		for _, it := range out {
			contents[it.key] = given{content: it.content, live: len(live) > 0}
		}
		if handed == nil || again || !maps.Equal(handed, contents) {
			if handed != nil || len(out) > 0 {
				s.hand(out)
			}
			handed = contents
			if len(live) > 0 && s.have != nil {
				s.have()
			}
		}
		s.endHolds(over)
		select {
		case <-s.first:
		default:
			close(s.first)
		}
	}
}

// connectable returns the items without those that are new and cannot be connected to, and whether there are any of those.
func (s *subscription) connectable(items []item, handed map[string]given) (live []item, dead bool) {
	refused := make([]bool, len(items))
	var dials errgroup.Group
	dials.SetLimit(dialsAtOnce)
	for i, it := range items {
		if handed[it.key].live || len(it.addresses) == 0 {
			continue
		}
		dials.Go(func() error {
			refused[i] = !s.connects(it.addresses[0])
			return nil
		})
	}
	_ = dials.Wait() // none returns an error
	for i, it := range items {
		if !refused[i] {
			live = append(live, it)
		}
	}
	return live, len(live) < len(items)
}

// connects dials an address and has the instance table know.
func (s *subscription) connects(address string) bool {
	ok := s.reaches(s.ctx, address)
	if s.ctx.Err() == nil {
		if e := s.table.Lookup(address); e != nil {
			e.Dialed(ok, time.Now())
		}
	}
	if !ok {
		logger.Debugf("[Graceful][Registry] provider=%s of service=%q is listed and accepts no connection, dialled again in %s", address, s.name, dialPause)
	}
	return ok
}

// dialProvider is replaced by tests that have no network.
var dialProvider = accepts

// reaches dials an address, for connectTimeout at most.
func (s *subscription) reaches(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return s.dial(ctx, address)
}

// accepts tells whether something listens at the address.
func accepts(ctx context.Context, address string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	return true
}

// youngest keeps one item per key. A predecessor's record at the same address lives on until its session expires.
func youngest(items []item) []item {
	at := make(map[string]int, len(items))
	out := make([]item, 0, len(items))
	for _, it := range items {
		i, ok := at[it.key]
		if !ok {
			at[it.key] = len(out)
			out = append(out, it)
			continue
		}
		if it.order > out[i].order {
			out[i] = it
		}
	}
	return out
}
