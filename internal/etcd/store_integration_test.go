// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package etcd

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	clientv3 "go.etcd.io/etcd/client/v3"
)

import (
	"github.com/dubbogo/graceful/internal/testserver"
)

const patience = 30 * time.Second

func configFor(addr string) Config {
	return Config{Endpoints: addr, Timeout: 3 * time.Second, TTL: 2 * time.Second}
}

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// separate gives each call a store of its own, as another process would have.
func separate(cfg Config) Config {
	separation.Lock()
	defer separation.Unlock()
	separation.n++
	cfg.Timeout += time.Duration(separation.n) * time.Microsecond
	return cfg
}

var separation struct {
	sync.Mutex
	n int
}

func rawClient(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// recorder collects what Follow tells.
type recorder struct {
	mu      sync.Mutex
	changes []Change
	now     map[string]string
	moved   chan struct{}
}

func newRecorder() *recorder { return &recorder{moved: make(chan struct{}, 1)} }

func (r *recorder) tell(changes []Change, now Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, changes...)
	r.now = make(map[string]string)
	for k, v := range now.Values {
		r.now[k] = v
	}
	select {
	case r.moved <- struct{}{}:
	default:
	}
}

// until waits for a condition, looking again after each change.
func (r *recorder) until(t *testing.T, what string, ok func(changes []Change, now map[string]string) bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		done := ok(r.changes, r.now)
		seen := fmt.Sprint(r.changes)
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-r.moved:
		case <-deadline:
			t.Fatalf("never: %s; seen %s", what, seen)
		}
	}
}

func (r *recorder) count(kind Kind, key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return count(r.changes, kind, key)
}

func count(changes []Change, kind Kind, key string) int {
	n := 0
	for _, c := range changes {
		if c.Kind == kind && c.Key == key {
			n++
		}
	}
	return n
}

func follow(t *testing.T, s *Store, prefix string) *recorder {
	t.Helper()
	r := newRecorder()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Follow(ctx, prefix, Snapshot{}, r.tell) }()
	t.Cleanup(func() { cancel(); assert.ErrorIs(t, <-done, context.Canceled) })
	r.until(t, "the first list", func(_ []Change, now map[string]string) bool { return now != nil })
	return r
}

func TestRecordsLiveAndDieWithTheStore(t *testing.T) {
	server := testserver.Etcd(t)
	ctx := t.Context()
	a, err := Open(separate(configFor(server.Addr)))
	require.NoError(t, err)
	b := open(t, separate(configFor(server.Addr)))
	seen := follow(t, b, "/p/")

	require.NoError(t, a.Put(ctx, Record{Key: "/p/1", Value: "up"}))
	require.NoError(t, a.Put(ctx, Record{Key: "/p/1", Value: "up"}), "putting again is an upsert")
	require.NoError(t, a.Put(ctx, Record{Key: "/p/1", Value: "draining"}))
	require.NoError(t, a.Put(ctx, Record{Key: "/p/2", Value: "x"}))
	value, found, mine, err := a.Get(ctx, "/p/1")
	require.NoError(t, err)
	assert.Equal(t, []any{"draining", true, true}, []any{value, found, mine})
	_, _, mine, err = b.Get(ctx, "/p/1")
	require.NoError(t, err)
	assert.False(t, mine)

	require.NoError(t, a.Delete(ctx, "/p/2"))
	require.NoError(t, a.Delete(ctx, "/p/2"), "deleting again is nothing")
	_, found, _, err = a.Get(ctx, "/p/2")
	require.NoError(t, err)
	assert.False(t, found, "Delete returns when the key is gone")
	require.NoError(t, a.Close())
	seen.until(t, "what a closed store leaves is gone at once", func(c []Change, now map[string]string) bool {
		return count(c, Removed, "/p/1") == 1 && len(now) == 0
	})
	seen.mu.Lock()
	defer seen.mu.Unlock()
	assert.Equal(t, []Change{
		{Created, "/p/1", "up"}, {Changed, "/p/1", "draining"}, {Created, "/p/2", "x"}, {Removed, "/p/2", "x"}, {Removed, "/p/1", "draining"},
	}, seen.changes, "no event lost, none twice")
}

func TestDeadProcessIsRemovedByItsLease(t *testing.T) {
	server := testserver.Etcd(t)
	toServer := newLink(t, server.Addr)
	dying := open(t, configFor(toServer.addr))
	seen := follow(t, open(t, configFor(server.Addr)), "/p/")
	require.NoError(t, dying.Put(t.Context(), Record{Key: "/p/1", Value: "up"}))
	seen.until(t, "created", func(c []Change, _ map[string]string) bool { return len(c) == 1 })
	toServer.freeze(true)
	seen.until(t, "removed by expiry", func(_ []Change, now map[string]string) bool { return len(now) == 0 })

	toServer.freeze(false)
	seen.until(t, "written again under a new lease", func(_ []Change, now map[string]string) bool { return now["/p/1"] == "up" })
}

func TestLeaseLossWritesTheCurrentValues(t *testing.T) {
	server := testserver.Etcd(t)
	ctx := t.Context()
	s := open(t, separate(configFor(server.Addr)))
	recovered := make(chan struct{}, 1)
	defer s.OnRecover(func() { recovered <- struct{}{} })()
	require.NoError(t, s.Put(ctx, Record{Key: "/p/1", Value: "up"}))
	require.NoError(t, s.Put(ctx, Record{Key: "/p/1", Value: "draining"}))
	require.NoError(t, s.Put(ctx, Record{Key: "/p/2", Value: "up"}))
	require.NoError(t, s.Delete(ctx, "/p/2"))
	seen := follow(t, open(t, separate(configFor(server.Addr))), "/p/")

	seen.until(t, "listed", func(c []Change, _ map[string]string) bool { return len(c) == 1 })

	raw := rawClient(t, server.Addr)
	s.mu.Lock()
	lease := s.lease
	s.mu.Unlock()
	_, err := raw.Revoke(ctx, lease)
	require.NoError(t, err)
	seen.until(t, "removed", func(c []Change, _ map[string]string) bool { return count(c, Removed, "/p/1") == 1 })
	seen.until(t, "back with its current value", func(_ []Change, now map[string]string) bool { return now["/p/1"] == "draining" })
	<-recovered
	_, found, _, err := s.Get(ctx, "/p/2")
	require.NoError(t, err)
	assert.False(t, found, "a deleted record stays deleted")

	// A write that meets the lost lease first gets the new one by itself.
	s.mu.Lock()
	lease = s.lease
	s.mu.Unlock()
	_, err = raw.Revoke(ctx, lease)
	require.NoError(t, err)
	require.NoError(t, s.Put(ctx, Record{Key: "/p/3", Value: "up"}))
	seen.until(t, "both there", func(_ []Change, now map[string]string) bool { return now["/p/1"] == "draining" && now["/p/3"] == "up" })
}

func TestServerRestart(t *testing.T) {
	server := testserver.Etcd(t)
	ctx := t.Context()
	cfg := configFor(server.Addr)
	cfg.TTL = 10 * time.Second
	s := open(t, separate(cfg))
	seen := follow(t, open(t, separate(cfg)), "/p/")
	require.NoError(t, s.Put(ctx, Record{Key: "/p/1", Value: "up"}))
	require.NoError(t, s.Put(ctx, Record{Key: "/p/2", Value: "up"}))
	require.NoError(t, server.Stop())

	begin := time.Now()
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Put(short, Record{Key: "/p/1", Value: "draining"}), ErrUnavailable)
	require.ErrorIs(t, s.Delete(short, "/p/2"), ErrUnavailable)
	require.ErrorIs(t, s.Put(short, Record{Key: "/p/new", Value: "up"}), ErrUnavailable)
	assert.Less(t, time.Since(begin), 3*time.Second, "errors come within the context's time")

	require.NoError(t, server.Restart(ctx))
	seen.until(t, "made good after the restart", func(_ []Change, now map[string]string) bool {
		return now["/p/1"] == "draining" && len(now) == 1
	})
	assert.Zero(t, seen.count(Removed, "/p/1"), "the record was never missing")
	require.NoError(t, s.Put(ctx, Record{Key: "/p/1", Value: "up again"}))
	seen.until(t, "the watch goes on", func(_ []Change, now map[string]string) bool { return now["/p/1"] == "up again" })
	_, found, _, err := s.Get(ctx, "/p/new")
	require.NoError(t, err)
	assert.False(t, found, "a Put that failed leaves nothing behind")
}

func TestServerComesBackWithoutItsData(t *testing.T) {
	server, empty := testserver.Etcd(t), testserver.Etcd(t)
	toServer := newLink(t, server.Addr)
	ctx := t.Context()
	s := open(t, configFor(toServer.addr))
	seen := follow(t, s, "/p/")
	raw := rawClient(t, server.Addr)
	for i := range 50 { // revisions that the next server does not have
		_, err := raw.Put(ctx, "/other", fmt.Sprint(i))
		require.NoError(t, err)
	}
	_, err := raw.Put(ctx, "/p/foreign", "up")
	require.NoError(t, err)
	require.NoError(t, s.Put(ctx, Record{Key: "/p/1", Value: "up"}))
	seen.until(t, "both there", func(_ []Change, now map[string]string) bool { return len(now) == 2 })

	toServer.redirect(empty.Addr)
	seen.until(t, "the list is that of the new server", func(_ []Change, now map[string]string) bool {
		_, foreign := now["/p/foreign"]
		return now["/p/1"] == "up" && !foreign
	})
	_, err = rawClient(t, empty.Addr).Put(ctx, "/p/2", "up")
	require.NoError(t, err)
	seen.until(t, "the watch hears the new server", func(_ []Change, now map[string]string) bool { return now["/p/2"] == "up" })
}

func TestFollowResumesAfterCompaction(t *testing.T) {
	server := testserver.Etcd(t)
	toServer := newLink(t, server.Addr)
	ctx := t.Context()
	cfg := configFor(toServer.addr)
	cfg.TTL = time.Minute // the lease survives: only the compaction makes the list be read again
	reader := open(t, cfg)
	raw := rawClient(t, server.Addr)
	put := func(key, value string) {
		t.Helper()
		_, err := raw.Put(ctx, key, value)
		require.NoError(t, err)
	}
	put("/p/stays", "1")
	put("/p/changes", "1")
	put("/p/goes", "1")
	seen := follow(t, reader, "/p/")
	seen.until(t, "listed", func(c []Change, _ map[string]string) bool { return len(c) == 3 })

	toServer.freeze(true)
	put("/p/changes", "2")
	put("/p/comes", "1")
	_, err := raw.Delete(ctx, "/p/goes")
	require.NoError(t, err)
	put("/p/comes and goes", "1")
	resp, err := raw.Delete(ctx, "/p/comes and goes")
	require.NoError(t, err)
	_, err = raw.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	toServer.cut() // the events on the wire are lost with the connection
	toServer.freeze(false)
	seen.until(t, "caught up", func(_ []Change, now map[string]string) bool {
		return len(now) == 3 && now["/p/changes"] == "2" && now["/p/comes"] == "1" && now["/p/stays"] == "1"
	})
	put("/p/later", "1")
	seen.until(t, "goes on", func(_ []Change, now map[string]string) bool { return now["/p/later"] == "1" })
	assert.Equal(t, 1, seen.count(Created, "/p/stays"), "nothing is told twice")
	assert.Equal(t, 1, seen.count(Changed, "/p/changes"))
	assert.Equal(t, 1, seen.count(Removed, "/p/goes"))
	assert.Equal(t, 1, seen.count(Created, "/p/later"))
}

func TestFollowGoesOnFromASnapshot(t *testing.T) {
	server := testserver.Etcd(t)
	ctx := t.Context()
	s := open(t, separate(configFor(server.Addr)))
	require.NoError(t, s.Put(ctx, Record{Key: "/p/1", Value: "a"}))
	list, err := s.List(ctx, "/p/")
	require.NoError(t, err)
	require.NoError(t, s.Put(ctx, Record{Key: "/p/2", Value: "b"}))
	require.NoError(t, s.Delete(ctx, "/p/1"))

	seen := newRecorder()
	fctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.Follow(fctx, "/p/", list, seen.tell) }()
	seen.until(t, "both", func(c []Change, _ map[string]string) bool { return len(c) == 2 })
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	assert.Equal(t, []Change{{Created, "/p/2", "b"}, {Removed, "/p/1", "a"}}, seen.changes)
	assert.Equal(t, map[string]string{"/p/1": "a"}, list.Values, "the snapshot is the caller's")
}

func TestSuccessorAtTheSameKeyIsLeftAlone(t *testing.T) {
	server := testserver.Etcd(t)
	ctx := t.Context()
	old := open(t, separate(configFor(server.Addr)))
	successor := open(t, separate(configFor(server.Addr)))
	require.NoError(t, old.Put(ctx, Record{Key: "/p/1", Value: "old"}))
	require.NoError(t, successor.Put(ctx, Record{Key: "/p/1", Value: "new"}))
	require.NoError(t, old.Delete(ctx, "/p/1"))
	value, found, mine, err := successor.Get(ctx, "/p/1")
	require.NoError(t, err)
	assert.Equal(t, []any{"new", true, true}, []any{value, found, mine})
}

func TestConcurrentPutsEndWithTheLastDeclared(t *testing.T) {
	server := testserver.Etcd(t)
	ctx := t.Context()
	s := open(t, separate(configFor(server.Addr)))
	seen := follow(t, s, "/p/")
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { assert.NoError(t, s.Put(ctx, Record{Key: "/p/1", Value: fmt.Sprint(i)})) })
	}
	wg.Wait()
	require.NoError(t, s.Put(ctx, Record{Key: "/p/1", Value: "last"}))
	seen.until(t, "last", func(_ []Change, now map[string]string) bool { return now["/p/1"] == "last" })
	assert.Zero(t, seen.count(Removed, "/p/1"))
}

// What dubbo-go's own service discovery sees: it acts on an update of a key that was there, and reads the whole list then.
func TestEchoReachesAWatchThatActsOnUpdatesOnly(t *testing.T) {
	server := testserver.Etcd(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	raw := rawClient(t, server.Addr)
	updates := raw.Watch(ctx, "/p/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-updates
	nextUpdate := func() string {
		t.Helper()
		for resp := range updates {
			require.NoError(t, resp.Err())
			for _, e := range resp.Events {
				if e.IsModify() {
					return string(e.Kv.Key) + "=" + string(e.Kv.Value)
				}
			}
		}
		t.Fatal("no update")
		return ""
	}
	s := open(t, separate(configFor(server.Addr)))
	other := open(t, separate(configFor(server.Addr)))
	require.NoError(t, s.Put(ctx, Record{Key: "/p/1", Value: "a", Echo: true}))
	assert.Equal(t, "/p/1=a", nextUpdate())
	require.NoError(t, other.Put(ctx, Record{Key: "/p/2", Value: "b", Echo: true}))
	assert.Equal(t, "/p/2=b", nextUpdate())
	require.NoError(t, s.Delete(ctx, "/p/1"))
	assert.Equal(t, "/p/2=b", nextUpdate(), "the neighbour is touched when a key goes")
	assert.Equal(t, "/p/2=b", nextUpdate(), "and once more, for who was not looking")
	list, err := s.List(ctx, "/p/")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"/p/2": "b"}, list.Values)
	kv, err := raw.Get(ctx, "/p/2")
	require.NoError(t, err)
	assert.NotZero(t, kv.Kvs[0].Lease, "and keeps its lease")
	require.NoError(t, other.Delete(ctx, "/p/2"), "the last one has no neighbour")
}

func TestUsersShareOneConnectionAndOneLease(t *testing.T) {
	server := testserver.Etcd(t)
	cfg := separate(configFor(server.Addr))
	a, err := Open(cfg)
	require.NoError(t, err)
	b, err := Open(cfg)
	require.NoError(t, err)
	assert.Same(t, a, b)
	require.NoError(t, a.Put(t.Context(), Record{Key: "/p/1", Value: "x"}))
	require.NoError(t, b.Put(t.Context(), Record{Key: "/p/2", Value: "x"}))
	raw := rawClient(t, server.Addr)
	leases, err := raw.Leases(t.Context())
	require.NoError(t, err)
	assert.Len(t, leases.Leases, 1)
	require.NoError(t, a.Close())
	require.NoError(t, b.Put(t.Context(), Record{Key: "/p/2", Value: "y"}), "still open for the other one")
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.Put(t.Context(), Record{Key: "/p/2", Value: "z"}), ErrClosed)
	leases, err = raw.Leases(t.Context())
	require.NoError(t, err)
	assert.Empty(t, leases.Leases)
}
