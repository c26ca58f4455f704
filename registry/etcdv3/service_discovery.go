// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdv3

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/registry"

	gxset "github.com/dubbogo/gost/container/set"
	gxpage "github.com/dubbogo/gost/hash/page"
	"github.com/dubbogo/gost/log/logger"
)

import (
	"github.com/dubbogo/graceful/internal/etcd"
)

// serviceDiscovery is the service level.
type serviceDiscovery struct {
	url    *common.URL
	conn   connection
	ctx    context.Context // of the followers
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu         sync.Mutex
	registered map[string]string // key -> service name
	following  map[string]*following
}

// following is one application that is followed, and who wants to know.
type following struct {
	mu        sync.Mutex // held while telling: a listener that joins gets the list before the next change
	listeners []registry.ServiceInstancesChangedListener
	values    []string // of the newest list
	listed    bool
}

func newServiceDiscovery(url *common.URL) (registry.ServiceDiscovery, error) {
	cfg, err := etcd.ConfigOf(url)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &serviceDiscovery{
		url:        url,
		conn:       connection{cfg: cfg},
		ctx:        ctx,
		cancel:     cancel,
		registered: map[string]string{},
		following:  map[string]*following{},
	}, nil
}

func (d *serviceDiscovery) String() string { return "etcd-service-discovery[" + d.url.Location + "]" }

// Destroy removes this discovery's records, ends its followers and gives the connection back. Idempotent.
func (d *serviceDiscovery) Destroy() error {
	store, ok := d.conn.close()
	d.cancel()
	d.wg.Wait()
	if !ok {
		return nil
	}
	d.mu.Lock()
	keys := slices.Collect(maps.Keys(d.registered))
	d.registered = map[string]string{}
	d.mu.Unlock()
	return errors.Join(deleteAll(store, d.conn.cfg.Timeout, keys), store.Close())
}

// Register writes the record of an instance; registering it again is an upsert.
func (d *serviceDiscovery) Register(instance registry.ServiceInstance) error {
	value, err := etcd.EncodeInstance(instance, nil)
	if err != nil {
		return err
	}
	store, err := d.conn.open()
	if err != nil {
		return err
	}
	key := etcd.ServiceKey(instance)
	if err := store.Put(d.ctx, etcd.Record{Key: key, Value: value, Echo: true}); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registered[key] = instance.GetServiceName()
	return nil
}

// Update is Register: the record is never missing in between.
func (d *serviceDiscovery) Update(instance registry.ServiceInstance) error {
	return d.Register(instance)
}

// Unregister removes the record and returns when the server has confirmed it. It is no error if there is none.
func (d *serviceDiscovery) Unregister(instance registry.ServiceInstance) error {
	store, err := d.conn.open()
	if err != nil {
		return err
	}
	key := etcd.ServiceKey(instance)
	if err := store.Delete(d.ctx, key); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.registered, key)
	return nil
}

// GetDefaultPageSize is dubbo-go's.
func (d *serviceDiscovery) GetDefaultPageSize() int { return registry.DefaultPageSize }

// GetServices lists the applications that this process has registered, as dubbo-go's own does.
func (d *serviceDiscovery) GetServices() *gxset.HashSet {
	d.mu.Lock()
	defer d.mu.Unlock()
	services := gxset.NewSet()
	for _, name := range d.registered {
		services.Add(name)
	}
	return services
}

// GetInstances reads the instances of an application. A server that does not answer is logged: the list is empty then.
func (d *serviceDiscovery) GetInstances(application string) []registry.ServiceInstance {
	store, err := d.conn.open()
	if err != nil {
		logger.Warnf("[Graceful][Etcd] instances not loaded: service=%s err=%v", application, err)
		return []registry.ServiceInstance{}
	}
	list, err := store.List(d.ctx, etcd.ServicePrefix(application))
	if err != nil {
		logger.Warnf("[Graceful][Etcd] instances not loaded: service=%s err=%v", application, err)
		return []registry.ServiceInstance{}
	}
	return decode(valuesOf(list))
}

// GetInstancesByPage is a part of GetInstances.
func (d *serviceDiscovery) GetInstancesByPage(application string, offset, pageSize int) gxpage.Pager {
	return page(d.GetInstances(application), offset, pageSize)
}

// GetHealthyInstancesByPage is a part of the instances that are healthy or not.
func (d *serviceDiscovery) GetHealthyInstancesByPage(application string, offset, pageSize int, healthy bool) gxpage.Pager {
	matching := slices.DeleteFunc(d.GetInstances(application), func(i registry.ServiceInstance) bool { return i.IsHealthy() != healthy })
	return page(matching, offset, pageSize)
}

// GetRequestInstances is a page of each application.
func (d *serviceDiscovery) GetRequestInstances(applications []string, offset, requestedSize int) map[string]gxpage.Pager {
	pages := make(map[string]gxpage.Pager, len(applications))
	for _, name := range applications {
		pages[name] = d.GetInstancesByPage(name, offset, requestedSize)
	}
	return pages
}

func page(all []registry.ServiceInstance, offset, size int) gxpage.Pager {
	from := min(max(offset, 0), len(all))
	to := min(from+max(size, 0), len(all))
	data := make([]any, 0, to-from)
	for _, instance := range all[from:to] {
		data = append(data, instance)
	}
	return gxpage.NewPage(offset, size, data, len(all))
}

// AddListener has the listener told the complete list of each of its applications, first the present one and then after every
// change, for as long as the discovery lives. Adding it again changes nothing.
func (d *serviceDiscovery) AddListener(listener registry.ServiceInstancesChangedListener) error {
	store, err := d.conn.open()
	if err != nil {
		return err
	}
	for _, name := range listener.GetServiceNames().Values() {
		application, ok := name.(string)
		if !ok {
			return fmt.Errorf("service name %v of a listener is a %T, not a string", name, name)
		}
		d.follow(store, application, listener)
	}
	return nil
}

func (d *serviceDiscovery) follow(store *etcd.Store, application string, listener registry.ServiceInstancesChangedListener) {
	d.mu.Lock()
	f, found := d.following[application]
	if !found {
		f = &following{}
		d.following[application] = f
		d.wg.Go(func() {
			err := store.Follow(d.ctx, etcd.ServicePrefix(application), etcd.Snapshot{}, func(changes []etcd.Change, now etcd.Snapshot) {
				if len(changes) > 0 { // not a first list that is empty: dubbo-go has asked before, and has that already
					f.tell(application, valuesOf(now))
				}
			})
			if d.ctx.Err() == nil {
				logger.Warnf("[Graceful][Etcd] stopped following: service=%s err=%v", application, err)
			}
		})
	}
	d.mu.Unlock()

	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.listeners, listener) {
		return
	}
	f.listeners = append(f.listeners, listener)
	if f.listed {
		send(application, f.values, listener)
	}
}

func (f *following) tell(application string, values []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.values, f.listed = values, true
	for _, listener := range f.listeners {
		send(application, values, listener)
	}
}

// send gives every listener instances of its own, since listeners write into them.
func send(application string, values []string, listener registry.ServiceInstancesChangedListener) {
	if err := listener.OnEvent(registry.NewServiceInstancesChangedEvent(application, decode(values))); err != nil {
		logger.Warnf("[Graceful][Etcd] listener failed: service=%s err=%v", application, err)
	}
}

func valuesOf(list etcd.Snapshot) []string {
	values := make([]string, 0, len(list.Values))
	for _, key := range list.Keys() {
		values = append(values, list.Values[key])
	}
	return values
}

func decode(values []string) []registry.ServiceInstance {
	instances := make([]registry.ServiceInstance, 0, len(values))
	for _, value := range values {
		instance, err := etcd.DecodeInstance(value)
		if err != nil {
			logger.Warnf("[Graceful][Etcd] not an instance: %v", err)
			continue
		}
		instances = append(instances, instance)
	}
	return instances
}
