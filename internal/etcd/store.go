// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"
	"sync"
	"time"
)

import (
	"github.com/dubbogo/gost/log/logger"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	clientv3 "go.etcd.io/etcd/client/v3"

	"go.uber.org/zap"

	"golang.org/x/sync/errgroup"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// parallelWrites bounds the writes that the store sends on its own: enough to restore hundreds of records in a few round
	// trips, too few to trouble a server that just came back.
	parallelWrites = 16
	// A server that is away is asked again after firstDelay, doubling up to maxDelay: soon for a blink, cheap for an outage.
	firstDelay = 50 * time.Millisecond
	maxDelay   = 2 * time.Second
	// revokeTimeout bounds the farewell of Close; what it does not reach in time the server's own expiry removes.
	revokeTimeout = time.Second
	// echoDelay gives a dubbo-go consumer the time to read a list and to watch again.
	echoDelay = 200 * time.Millisecond
)

var (
	// ErrClosed is returned by a store after its last user closed it.
	ErrClosed = errors.New("etcd store is closed")
	// ErrUnavailable wraps the last error of an operation that got no answer in time.
	ErrUnavailable = errors.New("etcd does not answer")
)

// Record is one key of this process.
type Record struct {
	Key, Value string
	// Echo has some key of the same directory written again, unchanged, when this one was created or deleted: at once with a
	// deletion, and a moment later in both cases. dubbo-go's own service discovery acts on updates of existing keys only (it reads
	// the whole list then), and misses whatever happens while it sets up its next watch, which it does after every event.
	Echo bool
}

// Store is one connection to etcd with one lease. Use [Open].
type Store struct {
	cfg    Config
	client *clientv3.Client
	ctx    context.Context // of all the work; the client lives a little longer, for the farewell
	cancel context.CancelFunc
	wg     sync.WaitGroup

	refs int // guarded by stores.mu

	mu         sync.Mutex
	records    map[string]*record
	lease      clientv3.LeaseID // NoLease while there is none
	lastLease  clientv3.LeaseID
	dropLease  context.CancelFunc
	leased     chan struct{} // closed while there is a lease
	lastErr    error         // why there is none
	own        map[clientv3.LeaseID]struct{}
	generation uint64
	renewed    chan struct{} // closed and replaced with each lease after the first
	recover    map[int]func()
	nextID     int
	echoing    map[string]struct{} // directories with an echo to come
}

// record is the desired state of one key. sem serialises the writes, so that the newest value is always the last one written.
type record struct {
	key     string
	sem     chan struct{}
	value   string // guarded by Store.mu, as all below
	echo    bool
	wanted  bool
	version uint64 // raised with every change of the desired state
	stored  uint64 // the version that the server has confirmed
	lease   clientv3.LeaseID
	ever    bool // confirmed at least once
}

func (r *record) dirty(lease clientv3.LeaseID) bool {
	return r.stored != r.version || r.wanted && r.lease != lease
}

var stores = struct {
	mu  sync.Mutex
	all map[Config]*Store
}{all: map[Config]*Store{}}

// Open returns the process's store for cfg, creating it if need be, and does not wait for the server; with a user name it does,
// at most cfg.Timeout, since the client logs in first. Every Open needs its Close.
func Open(cfg Config) (*Store, error) {
	stores.mu.Lock()
	defer stores.mu.Unlock()
	if s, ok := stores.all[cfg]; ok {
		s.refs++
		return s, nil
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   strings.Split(cfg.Endpoints, ","),
		Username:    cfg.Username,
		Password:    cfg.Password,
		DialTimeout: cfg.Timeout,
		// A server that takes no notice of us must be found out, or a watch would stay silent for ever.
		// grpc allows no ping more often than each 10 s, etcd's server none more often than each 5 s.
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		// The client's own lines are about retries that this package does and reports itself.
		Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			// grpc's default lets the delay grow to two minutes: far too long for a registry that is back.
			Backoff:           grpcbackoff.Config{BaseDelay: firstDelay, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxDelay},
			MinConnectTimeout: cfg.Timeout,
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnavailable, cfg.Endpoints, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{
		cfg:     cfg,
		client:  client,
		ctx:     ctx,
		cancel:  cancel,
		refs:    1,
		records: map[string]*record{},
		leased:  make(chan struct{}),
		own:     map[clientv3.LeaseID]struct{}{},
		renewed: make(chan struct{}),
		recover: map[int]func(){},
		echoing: map[string]struct{}{},
	}
	stores.all[cfg] = s
	s.wg.Go(s.keepLease)
	return s, nil
}

// Close gives the store back. The last one revokes the lease, which removes whatever records are left, and ends the connection.
func (s *Store) Close() error {
	stores.mu.Lock()
	if s.refs--; s.refs != 0 {
		stores.mu.Unlock()
		return nil
	}
	delete(stores.all, s.cfg)
	stores.mu.Unlock()

	s.mu.Lock()
	s.cancel() // under the lock: nobody starts a goroutine from here on
	s.mu.Unlock()
	s.wg.Wait()
	s.mu.Lock()
	lease := s.lastLease
	s.mu.Unlock()
	var err error
	if lease != clientv3.NoLease {
		ctx, cancel := context.WithTimeout(context.Background(), min(revokeTimeout, s.cfg.Timeout))
		if _, err = s.client.Revoke(ctx, lease); errors.Is(err, rpctypes.ErrLeaseNotFound) {
			err = nil
		}
		cancel()
	}
	// The client reports the end of its own context as an error.
	if cerr := s.client.Close(); cerr != nil && !errors.Is(cerr, context.Canceled) {
		err = errors.Join(err, cerr)
	}
	if err != nil {
		return fmt.Errorf("closing etcd %s: %w", s.cfg.Endpoints, err)
	}
	return nil
}

// OnRecover has f called after each new lease but the first, when all records have been written again: until then they may have
// been gone. f must not block.
func (s *Store) OnRecover(f func()) (cancel func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.nextID
	s.nextID++
	s.recover[id] = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.recover, id)
	}
}

// Put declares a record and writes it: an upsert under the lease of this process. On an error a record that was there before
// keeps its new value declared, and the store goes on trying; one that never was is taken back.
func (s *Store) Put(ctx context.Context, rec Record) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	s.mu.Lock()
	r := s.records[rec.Key]
	if r == nil {
		r = &record{key: rec.Key, sem: make(chan struct{}, 1)}
		s.records[rec.Key] = r
	}
	r.value, r.echo, r.wanted = rec.Value, rec.Echo, true
	r.version++
	version := r.version
	s.mu.Unlock()

	err := s.flush(ctx, r)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	if !r.ever && r.version == version {
		r.wanted = false // it may have been written all the same, so it is deleted later on
		r.version++
	}
	s.mu.Unlock()
	return fmt.Errorf("etcd put %s: %w", rec.Key, err)
}

// Delete takes a record back and returns nil when the server has confirmed that it is gone. A key that another process has
// written since (a successor at the same address) is left alone. Idempotent; after an error the store goes on trying.
func (s *Store) Delete(ctx context.Context, key string) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	s.mu.Lock()
	r := s.records[key]
	if r == nil {
		s.mu.Unlock()
		return nil
	}
	if r.wanted {
		r.wanted = false
		r.version++
	}
	s.mu.Unlock()
	if err := s.flush(ctx, r); err != nil {
		return fmt.Errorf("etcd delete %s: %w", key, err)
	}
	return nil
}

// Get reads a key from the server. found is false if there is none; mine says that this process has written it.
func (s *Store) Get(ctx context.Context, key string) (value string, found, mine bool, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	resp, err := s.client.Get(ctx, key)
	if err != nil {
		return "", false, false, fmt.Errorf("etcd get %s: %w", key, s.explain(ctx, err))
	}
	if len(resp.Kvs) == 0 {
		return "", false, false, nil
	}
	kv := resp.Kvs[0]
	return string(kv.Value), true, s.isOwn(clientv3.LeaseID(kv.Lease)), nil
}

func (s *Store) isOwn(id clientv3.LeaseID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, own := s.own[id]
	return own
}

// bounded ends with ctx or the store, and after cfg.Timeout if ctx has no deadline.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	var cancel context.CancelFunc
	if _, ok := ctx.Deadline(); ok {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, s.cfg.Timeout)
	}
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// explain turns the end of a context into what it means.
func (s *Store) explain(ctx context.Context, err error) error {
	switch {
	case s.ctx.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded || status.Code(err) == codes.Unavailable:
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, s.cfg.Endpoints, err)
	}
	return err
}

// flush brings the desired state of one record to the server, until it is confirmed or ctx ends.
func (s *Store) flush(ctx context.Context, r *record) error {
	select {
	case r.sem <- struct{}{}:
	case <-ctx.Done():
		return s.explain(ctx, ctx.Err())
	}
	defer func() { <-r.sem }()

	for delay := firstDelay; ; delay = min(2*delay, maxDelay) {
		s.mu.Lock()
		wanted, value, echo, version := r.wanted, r.value, r.echo, r.version
		done := !r.dirty(s.lease)
		s.mu.Unlock()
		if done {
			return nil
		}
		var err error
		if wanted {
			err = s.write(ctx, r, version, value, echo)
		} else {
			err = s.erase(ctx, r, version, echo)
		}
		switch {
		case err == nil:
			continue // the desired state may have changed meanwhile
		case ctx.Err() != nil || !passing(err):
			return s.explain(ctx, err)
		}
		if !sleep(ctx, delay) {
			return s.explain(ctx, err)
		}
	}
}

// passing says whether an error is worth another try.
func passing(err error) bool {
	var answer rpctypes.EtcdError
	code := status.Code(err)
	if errors.As(err, &answer) {
		code = answer.Code()
	}
	switch code {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented:
		return false
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Store) write(ctx context.Context, r *record, version uint64, value string, echo bool) error {
	lease, err := s.waitLease(ctx)
	if err != nil {
		return err
	}
	resp, err := s.client.Put(ctx, r.key, value, clientv3.WithLease(lease), clientv3.WithPrevKV())
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.forgetLease(lease) // the server knows earlier than the keepalive
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	r.stored, r.lease, r.ever = version, lease, true
	s.mu.Unlock()
	if echo && resp.PrevKv == nil {
		s.echo(r.key)
	}
	return nil
}

func (s *Store) erase(ctx context.Context, r *record, version uint64, echo bool) error {
	for {
		got, err := s.client.Get(ctx, r.key)
		if err != nil {
			return err
		}
		if len(got.Kvs) == 0 {
			break
		}
		kv := got.Kvs[0]
		if !s.isOwn(clientv3.LeaseID(kv.Lease)) {
			logger.Infof("[Graceful][Etcd] left alone, another process has written it since: key=%s lease=%x", r.key, kv.Lease)
			break
		}
		cmps := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(r.key), "=", kv.ModRevision)}
		ops := []clientv3.Op{clientv3.OpDelete(r.key)}
		if echo {
			other, err := s.neighbour(ctx, r.key)
			if err != nil {
				return err
			}
			if other != "" {
				cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(other), ">", 0))
				ops = append(ops, clientv3.OpPut(other, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease()))
			}
		}
		resp, err := s.client.Txn(ctx).If(cmps...).Then(ops...).Commit()
		if errors.Is(err, rpctypes.ErrPermissionDenied) && echo {
			echo = false // allowed to write its own keys only: delete without telling
			continue
		}
		if err != nil {
			return err
		}
		if resp.Succeeded {
			if echo {
				s.echo(r.key)
			}
			break
		}
	}
	s.mu.Lock()
	r.stored = version
	if r.version == version {
		delete(s.records, r.key)
	}
	s.mu.Unlock()
	return nil
}

// neighbour is some other key of the same directory, or "".
func (s *Store) neighbour(ctx context.Context, key string) (string, error) {
	resp, err := s.client.Get(ctx, path.Dir(key)+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(2))
	if err != nil {
		return "", err
	}
	for _, kv := range resp.Kvs {
		if string(kv.Key) != key {
			return string(kv.Key), nil
		}
	}
	return "", nil
}

// echo writes a key of this key's directory again, a moment later, this one if it is there.
func (s *Store) echo(key string) {
	dir := path.Dir(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, coming := s.echoing[dir]; coming || s.ctx.Err() != nil {
		return
	}
	s.echoing[dir] = struct{}{}
	s.wg.Go(func() {
		waited := sleep(s.ctx, echoDelay)
		s.mu.Lock()
		delete(s.echoing, dir)
		s.mu.Unlock()
		if !waited {
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Timeout)
		defer cancel()
		touch := func(key string) (bool, error) {
			resp, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), ">", 0)).
				Then(clientv3.OpPut(key, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())).Commit()
			return err == nil && resp.Succeeded, err
		}
		done, err := touch(key)
		if !done && err == nil {
			var other string
			if other, err = s.neighbour(ctx, key); other != "" {
				_, err = touch(other)
			}
		}
		if err != nil && s.ctx.Err() == nil {
			logger.Debugf("[Graceful][Etcd] consumers without this module may not have noticed a change: directory=%s err=%v", dir, err)
		}
	})
}

func (s *Store) waitLease(ctx context.Context) (clientv3.LeaseID, error) {
	for {
		s.mu.Lock()
		lease, leased, lastErr := s.lease, s.leased, s.lastErr
		s.mu.Unlock()
		if lease != clientv3.NoLease {
			return lease, nil
		}
		select {
		case <-leased:
		case <-ctx.Done():
			return clientv3.NoLease, errors.Join(ctx.Err(), lastErr)
		}
	}
}

// forgetLease has keepLease get a new lease if id is still the present one.
func (s *Store) forgetLease(id clientv3.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == id {
		s.unleaseLocked()
	}
}

func (s *Store) unleaseLocked() {
	s.dropLease()
	s.lease = clientv3.NoLease
	s.leased = make(chan struct{})
}

// keepLease holds one lease after the other, until the store closes.
func (s *Store) keepLease() {
	delay, reported := firstDelay, false
	for s.ctx.Err() == nil {
		err := s.holdLease(func() { delay, reported = firstDelay, false })
		if s.ctx.Err() != nil {
			return
		}
		if err != nil {
			s.mu.Lock()
			s.lastErr = err
			s.mu.Unlock()
			if !reported {
				reported = true
				logger.Warnf("[Graceful][Etcd] no lease, nothing can be registered until etcd answers: endpoints=%s err=%v", s.cfg.Endpoints, err)
			}
			if !sleep(s.ctx, delay) {
				return
			}
			delay = min(2*delay, maxDelay)
			continue
		}
		logger.Warnf("[Graceful][Etcd] lease lost, getting a new one: endpoints=%s", s.cfg.Endpoints)
	}
}

// holdLease gets a lease and keeps it until it is lost (nil). It returns an error if it got none.
func (s *Store) holdLease(granted func()) error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	// A lessor of its own for each lease: one whose stream met a permanent error never sends a keepalive again.
	lessor := clientv3.NewLease(s.client)
	defer func() {
		if err := lessor.Close(); err != nil && s.ctx.Err() == nil {
			logger.Debugf("[Graceful][Etcd] closing keepalive: err=%v", err)
		}
	}()
	gctx, gcancel := context.WithTimeout(ctx, s.cfg.Timeout)
	grant, err := lessor.Grant(gctx, int64(math.Ceil(s.cfg.TTL.Seconds())))
	gcancel()
	if err != nil {
		return err
	}
	alive, err := lessor.KeepAlive(ctx, grant.ID)
	if err != nil {
		return err
	}
	granted()

	s.mu.Lock()
	s.lease, s.lastLease, s.dropLease, s.lastErr = grant.ID, grant.ID, cancel, nil
	s.own[grant.ID] = struct{}{}
	s.generation++
	again := s.generation > 1
	close(s.leased)
	s.mu.Unlock()

	s.flushDirty(ctx)
	if again {
		logger.Infof("[Graceful][Etcd] recovered, all records written again: endpoints=%s lease=%x", s.cfg.Endpoints, grant.ID)
		s.mu.Lock()
		close(s.renewed)
		s.renewed = make(chan struct{})
		tell := make([]func(), 0, len(s.recover))
		for _, f := range s.recover {
			tell = append(tell, f)
		}
		s.mu.Unlock()
		for _, f := range tell {
			f()
		}
	}
	for range alive {
		s.flushDirty(ctx)
	}
	s.forgetLease(grant.ID)
	return nil
}

// flushDirty writes what the server does not have as desired. Errors come back with the next keepalive.
func (s *Store) flushDirty(ctx context.Context) {
	s.mu.Lock()
	var dirty []*record
	for _, r := range s.records {
		if r.dirty(s.lease) {
			dirty = append(dirty, r)
		}
	}
	s.mu.Unlock()
	if len(dirty) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(parallelWrites)
	for _, r := range dirty {
		g.Go(func() error {
			if err := s.flush(ctx, r); err != nil {
				logger.Warnf("[Graceful][Etcd] record not written yet, trying again: key=%s err=%v", r.key, err)
			}
			return nil
		})
	}
	_ = g.Wait() // errors have been logged one by one
}
