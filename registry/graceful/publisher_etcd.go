// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	// The metadata report that comes with the registry.
	_ "dubbo.apache.org/dubbo-go/v3/metadata/report/etcd"

	"golang.org/x/sync/errgroup"
)

import (
	"github.com/dubbogo/graceful/internal/etcd"
	"github.com/dubbogo/graceful/internal/wire"
	// What is decorated: dubbo-go's own etcd registry cannot do it.
	_ "github.com/dubbogo/graceful/registry/etcdv3"
)

func init() {
	publishers[constant.EtcdV3Key] = func(l level, u *common.URL) publisher { return &etcdPublisher{level: l, conn: etcdConn{url: u}} }
}

// etcdConn opens the process's etcd store at the first use, and not again after close.
type etcdConn struct {
	url *common.URL

	mu      sync.Mutex
	store   *etcd.Store
	closed  bool
	recover func()
	unwatch func()
}

var errEtcdClosed = errors.New("etcd connection is closed")

// open may take up to the registry's timeout when there is a user name: the client logs in first.
func (c *etcdConn) open() (*etcd.Store, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errEtcdClosed
	}
	if c.store != nil {
		return c.store, nil
	}
	cfg, err := etcd.ConfigOf(c.url)
	if err != nil {
		return nil, err
	}
	store, err := etcd.Open(cfg)
	if err != nil {
		return nil, err
	}
	c.store = store
	if c.recover != nil {
		c.unwatch = store.OnRecover(c.recover)
	}
	return store, nil
}

func (c *etcdConn) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	store, unwatch := c.store, c.unwatch
	c.store, c.unwatch, c.closed = nil, nil, true
	if unwatch != nil {
		unwatch()
	}
	if store == nil {
		return nil
	}
	return store.Close()
}

// etcdPublisher keeps each record as one key under the lease of the process. The status is in the value, so a change of it is a
// put of the same key: a consumer sees the same provider with other data. On interface level the value is free (dubbo-go writes
// none and reads keys only), on service level it is the instance as JSON with the marks as metadata.
type etcdPublisher struct {
	level level
	conn  etcdConn
}

// entry is the record as it is written.
func (p *etcdPublisher) entry(r record, m wire.Mark) (etcd.Record, error) {
	if p.level == serviceLevel {
		instance := copyInstance(r.instance, r.metadata(m))
		if r.tag != "" {
			instance.Tag = r.tag
		}
		value, err := etcd.EncodeInstance(instance, nil)
		if err != nil {
			return etcd.Record{}, err
		}
		return etcd.Record{Key: etcd.ServiceKey(instance), Value: value, Echo: true}, nil
	}
	u := r.url
	if u.GetParam(constant.RegistryRoleKey, "") == "" {
		u = u.Clone()
		u.SetParam(constant.RegistryRoleKey, strconv.Itoa(common.PROVIDER))
	}
	key, err := etcd.InterfaceKey(p.conn.url, u)
	if err != nil {
		return etcd.Record{}, err
	}
	return etcd.Record{Key: key, Value: m.Encode()}, nil
}

// each runs f for every record, a bounded number at a time, and joins the errors.
func (p *etcdPublisher) each(recs []record, m wire.Mark, f func(store *etcd.Store, e etcd.Record) error) error {
	store, err := p.conn.open()
	if err != nil {
		return err
	}
	var (
		group errgroup.Group
		errs  = make([]error, len(recs))
	)
	group.SetLimit(parallel)
	for i, r := range recs {
		group.Go(func() error {
			e, err := p.entry(r, m)
			if err == nil {
				err = f(store, e)
			}
			if err != nil {
				errs[i] = fmt.Errorf("%s at %s: %w", r.service(), r.address(), err)
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return nil, errs has what they met
	return errors.Join(errs...)
}

func (p *etcdPublisher) Put(ctx context.Context, recs []record, m wire.Mark) error {
	return p.each(recs, m, func(store *etcd.Store, e etcd.Record) error { return store.Put(ctx, e) })
}

func (p *etcdPublisher) Remove(ctx context.Context, recs []record) error {
	return p.each(recs, wire.Mark{}, func(store *etcd.Store, e etcd.Record) error { return store.Delete(ctx, e.Key) })
}

func (p *etcdPublisher) Shows(ctx context.Context, recs []record, m wire.Mark) error {
	return p.each(recs, m, func(store *etcd.Store, e etcd.Record) error {
		value, found, mine, err := store.Get(ctx, e.Key)
		switch {
		case err != nil:
			return err
		case !found:
			return fmt.Errorf("%w: no key", errNotShown)
		case !mine:
			return fmt.Errorf("%w: another process holds the key", errNotShown)
		case value != e.Value:
			return fmt.Errorf("%w: it has %q", errNotShown, value)
		}
		return nil
	})
}

// Watch has f called when the lease was lost; the store has written the records again by then.
func (p *etcdPublisher) Watch(f func()) {
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	p.conn.recover = f
}

// Close gives the connection back. Its last user revokes the lease, which takes along whatever is left.
func (p *etcdPublisher) Close() error { return p.conn.close() }
