// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

import (
	"github.com/nacos-group/nacos-sdk-go/v2/clients/naming_client"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/registry"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

// fakeNacos behaves as a server and its SDK do for ONE connection: one publication per name, one callback list per name.
type fakeNacos struct {
	naming_client.INamingClient

	pushing   sync.Mutex
	mu        sync.Mutex
	listed    map[string][]vo.RegisterInstanceParam
	calls     []string
	fail      error
	hang      chan struct{} // what the next registration waits for
	callbacks map[string]*vo.SubscribeParam
	healthy   bool
}

func newFakeNacos() *fakeNacos {
	return &fakeNacos{listed: map[string][]vo.RegisterInstanceParam{}, callbacks: map[string]*vo.SubscribeParam{}, healthy: true}
}

func (f *fakeNacos) publish(call, name string, list []vo.RegisterInstanceParam) (bool, error) {
	f.mu.Lock()
	hang := f.hang
	f.hang = nil
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	f.pushing.Lock() // in order
	defer f.pushing.Unlock()
	f.mu.Lock()
	f.calls = append(f.calls, call)
	if f.fail != nil {
		defer f.mu.Unlock()
		return false, f.fail
	}
	f.listed[name] = list
	sub, pushed := f.callbacks[name], f.instancesLocked(name)
	f.mu.Unlock()
	if sub != nil {
		sub.SubscribeCallback(pushed, nil)
	}
	return true, nil
}

func (f *fakeNacos) instancesLocked(name string) []model.Instance {
	var out []model.Instance
	for _, p := range f.listed[name] {
		out = append(out, model.Instance{Ip: p.Ip, Port: p.Port, Metadata: p.Metadata, Weight: p.Weight, Healthy: true, Enable: true})
	}
	return out
}

func (f *fakeNacos) RegisterInstance(p vo.RegisterInstanceParam) (bool, error) {
	return f.publish(fmt.Sprintf("register %d", p.Port), p.ServiceName, []vo.RegisterInstanceParam{p})
}

func (f *fakeNacos) BatchRegisterInstance(p vo.BatchRegisterInstanceParam) (bool, error) {
	var ports []string
	for _, in := range p.Instances {
		ports = append(ports, fmt.Sprint(in.Port))
	}
	return f.publish("batch "+strings.Join(ports, " "), p.ServiceName, p.Instances)
}

func (f *fakeNacos) DeregisterInstance(p vo.DeregisterInstanceParam) (bool, error) {
	return f.publish(fmt.Sprintf("deregister %d", p.Port), p.ServiceName, nil)
}

func (f *fakeNacos) Subscribe(p *vo.SubscribeParam) error {
	f.mu.Lock()
	list := f.instancesLocked(p.ServiceName)
	f.callbacks[p.ServiceName] = p
	f.calls = append(f.calls, "subscribe")
	fail := f.fail
	f.mu.Unlock()
	if fail == nil {
		p.SubscribeCallback(list, nil)
	}
	return fail
}

func (f *fakeNacos) Unsubscribe(p *vo.SubscribeParam) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.callbacks, p.ServiceName) // of everybody
	f.calls = append(f.calls, "unsubscribe")
	return f.fail
}

func (f *fakeNacos) ServerHealthy() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.healthy
}

func (f *fakeNacos) CloseClient() {}

func (f *fakeNacos) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeNacos) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return slices.DeleteFunc(calls, func(c string) bool { return strings.HasSuffix(c, "subscribe") })
}

// statuses is "port=STATUS ..." as it is listed under a name.
func (f *fakeNacos) statuses(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, in := range f.listed[name] {
		out = append(out, fmt.Sprintf("%d=%s", in.Port, in.Metadata[wire.KeyStatus]))
	}
	return strings.Join(out, " ")
}

// connect makes a connection to the fake; end closes it.
func (f *fakeNacos) connect() (c *nacosConn, end func()) {
	c = &nacosConn{
		url: common.NewURLWithOptions(), sdk: f,
		published: make(map[nacosService]*nacosPublication), followed: make(map[nacosService]*nacosFollow), listeners: make(map[int]func()),
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.work.Go(func() { c.watch(f) })
	return c, func() {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		c.stop()
		c.work.Wait()
	}
}

func nacosTestPublisher(c *nacosConn) *nacosPublisher {
	return &nacosPublisher{level: serviceLevel, url: common.NewURLWithOptions(), conn: c}
}

func backend(port int) record {
	return record{instance: &registry.DefaultServiceInstance{
		ID: fmt.Sprintf("127.0.0.1:%d", port), ServiceName: "backend", Host: "127.0.0.1", Port: port, Enable: true, Healthy: true,
	}}
}

func testMarks() (up, draining wire.Mark) {
	return wire.Mark{Status: wire.Up, Start: "1-a", Seq: 1}, wire.Mark{Status: wire.Draining, Start: "1-a", Seq: 2}
}

func TestNacosPublicationIsWrittenWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNacos()
		up, draining := testMarks()
		c, end := f.connect()
		defer end()
		a, b, ctx := nacosTestPublisher(c), nacosTestPublisher(c), t.Context()
		require.NoError(t, a.Put(ctx, []record{backend(1)}, up))
		require.NoError(t, a.Put(ctx, []record{backend(1), backend(1), backend(2)}, up), "the same address once")
		require.NoError(t, b.Put(ctx, []record{backend(2), backend(3)}, up))
		assert.Equal(t, []string{"register 1", "batch 1 2", "batch 1 2 3"}, f.called())
		require.NoError(t, a.Put(ctx, []record{backend(1)}, draining))
		assert.Equal(t, "1=DRAINING 2=UP 3=UP", f.statuses("backend"))
		synctest.Wait()
		require.NoError(t, a.Shows(ctx, []record{backend(1)}, draining))
		require.ErrorIs(t, a.Shows(ctx, []record{backend(1)}, up), errNotShown)
		require.ErrorIs(t, a.Shows(ctx, []record{backend(4)}, up), errNotShown)
		f.called()

		require.NoError(t, a.Remove(ctx, []record{backend(1)}))
		require.NoError(t, a.Remove(ctx, []record{backend(2)}))
		assert.Equal(t, "2=UP 3=UP", f.statuses("backend"), "the other publisher has 2 as well")
		require.NoError(t, b.Remove(ctx, []record{backend(2)}))
		require.NoError(t, b.Remove(ctx, []record{backend(3)}))
		require.NoError(t, b.Remove(ctx, []record{backend(3)}))
		assert.Equal(t, []string{"batch 2 3", "batch 2 3", "register 3", "deregister 3"}, f.called())
		synctest.Wait()
		assert.Empty(t, f.callbacks, "nothing published, nothing compared")
		require.NoError(t, a.Put(ctx, []record{backend(1)}, up))
		assert.Equal(t, []string{"register 1"}, f.called())
	})
}

func TestNacosFailedRemovalIsDoneAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNacos()
		c, end := f.connect()
		defer end()
		p, up := nacosTestPublisher(c), wire.Mark{Status: wire.Up}
		require.NoError(t, p.Put(t.Context(), []record{backend(1)}, up))
		f.set(func() { f.fail = errors.New("down") })
		require.ErrorContains(t, p.Remove(t.Context(), []record{backend(1)}), "down")
		f.set(func() { f.fail = nil })
		f.called()
		require.NoError(t, p.Remove(t.Context(), []record{backend(1)}))
		assert.Equal(t, []string{"deregister 1"}, f.called())
	})
}

// The SDK knows no context: a write whose caller has gone may arrive late, but never after a newer one.
func TestNacosLateWriteDoesNotOverwrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNacos()
		c, end := f.connect()
		defer end()
		up, draining := testMarks()
		p, hang := nacosTestPublisher(c), make(chan struct{})
		f.set(func() { f.hang = hang })
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Put(short, []record{backend(1)}, up), context.DeadlineExceeded)
		begun := make(chan error, 1)
		go func() { begun <- p.Put(t.Context(), []record{backend(1)}, draining) }()
		synctest.Wait()
		close(hang)
		require.NoError(t, <-begun)
		assert.Equal(t, "1=DRAINING", f.statuses("backend"))
		assert.Equal(t, []string{"register 1", "register 1"}, f.called())
	})
}

func TestNacosGuardPutsRightWhatTheSDKWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNacos()
		c, end := f.connect()
		defer end()
		up, draining := testMarks()
		p := nacosTestPublisher(c)
		require.NoError(t, p.Put(t.Context(), []record{backend(1)}, up))
		require.NoError(t, p.Put(t.Context(), []record{backend(1)}, draining))
		older, err := p.param(backend(1), up)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		f.called()
		_, err = f.RegisterInstance(older)
		require.NoError(t, err)
		time.Sleep(3 * nacosAudit)
		assert.Equal(t, "1=DRAINING", f.statuses("backend"))
		assert.Equal(t, []string{"register 1", "register 1"}, f.called(), "once each")
		_, err = f.DeregisterInstance(vo.DeregisterInstanceParam{ServiceName: "backend"})
		require.NoError(t, err)
		time.Sleep(3 * nacosAudit)
		assert.Equal(t, "1=DRAINING", f.statuses("backend"))
	})
}

func TestNacosThatWasAwayIsFollowedAndToldAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNacos()
		c, end := f.connect()
		defer end()
		up, _ := testMarks()
		p := nacosTestPublisher(c)
		var told atomic.Int32
		defer c.onReconnect(func() { told.Add(1) })()
		require.NoError(t, p.Put(t.Context(), []record{backend(1)}, up))
		wake := make(chan struct{}, 1)
		other, err := c.follow(t.Context(), nacosService{name: "other"}, wake)
		require.NoError(t, err)
		<-wake
		f.set(func() {
			f.healthy, f.listed, f.callbacks = false, map[string][]vo.RegisterInstanceParam{}, map[string]*vo.SubscribeParam{}
		})
		time.Sleep(5 * nacosWatch)
		assert.Zero(t, told.Load())
		f.set(func() {
			f.healthy = true
			f.listed["other"] = []vo.RegisterInstanceParam{{Ip: "127.0.0.1", Port: 9}}
		})
		time.Sleep(5 * nacosWatch)
		assert.EqualValues(t, 1, told.Load())
		assert.Equal(t, "1=UP", f.statuses("backend"), "published again, whatever the SDK and the decorator do")
		<-wake
		require.Len(t, other.list(), 1)
		assert.EqualValues(t, 9, other.list()[0].Port)
		other.leave(wake)
	})
}

func TestNacosUnsubscriptionHitsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeNacos()
		c, end := f.connect()
		defer end()
		s := nacosService{name: "backend"}
		first, second := make(chan struct{}, 1), make(chan struct{}, 1)
		a, err := c.follow(t.Context(), s, first)
		require.NoError(t, err)
		b, err := c.follow(t.Context(), s, second)
		require.NoError(t, err)
		assert.Same(t, a, b)
		a.leave(first)
		synctest.Wait()
		metadata := map[string]string{"id": "1"}
		_, err = f.RegisterInstance(vo.RegisterInstanceParam{ServiceName: "backend", Port: 1, Metadata: metadata})
		require.NoError(t, err)
		<-second
		delete(metadata, "id") // as dubbo-go does with the SDK's own map
		assert.Equal(t, "1", b.list()[0].Metadata["id"])
		b.leave(second)
		again, err := c.follow(t.Context(), s, first) // while the unsubscription may be on its way
		require.NoError(t, err)
		synctest.Wait()
		_, err = f.RegisterInstance(vo.RegisterInstanceParam{ServiceName: "backend", Port: 2})
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, again.list(), 1)
		assert.EqualValues(t, 2, again.list()[0].Port)
		again.leave(first)
		synctest.Wait()
		assert.Empty(t, f.callbacks)

		f.set(func() { f.fail = errors.New("down") })
		_, err = c.follow(t.Context(), s, first)
		require.ErrorContains(t, err, "down")
		assert.Empty(t, c.followed)
	})
}

func TestNacosParam(t *testing.T) {
	up, _ := testMarks()
	u, err := common.NewURL("tri://10.1.1.1:20000/shop.Backend?interface=shop.Backend&version=1.0&group=g&weight=0&empty=",
		common.WithMethods([]string{"Get"}))
	require.NoError(t, err)
	p := &nacosPublisher{level: interfaceLevel, url: common.NewURLWithOptions(common.WithParamsValue(constant.RegistryGroupKey, "G"))}
	param, err := p.param(record{url: u}, up)
	require.NoError(t, err)
	assert.Equal(t, "providers:shop.Backend:1.0:g", param.ServiceName)
	assert.Equal(t, "G", param.GroupName)
	assert.InDelta(t, 1.0, param.Weight, 0, "0 means the default")
	assert.True(t, param.Ephemeral && param.Healthy && param.Enable)
	assert.Equal(t, map[string]string{
		"interface": "shop.Backend", "version": "1.0", "group": "g", "weight": "0", "methods": "Get",
		constant.NacosCategoryKey: "providers", "protocol": "tri", "path": "/shop.Backend",
		wire.KeyStatus: "UP", wire.KeyStart: "1-a", wire.KeySeq: "1",
	}, param.Metadata)

	ref, err := common.NewURL("tri:///shop.Backend?interface=shop.Backend&version=1.0&group=g")
	require.NoError(t, err)
	in := model.Instance{Ip: param.Ip, Port: param.Port, Metadata: param.Metadata, Enable: true, Healthy: true}
	it, ok := nacosInterfaceItem(ref, in)
	require.True(t, ok)
	assert.Equal(t, up, it.mark)
	assert.Equal(t, []string{"10.1.1.1:20000"}, it.addresses)
	assert.Empty(t, it.url.GetParam(wire.KeyStatus, ""))
	for _, broken := range []func(*model.Instance){
		func(in *model.Instance) { in.Enable = false },
		func(in *model.Instance) { in.Healthy = false },
		func(in *model.Instance) { in.Metadata = map[string]string{"interface": "shop.Backend"} },
	} {
		bad := in
		broken(&bad)
		_, ok = nacosInterfaceItem(ref, bad)
		assert.False(t, ok)
	}

	p = &nacosPublisher{level: serviceLevel, url: common.NewURLWithOptions(common.WithParams(url.Values{"registry.weight": {"0"}}))}
	param, err = p.param(backend(1), up)
	require.NoError(t, err)
	assert.InDelta(t, 1.0, param.Weight, 0, "as dubbo-go registers it")
	assert.Equal(t, "127.0.0.1:1", param.Metadata["id"])
	metadata := param.Metadata
	back := nacosServiceItem("g", "backend", model.Instance{Ip: "127.0.0.1", Port: 1, Metadata: metadata})
	assert.Equal(t, "127.0.0.1:1", back.instance.GetID())
	assert.Equal(t, "127.0.0.1:1", metadata["id"], "the SDK's own map is left alone")
	_, err = p.param(record{instance: &registry.DefaultServiceInstance{Host: "h", Port: 70000}}, up)
	require.Error(t, err)
}

func TestNacosDirs(t *testing.T) {
	u := common.NewURLWithOptions(common.WithParamsValue(constant.NacosLogDirKey, "/var/log/mine"))
	nacosDirs(u)
	assert.Equal(t, "/var/log/mine", u.GetParam(constant.NacosLogDirKey, ""))
	assert.True(t, filepath.IsAbs(u.GetParam(constant.NacosCacheDirKey, "")))
}
