// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdv3

import (
	"context"
	"sync"
	"time"
)

import (
	"golang.org/x/sync/errgroup"
)

import (
	"github.com/dubbogo/graceful/internal/etcd"
)

// parallelDeletes keeps a shutdown of hundreds of records to a few round trips.
const parallelDeletes = 16

// connection opens the process's store at the first use, and not again after close.
type connection struct {
	cfg etcd.Config

	mu     sync.Mutex
	store  *etcd.Store
	closed bool
}

func (c *connection) open() (*etcd.Store, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, etcd.ErrClosed
	}
	if c.store == nil {
		store, err := etcd.Open(c.cfg)
		if err != nil {
			return nil, err
		}
		c.store = store
	}
	return c.store, nil
}

// close returns the store once, for the last things and its Close; ok is false if there is none.
func (c *connection) close() (store *etcd.Store, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	store, c.store, c.closed = c.store, nil, true
	return store, store != nil
}

func (c *connection) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func deleteAll(store *etcd.Store, timeout time.Duration, keys []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(parallelDeletes)
	for _, key := range keys {
		g.Go(func() error { return store.Delete(ctx, key) })
	}
	return g.Wait()
}
