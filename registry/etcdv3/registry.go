// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdv3

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/registry"
	// dubbo-go's own registers first, and ours replaces it under the same name: the last one wins.
	_ "dubbo.apache.org/dubbo-go/v3/registry/etcdv3"
	"dubbo.apache.org/dubbo-go/v3/remoting"

	"github.com/dubbogo/gost/log/logger"
)

import (
	"github.com/dubbogo/graceful/internal/etcd"
)

// DataAttribute is the attribute of a notified provider URL that holds the data of its record: a string that dubbo-go leaves
// empty and a graceful provider fills with its marks. It is no parameter, so a change of it rebuilds no invoker.
const DataAttribute = "graceful.record-data"

func init() {
	extension.SetRegistry(constant.EtcdV3Key, newRegistry)
	extension.SetServiceDiscovery(constant.EtcdV3Key, newServiceDiscovery)
}

// etcdRegistry is the interface level.
type etcdRegistry struct {
	url  *common.URL
	conn connection

	mu         sync.Mutex
	registered map[string]struct{}            // keys
	loaded     map[subscription]etcd.Snapshot // what LoadSubscribeInstances has told already
	subscribed map[*subscriber]struct{}
}

type subscriber struct {
	of     subscription
	cancel context.CancelFunc
	done   chan struct{}
}

// newRegistry has no effects: dubbo-go builds registries that it throws away.
func newRegistry(url *common.URL) (registry.Registry, error) {
	cfg, err := etcd.ConfigOf(url)
	if err != nil {
		return nil, err
	}
	return &etcdRegistry{
		url:        url,
		conn:       connection{cfg: cfg},
		registered: map[string]struct{}{},
		loaded:     map[subscription]etcd.Snapshot{},
		subscribed: map[*subscriber]struct{}{},
	}, nil
}

// GetURL is the registry's own URL.
func (r *etcdRegistry) GetURL() *common.URL { return r.url }

// IsAvailable is true until Destroy: a server that is away for a while comes back by itself.
func (r *etcdRegistry) IsAvailable() bool { return !r.conn.isClosed() }

// Register writes the record of a provider or consumer; registering it again is an upsert.
func (r *etcdRegistry) Register(url *common.URL) error {
	key, err := etcd.InterfaceKey(r.url, url)
	if err != nil {
		return err
	}
	store, err := r.conn.open()
	if err != nil {
		return err
	}
	if err := store.Put(context.Background(), etcd.Record{Key: key}); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.registered[key] = struct{}{}
	return nil
}

// UnRegister removes a record and returns when the server has confirmed it. It is no error if there is none.
func (r *etcdRegistry) UnRegister(url *common.URL) error {
	key, err := etcd.InterfaceKey(r.url, url)
	if err != nil {
		return err
	}
	store, err := r.conn.open()
	if err != nil {
		return err
	}
	if err := store.Delete(context.Background(), key); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.registered, key)
	return nil
}

// subscription is who wants to know about what.
type subscription struct {
	service  string
	listener registry.NotifyListener
}

func subscriptionOf(url *common.URL, listener registry.NotifyListener) subscription {
	return subscription{service: url.Key() + "&" + url.GetParam(constant.CategoryKey, ""), listener: listener}
}

// LoadSubscribeInstances tells the listener the providers of the moment; the Subscribe that follows goes on from there. A server
// that is down is no error: dubbo-go would make a reference without invoker of it, for good.
func (r *etcdRegistry) LoadSubscribeInstances(url *common.URL, listener registry.NotifyListener) error {
	if !wantsProviders(url) {
		return nil
	}
	store, err := r.conn.open()
	if err != nil {
		logger.Warnf("[Graceful][Etcd] providers not loaded yet: service=%s err=%v", url.Service(), err)
		return nil
	}
	list, err := store.List(context.Background(), etcd.ProvidersPrefix(r.url, url.Service()))
	if err != nil {
		logger.Warnf("[Graceful][Etcd] providers not loaded yet: service=%s err=%v", url.Service(), err)
		return nil
	}
	changes := make([]etcd.Change, 0, len(list.Values))
	for _, key := range list.Keys() {
		changes = append(changes, etcd.Change{Kind: etcd.Created, Key: key, Value: list.Values[key]})
	}
	notify(url, listener, changes)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded[subscriptionOf(url, listener)] = list
	return nil
}

// Subscribe tells the listener one event for each provider that comes, changes (its record's data, see [DataAttribute]) or goes,
// and returns when UnSubscribe or Destroy ends it.
func (r *etcdRegistry) Subscribe(url *common.URL, listener registry.NotifyListener) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := &subscriber{of: subscriptionOf(url, listener), cancel: cancel, done: make(chan struct{})}
	defer close(s.done)

	r.mu.Lock()
	if r.conn.isClosed() {
		r.mu.Unlock()
		return etcd.ErrClosed
	}
	r.subscribed[s] = struct{}{}
	from := r.loaded[s.of]
	delete(r.loaded, s.of)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subscribed, s)
	}()

	if !wantsProviders(url) {
		<-ctx.Done() // a provider that subscribes to overrides: dubbo-go's own etcd registry has none either
		return nil
	}
	store, err := r.conn.open()
	if err != nil {
		return err
	}
	err = store.Follow(ctx, etcd.ProvidersPrefix(r.url, url.Service()), from, func(changes []etcd.Change, _ etcd.Snapshot) {
		notify(url, listener, changes)
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// UnSubscribe ends the subscription of this URL and listener and waits for its last notification. It must not be called by the
// listener itself.
func (r *etcdRegistry) UnSubscribe(url *common.URL, listener registry.NotifyListener) error {
	of := subscriptionOf(url, listener)
	r.end(func(s *subscriber) bool { return s.of == of })
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.loaded, of)
	return nil
}

// end cancels subscribers and waits for them.
func (r *etcdRegistry) end(which func(*subscriber) bool) {
	r.mu.Lock()
	var ended []*subscriber
	for s := range r.subscribed {
		if which(s) {
			s.cancel()
			ended = append(ended, s)
		}
	}
	r.mu.Unlock()
	for _, s := range ended {
		<-s.done
	}
}

// Destroy removes this registry's records, ends its subscriptions and gives the connection back. Idempotent.
func (r *etcdRegistry) Destroy() {
	store, ok := r.conn.close()
	r.end(func(*subscriber) bool { return true })
	if !ok {
		return
	}
	r.mu.Lock()
	keys := slices.Collect(maps.Keys(r.registered))
	r.registered = map[string]struct{}{}
	r.mu.Unlock()
	if err := errors.Join(deleteAll(store, r.conn.cfg.Timeout, keys), store.Close()); err != nil {
		logger.Warnf("[Graceful][Etcd] records may stay until the lease ends: registry=%s err=%v", r.url.Location, err)
	}
}

func wantsProviders(url *common.URL) bool {
	category := url.GetParam(constant.CategoryKey, constant.DefaultCategory)
	return strings.Contains(category, constant.DefaultCategory) || strings.Contains(category, constant.AnyValue)
}

// notify tells the changes that concern the subscriber: same service, group and version.
func notify(subscribed *common.URL, listener registry.NotifyListener, changes []etcd.Change) {
	for _, c := range changes {
		url, err := etcd.ParseInterfaceKey(c.Key)
		if err != nil {
			logger.Warnf("[Graceful][Etcd] not a provider: %v", err)
			continue
		}
		if !url.URLEqual(subscribed) {
			continue
		}
		url.SetAttribute(DataAttribute, c.Value)
		action := remoting.EventTypeAdd
		switch c.Kind {
		case etcd.Changed:
			action = remoting.EventTypeUpdate
		case etcd.Removed:
			action = remoting.EventTypeDel
		case etcd.Created:
		}
		listener.Notify(&registry.ServiceEvent{Action: action, Service: url})
	}
}
