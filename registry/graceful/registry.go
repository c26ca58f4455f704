// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/remoting"
)

// firstListWait is how long a new reference waits for its first list of providers.
const firstListWait = time.Second

// interfaceRegistry is the registry of interface level. dubbo-go calls RegisterService of every registry that has it once
// everything is exported: that is what opens the gate here.
type interfaceRegistry struct {
	*node
	url *common.URL // as dubbo-go gave it

	delegateMu sync.Mutex
	delegate   registry.Registry
}

var (
	_ registry.Registry                 = (*interfaceRegistry)(nil)
	_ registry.ServiceDiscoveryRegistry = (*interfaceRegistry)(nil)
)

func newInterfaceRegistry(u *common.URL) (registry.Registry, error) {
	r, err := nodeFor(interfaceLevel, u, func(n *node) *interfaceRegistry {
		r := &interfaceRegistry{node: n, url: u}
		n.sourceOf = func(rec record) source { return r.source(rec.url) }
		return r
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// theDelegate builds the decorated registry at its first use.
func (r *interfaceRegistry) theDelegate() (_ registry.Registry, err error) {
	r.delegateMu.Lock()
	defer r.delegateMu.Unlock()
	if r.isClosed() {
		return nil, fmt.Errorf("%s: %w", r.Name(), ErrStopped)
	}
	if r.delegate != nil {
		return r.delegate, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v", r.Name(), p)
		}
	}()
	d, err := extension.GetRegistry(r.key.delegate, r.node.url.Clone())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Name(), err)
	}
	if !r.onClose(d.Destroy) {
		d.Destroy()
		return nil, fmt.Errorf("%s: %w", r.Name(), ErrStopped)
	}
	r.delegate = d
	return d, nil
}

// GetURL returns the registry's URL.
func (r *interfaceRegistry) GetURL() *common.URL { return r.url }

// IsAvailable is true until the registry is destroyed: one that cannot be reached at the moment comes back.
func (r *interfaceRegistry) IsAvailable() bool { return !r.isClosed() }

// Destroy releases the connections. Records that are still there are left to the registry's expiry.
func (r *interfaceRegistry) Destroy() {
	ctx, cancel := r.bounded()
	defer cancel()
	if err := r.Close(ctx); err != nil {
		logClose(r.Name(), err)
	}
}

func isProvider(u *common.URL) bool {
	if side := u.GetParam(constant.SideKey, ""); side != "" {
		return side == constant.SideProvider
	}
	return u.GetParam(constant.RegistryRoleKey, "") == strconv.Itoa(common.PROVIDER)
}

// Register collects a provider record until everything is exported, and publishes later ones at once. A consumer record
// goes to the delegate.
func (r *interfaceRegistry) Register(u *common.URL) error {
	if !isProvider(u) {
		d, err := r.theDelegate()
		if err != nil {
			return err
		}
		return d.Register(u)
	}
	rec := record{url: u.Clone()}
	common.HandleRegisterIPAndPort(rec.url)
	gate.exports(rec.url.ServiceKey())
	added, err := r.collect(rec)
	if err != nil || !added || !r.isOpen() {
		return err
	}
	return r.publish([]string{rec.address()})
}

// UnRegister removes the record; it is no error if there is none.
func (r *interfaceRegistry) UnRegister(u *common.URL) error {
	if !isProvider(u) {
		if r.isClosed() {
			return nil // went with the connection
		}
		d, err := r.theDelegate()
		if err != nil {
			return err
		}
		return d.UnRegister(u)
	}
	rec := record{url: u.Clone()}
	common.HandleRegisterIPAndPort(rec.url)
	return r.take(rec.key())
}

// RegisterService is called by dubbo-go when everything is exported, once for each Serve.
func (r *interfaceRegistry) RegisterService() error {
	return r.publish(r.addresses())
}

// UnRegisterService removes every provider record.
func (r *interfaceRegistry) UnRegisterService() error {
	ctx, cancel := r.bounded()
	defer cancel()
	return r.Withdraw(ctx)
}

// subscribed is the key of a subscription.
type subscribed struct {
	service  string
	listener registry.NotifyListener
}

func subscriptionKey(u *common.URL, listener registry.NotifyListener) subscribed {
	return subscribed{service: u.Protocol + "://" + u.ServiceKey(), listener: listener}
}

// isOverride: a provider's own subscription. dubbo-go has every provider watch the providers of its own service for
// overrides that are never there, and has that subscription share an event channel with a reference to the same service.
func isOverride(u *common.URL) bool {
	return u.Protocol == constant.ProviderProtocol || !strings.Contains(u.GetParam(constant.CategoryKey, constant.DefaultCategory), constant.DefaultCategory)
}

// Subscribe follows the providers of a reference until UnSubscribe, and returns at once.
func (r *interfaceRegistry) Subscribe(u *common.URL, listener registry.NotifyListener) error {
	if isOverride(u) {
		return nil
	}
	if u.Service() == constant.AnyValue {
		d, err := r.theDelegate()
		if err != nil {
			return err
		}
		return d.Subscribe(u, listener)
	}
	if r.subscribe(u, listener) == nil {
		return fmt.Errorf("%s: %w", r.Name(), ErrStopped)
	}
	return nil
}

func (r *interfaceRegistry) subscribe(u *common.URL, listener registry.NotifyListener) *subscription {
	return r.follow(subscriptionKey(u, listener), func() *subscription {
		ref := u.Clone()
		s := newSubscription(ref.ServiceKey(), r.source(ref), func(items []item) {
			events := make([]*registry.ServiceEvent, 0, len(items))
			for _, it := range items {
				events = append(events, &registry.ServiceEvent{Action: remoting.EventTypeAdd, Service: it.url})
			}
			listener.NotifyAll(events, func() {})
		})
		s.have = gate.need(ref.ServiceKey())
		return s
	})
}

// UnSubscribe ends a subscription.
func (r *interfaceRegistry) UnSubscribe(u *common.URL, listener registry.NotifyListener) error {
	if isOverride(u) {
		return nil
	}
	if u.Service() == constant.AnyValue {
		d, err := r.theDelegate()
		if err != nil {
			return err
		}
		return d.UnSubscribe(u, listener)
	}
	r.leave(subscriptionKey(u, listener))
	gate.forget(u.ServiceKey())
	return nil
}

// LoadSubscribeInstances is asked before Subscribe: it starts the subscription, and waits a moment for the first list.
func (r *interfaceRegistry) LoadSubscribeInstances(u *common.URL, listener registry.NotifyListener) error {
	if isOverride(u) || u.Service() == constant.AnyValue {
		return nil
	}
	s := r.subscribe(u, listener)
	if s == nil {
		return fmt.Errorf("%s: %w", r.Name(), ErrStopped)
	}
	r.firstList(s, firstListWait)
	return nil
}

// source is where the lists of a reference come from.
func (r *interfaceRegistry) source(ref *common.URL) source {
	if build := interfaceSources[r.key.delegate]; build != nil {
		return build(r, ref)
	}
	return &delegateSource{registry: r, ref: ref}
}

// interfaceSources has the registries whose lists we read ourselves. They are called with the node's lock held.
var interfaceSources = map[string]func(r *interfaceRegistry, ref *common.URL) source{
	constant.ZookeeperKey: func(r *interfaceRegistry, ref *common.URL) source {
		return &zkSource{
			conn: r.zkLocked(), path: zkProviders(zkRoot(interfaceLevel, r.node.url), ref),
			parse: func(n zkNode) (item, bool) { return zkInterfaceItem(ref, n) },
		}
	},
}
