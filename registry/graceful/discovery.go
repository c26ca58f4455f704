// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

import (
	gxset "github.com/dubbogo/gost/container/set"
	gxpage "github.com/dubbogo/gost/hash/page"
	"github.com/dubbogo/gost/log/logger"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/metadata/info"
	"dubbo.apache.org/dubbo-go/v3/registry"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

// serviceDiscovery is the registry of service level, below dubbo-go's own service-discovery-registry, which dubbo-go
// itself casts to its concrete type and which therefore stays what it is.
type serviceDiscovery struct {
	*node

	delegateMu sync.Mutex
	delegate   registry.ServiceDiscovery

	appsMu sync.Mutex
	apps   map[string]*app
}

var _ registry.ServiceDiscovery = (*serviceDiscovery)(nil)

func newServiceDiscovery(u *common.URL) (registry.ServiceDiscovery, error) {
	d, err := nodeFor(serviceLevel, u, func(n *node) *serviceDiscovery {
		d := &serviceDiscovery{node: n, apps: make(map[string]*app)}
		n.sourceOf = func(rec record) source { return d.source(rec.service()) }
		return d
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// theDelegate builds the decorated discovery at its first use.
func (d *serviceDiscovery) theDelegate() (_ registry.ServiceDiscovery, err error) {
	d.delegateMu.Lock()
	defer d.delegateMu.Unlock()
	if d.isClosed() {
		return nil, fmt.Errorf("%s: %w", d.Name(), ErrStopped)
	}
	if d.delegate != nil {
		return d.delegate, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v", d.Name(), p)
		}
	}()
	sd, err := extension.GetServiceDiscovery(d.url.Clone())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name(), err)
	}
	destroy := func() {
		if destroyErr := sd.Destroy(); destroyErr != nil {
			logClose(d.Name(), destroyErr)
		}
	}
	if !d.onClose(destroy) {
		destroy()
		return nil, fmt.Errorf("%s: %w", d.Name(), ErrStopped)
	}
	d.delegate = sd
	return sd, nil
}

func (d *serviceDiscovery) String() string { return d.Name() }

// Destroy releases the connections. Records that are still there are left to the registry's expiry.
func (d *serviceDiscovery) Destroy() error {
	ctx, cancel := d.bounded()
	defer cancel()
	return d.Close(ctx)
}

func instanceRecord(in registry.ServiceInstance) record {
	return record{instance: copyInstance(in, maps.Clone(in.GetMetadata()))}
}

// Register is called by dubbo-go when everything is exported, once for each exported service, mostly with the same
// instance. The first call waits until this process is ready to be called.
func (d *serviceDiscovery) Register(in registry.ServiceInstance) error {
	rec := instanceRecord(in)
	gate.exports(in.GetServiceName())
	added, err := d.collect(rec)
	if err != nil || !added && d.isOpen() {
		return err
	}
	return d.publish([]string{rec.address()})
}

// Update replaces the metadata of an instance in place.
func (d *serviceDiscovery) Update(in registry.ServiceInstance) error {
	if _, err := d.collect(instanceRecord(in)); err != nil {
		return err
	}
	ctx, cancel := d.bounded()
	defer cancel()
	return d.settle(ctx)
}

// Unregister removes the instance; it is no error if it is not there.
func (d *serviceDiscovery) Unregister(in registry.ServiceInstance) error {
	return d.take(instanceRecord(in).key())
}

// GetDefaultPageSize returns dubbo-go's.
func (d *serviceDiscovery) GetDefaultPageSize() int { return registry.DefaultPageSize }

// GetServices returns the names of all applications.
func (d *serviceDiscovery) GetServices() *gxset.HashSet {
	sd, err := d.theDelegate()
	if err != nil {
		logger.Warnf("[Graceful][Registry] registry=%q cannot list its services: %v", d.Name(), err)
		return gxset.NewSet()
	}
	return sd.GetServices()
}

// GetInstances returns the instances of an application, without marks. One that is followed answers from what its
// listeners have.
func (d *serviceDiscovery) GetInstances(name string) []registry.ServiceInstance {
	d.appsMu.Lock()
	a := d.apps[name]
	d.appsMu.Unlock()
	if a != nil {
		if items, known := a.subscription.current(); known {
			return a.instances(items)
		}
	}
	d.mu.Lock()
	src := d.source(name)
	d.mu.Unlock()
	ctx, cancel := d.bounded()
	defer cancel()
	items, err := src.query(ctx)
	if err != nil {
		logger.Warnf("[Graceful][Registry] registry=%q cannot list application=%s: %v", d.Name(), name, err)
	}
	return newApp(name).instances(items)
}

func (d *serviceDiscovery) page(name string, offset, size int, keep func(registry.ServiceInstance) bool) gxpage.Pager {
	var all []any
	for _, in := range d.GetInstances(name) {
		if keep(in) {
			all = append(all, in)
		}
	}
	from := min(max(offset, 0), len(all))
	return gxpage.NewPage(offset, size, all[from:min(from+max(size, 0), len(all))], len(all))
}

// GetInstancesByPage returns a page of the instances of an application.
func (d *serviceDiscovery) GetInstancesByPage(name string, offset, size int) gxpage.Pager {
	return d.page(name, offset, size, func(registry.ServiceInstance) bool { return true })
}

// GetHealthyInstancesByPage returns a page of the instances that are, or are not, healthy.
func (d *serviceDiscovery) GetHealthyInstancesByPage(name string, offset, size int, healthy bool) gxpage.Pager {
	return d.page(name, offset, size, func(in registry.ServiceInstance) bool { return in.IsHealthy() == healthy })
}

// GetRequestInstances returns the first page of each application.
func (d *serviceDiscovery) GetRequestInstances(names []string, offset, size int) map[string]gxpage.Pager {
	out := make(map[string]gxpage.Pager, len(names))
	for _, name := range names {
		out[name] = d.GetInstancesByPage(name, offset, size)
	}
	return out
}

// AddListener has a listener get the lists of its applications. dubbo-go adds the same one again for each interface.
func (d *serviceDiscovery) AddListener(listener registry.ServiceInstancesChangedListener) error {
	for _, v := range listener.GetServiceNames().Values() {
		name, ok := v.(string)
		if !ok {
			continue
		}
		d.appsMu.Lock()
		a := d.apps[name]
		if a == nil {
			a = newApp(name)
			s := d.follow(name, func() *subscription {
				s := newSubscription(name, d.source(name), a.hand)
				s.services = a.services
				s.have = gate.need("application " + name)
				a.subscription = s
				return s
			})
			if s == nil {
				d.appsMu.Unlock()
				return fmt.Errorf("%s: %w", d.Name(), ErrStopped)
			}
			d.apps[name] = a
		}
		d.appsMu.Unlock()
		a.add(listener)
	}
	return nil
}

// source is where the lists of an application come from. The caller holds the node's lock.
func (d *serviceDiscovery) source(name string) source {
	if build := serviceSources[d.key.delegate]; build != nil {
		return build(d, name)
	}
	return &discoverySource{discovery: d, name: name}
}

// serviceSources has the registries whose lists we read ourselves. They are called with the node's lock held.
var serviceSources = map[string]func(d *serviceDiscovery, name string) source{
	constant.ZookeeperKey: func(d *serviceDiscovery, name string) source {
		return &zkSource{conn: d.zkLocked(), path: zkRoot(serviceLevel, d.url) + "/" + name, parse: zkServiceItem}
	},
}

// app is an application that is followed, and who listens to it.
type app struct {
	name         string
	subscription *subscription

	mu        sync.Mutex
	listeners []registry.ServiceInstancesChangedListener
	provides  map[string][]string // service keys by instance key, as dubbo-go found them in the metadata
	pause     time.Duration       // before the list is handed on again
}

// dubbo-go leaves an instance out when its metadata cannot be read, until the list changes by chance. It is given the list
// again after askMetadata, then twice as long each time, at most askMetadataMost: an instance that is dead costs it
// several seconds each time.
const (
	askMetadata     = 500 * time.Millisecond
	askMetadataMost = 20 * time.Second
)

func newApp(name string) *app { return &app{name: name, provides: make(map[string][]string)} }

// add takes a listener in and has it get the present list.
func (a *app) add(listener registry.ServiceInstancesChangedListener) {
	a.mu.Lock()
	if slices.Contains(a.listeners, listener) {
		a.mu.Unlock()
		return
	}
	a.listeners = append(a.listeners, listener)
	a.mu.Unlock()
	a.subscription.handAgain()
}

// hand gives the list to every listener, once each, however many interfaces it stands for.
func (a *app) hand(items []item) {
	a.mu.Lock()
	listeners := slices.Clone(a.listeners)
	a.mu.Unlock()
	incomplete := false
	for _, l := range listeners {
		given := a.instances(items)
		if err := l.OnEvent(registry.NewServiceInstancesChangedEvent(a.name, given)); err != nil {
			logger.Warnf("[Graceful][Registry] application=%s a listener refused the list: %v", a.name, err)
		}
		incomplete = incomplete || slices.ContainsFunc(given, withoutServices)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if incomplete {
		a.pause = min(max(2*a.pause, askMetadata), askMetadataMost)
		logger.Debugf("[Graceful][Registry] application=%s metadata of an instance could not be read, asking again in %s", a.name, a.pause)
		a.subscription.handAfter(a.pause)
	} else {
		a.pause = 0
	}
	for key := range a.provides {
		if !slices.ContainsFunc(items, func(it item) bool { return it.key == key }) {
			delete(a.provides, key)
		}
	}
}

// withoutServices: the instance exports something (its revision is not "0"), and dubbo-go does not know what.
func withoutServices(in registry.ServiceInstance) bool {
	revision := in.GetMetadata()[constant.ExportedServicesRevisionPropertyName]
	return revision != "" && revision != "0" && in.GetServiceMetadata() == nil
}

// services tells which services an instance provides, for the calls under way to it.
func (a *app) services(it item) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.provides[it.key]
}

// instances makes the instances that are handed out: fresh ones each time, since dubbo-go keeps and changes them.
func (a *app) instances(items []item) []registry.ServiceInstance {
	out := make([]registry.ServiceInstance, 0, len(items))
	for _, it := range items {
		d := copyInstance(it.instance, maps.Clone(it.instance.GetMetadata()))
		out = append(out, &listedInstance{DefaultServiceInstance: d, app: a, key: it.key, start: it.mark.Start})
	}
	return out
}

// listedInstance is an instance as it is handed out. dubbo-go puts the metadata of the instance's revision into it, which
// is where we learn what the instance provides.
type listedInstance struct {
	*registry.DefaultServiceInstance
	app      *app
	key      string
	start    string
	metadata atomic.Pointer[info.MetadataInfo]
}

// ToURLs gives each process URLs of its own. dubbo-go takes the parameters from the revision's metadata, the time stamp of
// whoever published that revision first included; a process that starts again at the same address would look like the
// old one, and its callers would keep the connection of the dead.
func (i *listedInstance) ToURLs(service *info.ServiceInfo) []*common.URL {
	urls := i.DefaultServiceInstance.ToURLs(service)
	if started, ok := wire.StartTime(i.start); ok {
		for _, u := range urls {
			u.SetParam(constant.TimestampKey, strconv.FormatInt(started.Unix(), 10))
		}
	}
	return urls
}

func (i *listedInstance) SetServiceMetadata(m *info.MetadataInfo) {
	if i.metadata.Swap(m) == m || m == nil {
		return
	}
	var keys []string
	for _, s := range m.GetServices() {
		keys = append(keys, flightKeys(s.ServiceKey, s.Name)...)
	}
	i.app.mu.Lock()
	defer i.app.mu.Unlock()
	i.app.provides[i.key] = keys
}

func (i *listedInstance) GetServiceMetadata() *info.MetadataInfo { return i.metadata.Load() }

// flightKeys are the names under which calls of a service are counted.
func flightKeys(serviceKey, name string) []string {
	if serviceKey == name {
		return []string{name}
	}
	return []string{serviceKey, name}
}

// discoverySource makes lists out of the delegate's own listener.
type discoverySource struct {
	discovery *serviceDiscovery
	name      string
}

func (s *discoverySource) follow(ctx context.Context, emit func([]item)) {
	c := &collector{name: s.name, emit: emit}
	defer c.close() // the delegate never lets go of a listener
	for pause := firstRetry; ctx.Err() == nil; pause = min(2*pause, maxRetry) {
		err := s.once(c)
		if err == nil {
			<-ctx.Done()
			return
		}
		logger.Warnf("[Graceful][Registry] registry=%q cannot follow application=%s, trying again in %s: %v", s.discovery.Name(), s.name, pause, err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (s *discoverySource) once(c *collector) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v", s.discovery.Name(), p)
		}
	}()
	sd, err := s.discovery.theDelegate()
	if err != nil {
		return err
	}
	if err = sd.AddListener(c); err != nil {
		return err
	}
	c.take(sd.GetInstances(s.name), true)
	return nil
}

func (s *discoverySource) query(ctx context.Context) ([]item, error) {
	type answer struct {
		items []item
		err   error
	}
	result := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if p := recover(); p != nil {
				a.err = fmt.Errorf("%s: %v", s.discovery.Name(), p)
			}
			result <- a
		}()
		sd, err := s.discovery.theDelegate()
		if err != nil {
			a.err = err
			return
		}
		a.items = instanceItems(sd.GetInstances(s.name))
	}()
	select {
	case a := <-result:
		return a.items, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func instanceItems(instances []registry.ServiceInstance) []item {
	items := make([]item, 0, len(instances))
	for _, in := range instances {
		if in != nil {
			items = append(items, serviceItem(in))
		}
	}
	return items
}
