// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"reflect"
	"sync"
)

import (
	gxset "github.com/dubbogo/gost/container/set"
	"github.com/dubbogo/gost/gof/observer"

	"dubbo.apache.org/dubbo-go/v3/registry"
)

// collector is the listener that a delegate's discovery gets: it passes complete lists on.
type collector struct {
	name string
	emit func([]item)

	mu     sync.Mutex
	event  bool // an event came: it is younger than the first list
	closed bool
}

var _ registry.ServiceInstancesChangedListener = (*collector)(nil)

func (c *collector) OnEvent(e observer.Event) error {
	if changed, ok := e.(*registry.ServiceInstancesChangedEvent); ok && changed.ServiceName == c.name {
		c.take(changed.Instances, false)
	}
	return nil
}

// take passes a list on. The list of the start is older than any event.
func (c *collector) take(instances []registry.ServiceInstance, start bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || start && c.event {
		return
	}
	c.event = c.event || !start
	c.emit(instanceItems(instances))
}

func (c *collector) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

func (c *collector) AddListenerAndNotify(string, registry.NotifyListener) {}

func (c *collector) RemoveListener(string) {}

func (c *collector) GetServiceNames() *gxset.HashSet { return gxset.NewSet(c.name) }

func (c *collector) Accept(e observer.Event) bool {
	changed, ok := e.(*registry.ServiceInstancesChangedEvent)
	return ok && changed.ServiceName == c.name
}

func (c *collector) GetEventType() reflect.Type {
	return reflect.TypeFor[*registry.ServiceInstancesChangedEvent]()
}

func (c *collector) GetPriority() int { return -1 }
