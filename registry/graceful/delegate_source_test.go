// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

import (
	gxset "github.com/dubbogo/gost/container/set"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/remoting"
)

// fakeDelegate is a registry of dubbo-go as they are: its subscription ends when the connection blinks, and what happened
// meanwhile is never told.
type fakeDelegate struct {
	registry.Registry
	registry.ServiceDiscovery

	mu        sync.Mutex
	providers []string
	listeners map[registry.NotifyListener]chan struct{}
	loads     int
	loadErr   error
	consumers []*common.URL
	apps      []registry.ServiceInstance
	listener  registry.ServiceInstancesChangedListener
	addErr    error
	destroyed int
}

const fakeName = "fake"

var theFake atomic.Pointer[fakeDelegate]

func init() {
	publishers[fakeName] = func(level, *common.URL) publisher { return newFakePublisher() }
	extension.SetRegistry(fakeName, func(*common.URL) (registry.Registry, error) {
		if fake := theFake.Load(); fake != nil {
			return fake, nil
		}
		panic("the server is down") // as some of them do
	})
	extension.SetServiceDiscovery(fakeName, func(*common.URL) (registry.ServiceDiscovery, error) {
		return fakeDiscovery{theFake.Load()}, nil
	})
}

func (f *fakeDelegate) event(action remoting.EventType, s string) *registry.ServiceEvent {
	u, err := common.NewURL(s)
	if err != nil {
		panic(err)
	}
	return &registry.ServiceEvent{Action: action, Service: u}
}

func (f *fakeDelegate) LoadSubscribeInstances(_ *common.URL, l registry.NotifyListener) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loads++
	if f.loadErr != nil {
		return f.loadErr
	}
	for _, p := range f.providers {
		l.Notify(f.event(remoting.EventTypeAdd, p))
	}
	return nil
}

func (f *fakeDelegate) Subscribe(_ *common.URL, l registry.NotifyListener) error {
	end := make(chan struct{})
	f.mu.Lock()
	f.listeners[l] = end
	f.mu.Unlock()
	<-end
	return nil
}

func (f *fakeDelegate) UnSubscribe(_ *common.URL, l registry.NotifyListener) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if end, ok := f.listeners[l]; ok {
		close(end)
		delete(f.listeners, l)
	}
	return nil
}

func (f *fakeDelegate) Register(u *common.URL) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.consumers = append(f.consumers, u)
	return nil
}

func (f *fakeDelegate) UnRegister(*common.URL) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.consumers = nil
	return nil
}

func (f *fakeDelegate) Destroy() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.destroyed++
}

// blink ends every subscription.
func (f *fakeDelegate) blink(providers ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.providers = providers
	for l, end := range f.listeners {
		close(end)
		delete(f.listeners, l)
	}
}

type fakeDiscovery struct{ *fakeDelegate }

func (f fakeDiscovery) Destroy() error { f.fakeDelegate.Destroy(); return nil }

func (f fakeDiscovery) Register(registry.ServiceInstance) error { panic("provider records are ours") }

func (f fakeDiscovery) GetServices() *gxset.HashSet { return gxset.NewSet("app") }

func (f fakeDiscovery) GetInstances(string) []registry.ServiceInstance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.apps
}

func (f fakeDiscovery) AddListener(l registry.ServiceInstancesChangedListener) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.addErr != nil {
		return f.addErr
	}
	f.listener = l
	return nil
}

func withFake(t *testing.T, f func(t *testing.T, fake *fakeDelegate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeDelegate{listeners: make(map[registry.NotifyListener]chan struct{})}
		theFake.Store(fake)
		defer theFake.Store(nil)
		processGate := gate
		gate = newGate() // channels belong to the bubble
		dialProvider = func(context.Context, string) bool { return true }
		defer func() { gate, dialProvider = processGate, accepts }()
		f(t, fake)
	})
}

const (
	fakeA = "tri://10.0.0.1:1/shop.A?interface=shop.A&timestamp=1"
	fakeB = "tri://10.0.0.1:2/shop.A?interface=shop.A&timestamp=1"
)

func TestDelegateSubscriptionIsRenewedAndCatchesUp(t *testing.T) {
	withFake(t, func(t *testing.T, fake *fakeDelegate) {
		fake.providers = []string{fakeA}
		reg, err := extension.GetRegistry(protocol, registryOf(t, protocol, "h:1", map[string]string{delegateKey: fakeName}))
		require.NoError(t, err)
		ref := mustURL(t, "tri:///shop.A?interface=shop.A&side=consumer")
		got := newLists()
		require.NoError(t, reg.LoadSubscribeInstances(ref, got))
		require.NoError(t, reg.Subscribe(ref, got))
		synctest.Wait()
		assert.Equal(t, []string{"10.0.0.1:1?"}, got.last())
		assert.Len(t, fake.listeners, 1, "the same subscription")

		// dubbo-go 3.3.2: one blink, and from then on nobody is told of anything.
		fake.blink(fakeB)
		time.Sleep(firstRetry + holdMin)
		synctest.Wait()
		assert.Equal(t, []string{"10.0.0.1:2?"}, got.last(), "what happened meanwhile")
		for l := range fake.listeners {
			l.Notify(fake.event(remoting.EventTypeAdd, fakeA))
		}
		synctest.Wait()
		assert.Len(t, got.last(), 2, "and it goes on")

		// A server that does not answer is asked until it does, and proves nothing.
		fake.mu.Lock()
		fake.loadErr = errors.New("down")
		fake.mu.Unlock()
		fake.blink()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, got.last(), 2)

		require.NoError(t, reg.UnSubscribe(ref, got))
		reg.Destroy()
		assert.Equal(t, 1, fake.destroyed)
		assert.Empty(t, fake.listeners)
	})
}

func TestDelegateThatIsDownAtFirst(t *testing.T) {
	withFake(t, func(t *testing.T, fake *fakeDelegate) {
		theFake.Store(nil)
		reg, err := extension.GetRegistry(protocol, registryOf(t, protocol, "h:2", map[string]string{delegateKey: fakeName}))
		require.NoError(t, err)
		defer reg.Destroy()
		ref := mustURL(t, "tri:///shop.A?interface=shop.A&side=consumer&registry.role=0")
		got := newLists()
		began := time.Now()
		require.NoError(t, reg.LoadSubscribeInstances(ref, got))
		assert.LessOrEqual(t, time.Since(began), firstListWait)
		require.Error(t, reg.Register(ref), "a consumer record needs the server; dubbo-go goes on without")
		fake.providers = []string{fakeA}
		theFake.Store(fake)
		time.Sleep(maxRetry)
		synctest.Wait()
		assert.Equal(t, []string{"10.0.0.1:1?"}, got.last())
		require.NoError(t, reg.Register(ref))
		assert.Len(t, fake.consumers, 1, "at once, whatever the gate")
		require.NoError(t, reg.UnRegister(ref))
		assert.Empty(t, fake.consumers)
	})
}

func TestProvidersOverrideSubscriptionIsNotForwarded(t *testing.T) {
	withFake(t, func(t *testing.T, fake *fakeDelegate) {
		reg, err := extension.GetRegistry(protocol, registryOf(t, protocol, "h:3", map[string]string{delegateKey: fakeName}))
		require.NoError(t, err)
		defer reg.Destroy()
		u := mustURL(t, "provider://10.0.0.1:1/shop.A?interface=shop.A&category=configurators&check=false&side=provider")
		require.NoError(t, reg.Subscribe(u, newLists()))
		require.NoError(t, reg.UnSubscribe(u, newLists()))
		synctest.Wait()
		assert.Zero(t, fake.loads)
	})
}

func TestDelegateDiscovery(t *testing.T) {
	withFake(t, func(t *testing.T, fake *fakeDelegate) {
		sd, err := extension.GetServiceDiscovery(registryOf(t, protocol, "h:4", map[string]string{delegateKey: fakeName}))
		require.NoError(t, err)
		one, two := fakeRecord(1).instance, fakeRecord(2).instance
		fake.apps = []registry.ServiceInstance{one, nil}
		assert.Len(t, sd.GetInstances("app"), 1, "what a delegate could not read is left out")
		assert.True(t, sd.GetServices().Contains("app"))
		fake.addErr = errors.New("down")
		got := newApps("app")
		require.NoError(t, sd.AddListener(got))
		synctest.Wait()
		assert.Empty(t, got.lists)
		fake.mu.Lock()
		fake.addErr = nil
		fake.mu.Unlock()
		time.Sleep(maxRetry)
		synctest.Wait()
		require.Len(t, <-got.lists, 1)
		require.NoError(t, fake.listener.OnEvent(registry.NewServiceInstancesChangedEvent("app", []registry.ServiceInstance{one, two})))
		synctest.Wait()
		require.Len(t, <-got.lists, 2)
		assert.Len(t, sd.GetInstances("app"), 2, "what its listeners have")
		assert.Equal(t, 1, len(sd.GetInstancesByPage("app", 1, 10).GetData()))
		assert.Equal(t, 0, len(sd.GetInstancesByPage("app", 7, 10).GetData()))
		assert.Equal(t, 2, len(sd.GetRequestInstances([]string{"app"}, 0, 10)["app"].GetData()))
		assert.Equal(t, 2, len(sd.GetHealthyInstancesByPage("app", 0, 10, false).GetData()))
		assert.Equal(t, registry.DefaultPageSize, sd.GetDefaultPageSize())

		// dubbo-go's own ZooKeeper discovery: one instance that vanishes while it reads makes an empty list.
		fake.mu.Lock()
		fake.apps = []registry.ServiceInstance{two}
		fake.mu.Unlock()
		require.NoError(t, fake.listener.OnEvent(registry.NewServiceInstancesChangedEvent("app", nil)))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, <-got.lists, 1, "the empty list was never handed on")
		assert.Empty(t, got.lists)
		require.NoError(t, sd.Destroy())
		assert.Equal(t, 1, fake.destroyed)
		require.ErrorIs(t, sd.AddListener(newApps("other")), ErrStopped)
	})
}

func TestMetadataIsAskedForAgain(t *testing.T) {
	withFake(t, func(t *testing.T, fake *fakeDelegate) {
		sd, err := extension.GetServiceDiscovery(registryOf(t, protocol, "h:5", map[string]string{delegateKey: fakeName}))
		require.NoError(t, err)
		in := fakeRecord(1).instance
		in.GetMetadata()["dubbo.metadata.revision"] = "abc"
		fake.apps = []registry.ServiceInstance{in}
		got := newApps("app")
		require.NoError(t, sd.AddListener(got))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Greater(t, len(got.lists), 3, "as long as nobody knows what the instance provides")
		assert.Less(t, len(got.lists), 8, "but not all the time")
		require.NoError(t, sd.Destroy())
	})
}
