// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

import (
	"github.com/dubbogo/gost/log/logger"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Kind says what happened to a key.
type Kind uint8

// The kinds.
const (
	Created Kind = iota
	Changed
	Removed
)

func (k Kind) String() string {
	switch k {
	case Created:
		return "created"
	case Changed:
		return "changed"
	default:
		return "removed"
	}
}

// Change is one event of one key. Value is the new one, or the last known of a removed key.
type Change struct {
	Kind       Kind
	Key, Value string
}

// Snapshot is a complete list of a prefix as it was at one revision.
type Snapshot struct {
	Revision int64
	Values   map[string]string
	Created  map[string]int64 // the revision at which each key was created: of two keys the younger one has the higher
}

// Keys lists the keys in order.
func (s Snapshot) Keys() []string { return slices.Sorted(maps.Keys(s.Values)) }

// List reads all keys below prefix.
func (s *Store) List(ctx context.Context, prefix string) (Snapshot, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	resp, err := s.client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return Snapshot{}, fmt.Errorf("etcd list %s: %w", prefix, s.explain(ctx, err))
	}
	out := Snapshot{
		Revision: resp.Header.Revision,
		Values:   make(map[string]string, len(resp.Kvs)),
		Created:  make(map[string]int64, len(resp.Kvs)),
	}
	for _, kv := range resp.Kvs {
		out.Values[string(kv.Key)], out.Created[string(kv.Key)] = string(kv.Value), kv.CreateRevision
	}
	return out, nil
}

// Follow tells f every change below prefix since the snapshot from (the zero Snapshot: since nothing was there), until ctx or
// the store ends, whose error it returns. Changes come in order, each call with those that happened together, next to the list
// that they lead to, which f may read but neither change nor keep. A write of the value that is there already is no change. The
// first list is told even if nothing has changed.
//
// A server that is away is waited for. After a compaction, and whenever the lease was lost (the server may be another one, with
// other data and lower revisions, where a watch would stay silent), the list is read again and the difference told.
func (s *Store) Follow(ctx context.Context, prefix string, from Snapshot, f func(changes []Change, now Snapshot)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()

	now := Snapshot{Revision: from.Revision, Values: map[string]string{}, Created: map[string]int64{}}
	maps.Copy(now.Values, from.Values)
	maps.Copy(now.Created, from.Created)
	listed := from.Revision != 0
	tell := func(changes []Change) {
		if len(changes) > 0 || !listed {
			listed = true
			f(changes, now)
		}
	}
	list := now.Revision == 0
	delay := firstDelay
	for {
		s.mu.Lock()
		renewed := s.renewed // taken before the list: a lease lost after it means another list
		s.mu.Unlock()
		var err error
		if list {
			var next Snapshot
			if next, err = s.List(ctx, prefix); err == nil {
				changes := diff(now.Values, next.Values)
				now = next
				tell(changes)
			}
		}
		if err == nil {
			var worked bool
			if worked, err = s.watch(ctx, prefix, &now, renewed, tell); worked {
				delay = firstDelay
			}
			list = true
		}
		switch {
		case ctx.Err() != nil:
			if s.ctx.Err() != nil {
				return ErrClosed
			}
			return ctx.Err()
		case errors.Is(err, errRelist) || errors.Is(err, rpctypes.ErrCompacted):
			logger.Infof("[Graceful][Etcd] reading the list again: prefix=%s reason=%v", prefix, err)
			continue
		}
		logger.Warnf("[Graceful][Etcd] watch interrupted, trying again: prefix=%s err=%v", prefix, err)
		if !sleep(ctx, delay) {
			continue
		}
		delay = min(2*delay, maxDelay)
	}
}

// errRelist ends a watch whose list must be read again.
var errRelist = errors.New("lease renewed")

func (s *Store) watch(ctx context.Context, prefix string, now *Snapshot, renewed <-chan struct{}, tell func([]Change)) (worked bool, err error) {
	// Without a leader a member would keep the watch and say nothing.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := s.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(now.Revision+1), clientv3.WithCreatedNotify())
	for {
		select {
		case <-renewed:
			return worked, errRelist
		case resp, ok := <-events:
			if !ok {
				return worked, errors.New("watch closed")
			}
			if err := resp.Err(); err != nil {
				return worked, err
			}
			worked = true
			now.Revision = max(now.Revision, resp.Header.Revision)
			tell(now.apply(resp.Events))
		}
	}
}

// apply brings the snapshot up to date and returns what changed.
func (s *Snapshot) apply(events []*clientv3.Event) []Change {
	changes := make([]Change, 0, len(events))
	for _, e := range events {
		key, value := string(e.Kv.Key), string(e.Kv.Value)
		old, known := s.Values[key]
		if e.Type == mvccpb.DELETE {
			if known {
				delete(s.Values, key)
				delete(s.Created, key)
				changes = append(changes, Change{Kind: Removed, Key: key, Value: old})
			}
			continue
		}
		s.Values[key], s.Created[key] = value, e.Kv.CreateRevision
		switch {
		case !known:
			changes = append(changes, Change{Kind: Created, Key: key, Value: value})
		case old != value:
			changes = append(changes, Change{Kind: Changed, Key: key, Value: value})
		}
	}
	return changes
}

// diff is what leads from old to now: new keys first, so that a subscriber never has fewer than it must.
func diff(old, now map[string]string) []Change {
	var created, changed, removed []Change
	for _, key := range slices.Sorted(maps.Keys(now)) {
		value := now[key]
		if was, ok := old[key]; !ok {
			created = append(created, Change{Kind: Created, Key: key, Value: value})
		} else if was != value {
			changed = append(changed, Change{Kind: Changed, Key: key, Value: value})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if _, ok := now[key]; !ok {
			removed = append(removed, Change{Kind: Removed, Key: key, Value: old[key]})
		}
	}
	return slices.Concat(created, changed, removed)
}
