// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"path"
	"time"
)

import (
	"github.com/dubbogo/gost/log/logger"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
)

import (
	"github.com/dubbogo/graceful/internal/etcd"
	"github.com/dubbogo/graceful/internal/wire"
)

func init() {
	interfaceSources[constant.EtcdV3Key] = func(r *interfaceRegistry, ref *common.URL) source {
		return &etcdSource{
			url: r.node.url, prefix: etcd.ProvidersPrefix(r.node.url, ref.Service()),
			parse: func(key, value string) (item, bool) { return etcdInterfaceItem(ref, key, value) },
		}
	}
	serviceSources[constant.EtcdV3Key] = func(d *serviceDiscovery, name string) source {
		return &etcdSource{url: d.url, prefix: etcd.ServicePrefix(name), parse: etcdServiceItem}
	}
}

// etcdSource makes lists out of the keys below a prefix.
type etcdSource struct {
	url    *common.URL
	prefix string
	parse  func(key, value string) (item, bool)
}

func (s *etcdSource) follow(ctx context.Context, emit func([]item)) {
	conn := etcdConn{url: s.url}
	defer func() {
		if err := conn.close(); err != nil {
			logger.Debugf("[Graceful][Etcd] prefix=%s close: %v", s.prefix, err)
		}
	}()
	for pause := firstRetry; ctx.Err() == nil; pause = min(2*pause, maxRetry) {
		store, err := conn.open()
		if err == nil {
			err = store.Follow(ctx, s.prefix, etcd.Snapshot{}, func(_ []etcd.Change, now etcd.Snapshot) { emit(s.items(now)) })
		}
		if ctx.Err() != nil {
			return
		}
		logger.Warnf("[Graceful][Etcd] cannot follow prefix=%s, trying again in %s: %v", s.prefix, pause, err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (s *etcdSource) query(ctx context.Context) ([]item, error) {
	conn := etcdConn{url: s.url}
	store, err := conn.open()
	if err != nil {
		return nil, err
	}
	list, err := store.List(ctx, s.prefix)
	if err != nil {
		_ = conn.close() // the error of the list says it all
		return nil, err
	}
	return s.items(list), conn.close()
}

func (s *etcdSource) items(list etcd.Snapshot) []item {
	items := make([]item, 0, len(list.Values))
	for _, key := range list.Keys() {
		if it, ok := s.parse(key, list.Values[key]); ok {
			it.order = list.Created[key]
			items = append(items, it)
		}
	}
	return items
}

// etcdInterfaceItem reads a provider key of interface level that the reference ref asks for.
func etcdInterfaceItem(ref *common.URL, key, value string) (item, bool) {
	u, err := etcd.ParseInterfaceKey(key)
	if err != nil {
		logger.Warnf("[Graceful][Etcd] key=%q is no provider URL: %v", path.Base(key), err)
		return item{}, false
	}
	var mark wire.Mark
	if m, markErr := wire.ParseMark(value); markErr == nil {
		mark = m
	}
	return interfaceItem(ref, u, mark)
}

// etcdServiceItem reads an instance key of service level.
func etcdServiceItem(key, value string) (item, bool) {
	in, err := etcd.DecodeInstance(value)
	if err != nil {
		logger.Warnf("[Graceful][Etcd] key=%q is no instance: %v", key, err)
		return item{}, false
	}
	return serviceItem(in), true
}
