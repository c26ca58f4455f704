// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package graceful

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

import (
	"github.com/dubbogo/go-zookeeper/zk"

	"github.com/dubbogo/gost/gof/observer"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/metadata/info"
	"dubbo.apache.org/dubbo-go/v3/registry"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/settings"
	"github.com/dubbogo/graceful/internal/testserver"
	"github.com/dubbogo/graceful/internal/wire"
)

// registryURL is what dubbo-go hands to a registry.
func registryURL(t *testing.T, delegate, addr, timeout string) *common.URL {
	t.Helper()
	u, err := common.NewURL("graceful://"+addr,
		common.WithParams(url.Values{
			constant.RegistryKey: {protocol}, delegateKey: {delegate}, constant.RegistryTimeoutKey: {timeout},
			constant.RegistryIdKey: {"main"}, constant.RegistryGroupKey: {""}, constant.RegistryTTLKey: {"15m"},
		}), common.WithLocation(addr))
	require.NoError(t, err)
	return u
}

func providerURL(t *testing.T, addr, service string) *common.URL {
	t.Helper()
	u, err := common.NewURL("tri://"+addr+"/"+service, common.WithParams(url.Values{
		constant.InterfaceKey: {service}, constant.SideKey: {constant.SideProvider}, constant.TimestampKey: {fmt.Sprint(time.Now().Unix())},
		constant.RegistryRoleKey: {"3"}, constant.ApplicationKey: {"backend"}, constant.LoadbalanceKey: {"random"}, "empty": {""},
		constant.ReleaseKey: {"dubbo-golang-3.3.2"},
	}), common.WithMethods([]string{"Get", "Put"}))
	require.NoError(t, err)
	return u
}

func referenceURL(t *testing.T, service string) *common.URL {
	t.Helper()
	u, err := common.NewURL("tri:///"+service, common.WithParams(url.Values{
		constant.InterfaceKey: {service}, constant.SideKey: {constant.SideConsumer}, constant.RegistryRoleKey: {"0"},
	}))
	require.NoError(t, err)
	return u
}

// listen opens a port that accepts, as a started server does.
func listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// onlooker is a session of its own that reads what is really there.
func onlooker(t *testing.T, addr string) *zk.Conn {
	t.Helper()
	u, err := common.NewURL("zookeeper://"+addr, common.WithParamsValue(constant.RegistryTimeoutKey, "40s"))
	require.NoError(t, err)
	c := openZk(u)
	t.Cleanup(c.release)
	conn, err := c.ready(testContext(t))
	require.NoError(t, err)
	return conn
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testWait)
	t.Cleanup(cancel)
	return ctx
}

func newTestRegistry(t *testing.T, u *common.URL) *interfaceRegistry {
	t.Helper()
	// One object per key is what a process has; two processes in one test have two.
	nodes.Lock()
	clear(nodes.m)
	nodes.Unlock()
	reg, err := newInterfaceRegistry(u)
	require.NoError(t, err)
	r := reg.(*interfaceRegistry)
	t.Cleanup(func() { r.Destroy() })
	return r
}

func TestZooKeeperInterfaceLevel(t *testing.T) {
	server := testserver.ZooKeeper(t)
	ctx := testContext(t)
	look := onlooker(t, server.Addr)
	const service = "shop.Backend"
	dir := "/dubbo/" + service + "/providers"
	addr := listen(t)

	provider := newTestRegistry(t, registryURL(t, constant.ZookeeperKey, server.Addr, "5s"))
	require.NoError(t, provider.Register(providerURL(t, addr, service)))
	_, _, err := look.Get(dir)
	require.ErrorIs(t, err, zk.ErrNoNode, "a record was published before everything was exported")
	require.NoError(t, provider.RegisterService())

	children, _, err := look.Children(dir)
	require.NoError(t, err)
	require.Len(t, children, 1)
	data, before, err := look.Get(dir + "/" + children[0])
	require.NoError(t, err)
	up, err := wire.ParseMark(string(data))
	require.NoError(t, err)
	assert.Equal(t, wire.Up, up.Status)
	assert.Equal(t, self.Current().Start, up.Start)
	read, err := common.NewURL(children[0])
	require.NoError(t, err)
	assert.Equal(t, addr, read.Location)
	assert.Equal(t, "Get,Put", read.GetParam(constant.MethodsKey, ""))
	assert.NotContains(t, children[0], "empty")

	consumer := newTestRegistry(t, registryURL(t, constant.ZookeeperKey, server.Addr, "5s"))
	ref := referenceURL(t, service)
	got := newLists()
	require.NoError(t, consumer.LoadSubscribeInstances(ref, got))
	require.NoError(t, consumer.Subscribe(ref, got))
	assert.Equal(t, []string{addr + "?"}, got.last(), "the first list must be there when LoadSubscribeInstances returns, without marks")
	entry := instance.Default().Lookup(addr)
	require.NotNil(t, entry)
	assert.Equal(t, self.Current().Start, entry.StartID())

	draining := wire.Mark{Status: wire.Draining, Start: up.Start, Seq: up.Seq + 1}
	changed := make(chan struct{}, 8)
	defer instance.Default().OnChange(func(a string) {
		if a == addr {
			changed <- struct{}{}
		}
	})()
	require.NoError(t, provider.Announce(ctx, draining))
	require.NoError(t, provider.Confirmed(ctx, draining))
	data, after, err := look.Get(dir + "/" + children[0])
	require.NoError(t, err)
	assert.Equal(t, draining.Encode(), string(data))
	assert.Equal(t, before.Czxid, after.Czxid, "the node must be the same one")
	awaitStatus(t, changed, entry, wire.Draining)
	assert.Equal(t, 1, got.count(), "a mark must not rebuild an invoker")

	back := wire.Mark{Status: wire.Up, Start: up.Start, Seq: up.Seq + 2}
	require.NoError(t, provider.Announce(ctx, back))
	awaitStatus(t, changed, entry, wire.Up)

	// An empty list is believed at once because it was announced: the listener still accepts connections.
	last := wire.Mark{Status: wire.Draining, Start: up.Start, Seq: up.Seq + 3}
	require.NoError(t, provider.Announce(ctx, last))
	awaitStatus(t, changed, entry, wire.Draining)
	require.NoError(t, provider.Withdraw(ctx))
	require.NoError(t, provider.Withdraw(ctx), "idempotent")
	children, _, err = look.Children(dir)
	require.NoError(t, err)
	assert.Empty(t, children)
	require.NoError(t, provider.UnRegister(providerURL(t, addr, service)), "what dubbo-go does after us finds nothing to do")
	got.await(t, "empty after the withdrawal", func(l []string) bool { return len(l) == 0 })
}

func awaitStatus(t *testing.T, changed <-chan struct{}, e *instance.Entry, want wire.Status) {
	t.Helper()
	deadline := time.After(testWait)
	for {
		if status, _, _ := e.Status(); status == want {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			status, _, _ := e.Status()
			require.FailNow(t, "status never came", "want %s, have %s", want, status)
		}
	}
}

func testInstance(addr string) *registry.DefaultServiceInstance {
	host, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return &registry.DefaultServiceInstance{
		ID: addr, ServiceName: "backend", Host: host, Port: n, Enable: true, Healthy: true,
		Metadata: map[string]string{
			constant.ExportedServicesRevisionPropertyName: "0", // nothing exported: the listener asks for no metadata
			constant.ServiceInstanceEndpoints:             fmt.Sprintf(`[{"port":%d,"protocol":"tri"}]`, n),
		},
	}
}

func newTestDiscovery(t *testing.T, u *common.URL) *serviceDiscovery {
	t.Helper()
	nodes.Lock()
	clear(nodes.m)
	nodes.Unlock()
	sd, err := newServiceDiscovery(u)
	require.NoError(t, err)
	t.Cleanup(func() {
		// Within the registry's timeout, 1 s in some tests: too short for a client that is just connecting again.
		if err := sd.Destroy(); err != nil {
			t.Logf("destroy: %v", err)
		}
	})
	return sd.(*serviceDiscovery)
}

func TestZooKeeperServiceLevel(t *testing.T) {
	server := testserver.ZooKeeper(t)
	ctx := testContext(t)
	look := onlooker(t, server.Addr)
	addr := listen(t)
	path := "/services/backend/" + addr

	provider := newTestDiscovery(t, registryURL(t, constant.ZookeeperKey, server.Addr, "5s"))
	in := testInstance(addr)
	require.NoError(t, provider.Register(in))
	require.NoError(t, provider.Register(in), "dubbo-go registers once for each service")
	assert.NotContains(t, in.Metadata, wire.KeyStatus, "dubbo-go's own instance must not be changed")
	data, before, err := look.Get(path)
	require.NoError(t, err)
	up := self.Current().Mark()
	read, err := parseCurator(data)
	require.NoError(t, err)
	assert.Equal(t, "UP", read.Metadata[wire.KeyStatus])
	assert.Equal(t, up.Start, read.Metadata[wire.KeyStart])

	consumer := newTestDiscovery(t, registryURL(t, constant.ZookeeperKey, server.Addr, "5s"))
	instances := consumer.GetInstances("backend")
	require.Len(t, instances, 1)
	assert.NotContains(t, instances[0].GetMetadata(), wire.KeyStart)
	got := newApps("backend")
	require.NoError(t, consumer.AddListener(got))
	require.NoError(t, consumer.AddListener(got), "dubbo-go adds it again for each interface")
	got.await(t, "one instance", func(l []item) bool { return len(l) == 1 })
	entry := instance.Default().Lookup(addr)
	require.NotNil(t, entry)
	assert.Equal(t, up.Start, entry.StartID())

	changed := make(chan struct{}, 8)
	defer instance.Default().OnChange(func(a string) {
		if a == addr {
			changed <- struct{}{}
		}
	})()
	draining := wire.Mark{Status: wire.Draining, Start: up.Start, Seq: up.Seq + 1}
	require.NoError(t, provider.Announce(ctx, draining))
	require.NoError(t, provider.Confirmed(ctx, draining))
	_, after, err := look.Get(path)
	require.NoError(t, err)
	assert.Equal(t, before.Czxid, after.Czxid)
	awaitStatus(t, changed, entry, wire.Draining)
	assert.Empty(t, got.lists, "a mark must not be handed on")

	// A revision that changes is dubbo-go's own business and goes through.
	in.Metadata["x"] = "y"
	require.NoError(t, provider.Update(in))
	got.await(t, "the new metadata", func(l []item) bool { return len(l) == 1 && l[0].instance.GetMetadata()["x"] == "y" })
	data, _, err = look.Get(path)
	require.NoError(t, err)
	read, err = parseCurator(data)
	require.NoError(t, err)
	assert.Equal(t, "DRAINING", read.Metadata[wire.KeyStatus], "an update must not take the mark back")

	require.NoError(t, provider.Withdraw(ctx))
	exists, _, err := look.Exists(path)
	require.NoError(t, err)
	assert.False(t, exists)
	require.NoError(t, provider.Unregister(in))
	got.await(t, "empty", func(l []item) bool { return len(l) == 0 })
	assert.Empty(t, consumer.GetInstances("backend"))
}

// A subscriber that reads like everybody else: it notes every list of children, and whether one was ever without, or twice
// with, the instance between the marks.
type plainSubscriber struct {
	stop  context.CancelFunc
	done  chan struct{}
	mu    sync.Mutex
	lists [][]string
}

func newPlainSubscriber(t *testing.T, conn *zk.Conn, dir string) *plainSubscriber {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &plainSubscriber{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for ctx.Err() == nil {
			children, _, w, err := conn.ChildrenW(dir)
			if err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Millisecond):
				}
				continue
			}
			p.mu.Lock()
			p.lists = append(p.lists, children)
			p.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-w.EvtCh:
			}
		}
	}()
	t.Cleanup(p.end)
	return p
}

func (p *plainSubscriber) end() {
	p.stop()
	<-p.done
}

func (p *plainSubscriber) seen() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([][]string(nil), p.lists...)
}

// eventually waits for something outside of the process.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, testWait, 10*time.Millisecond, what)
}

func TestZooKeeperFrozenServerKeepsRecordsAndSubscriptions(t *testing.T) {
	server := testserver.ZooKeeper(t)
	ctx := testContext(t)
	const service = "shop.Frozen"
	dir := "/dubbo/" + service + "/providers"
	addr, app := listen(t), listen(t)
	// A session of 6 s outlives the freeze; the connection, given up after 4 s without an answer, does not.
	u := registryURL(t, constant.ZookeeperKey, server.Addr, "6s")

	provider := newTestRegistry(t, u)
	require.NoError(t, provider.Register(providerURL(t, addr, service)))
	require.NoError(t, provider.RegisterService())
	discovery := newTestDiscovery(t, u)
	require.NoError(t, discovery.Register(testInstance(app)))

	consumer := newTestRegistry(t, u)
	got := newLists()
	ref := referenceURL(t, service)
	require.NoError(t, consumer.LoadSubscribeInstances(ref, got))
	follower := newTestDiscovery(t, u)
	gotApps := newApps("backend")
	require.NoError(t, follower.AddListener(gotApps))
	gotApps.await(t, "one instance", func(l []item) bool { return len(l) == 1 })

	look := onlooker(t, server.Addr)
	plain := newPlainSubscriber(t, look, dir)
	children, _, err := look.Children(dir)
	require.NoError(t, err)
	node, appNode := dir+"/"+children[0], "/services/backend/"+app
	_, before, err := look.Get(node)
	require.NoError(t, err)
	_, appBefore, err := look.Get(appNode)
	require.NoError(t, err)

	recoveries := make(chan string, 64)
	hookFor(t, func(id string) { recoveries <- id })

	require.NoError(t, server.Freeze())
	time.Sleep(5 * time.Second) // the freeze itself
	// A status that changes while nobody answers is written as soon as somebody does.
	draining := wire.Mark{Status: wire.Draining, Start: self.Current().Start, Seq: self.Current().Seq + 1}
	announced := make(chan error, 2)
	go func() { announced <- provider.Announce(ctx, draining) }()
	go func() { announced <- discovery.Announce(ctx, draining) }()
	require.NoError(t, server.Thaw())
	require.NoError(t, <-announced)
	require.NoError(t, <-announced)
	assert.Equal(t, "main", <-recoveries)

	data, after, err := look.Get(node)
	require.NoError(t, err)
	assert.Equal(t, before.Czxid, after.Czxid, "the node must survive")
	assert.Equal(t, draining.Encode(), string(data))
	_, appAfter, err := look.Get(appNode)
	require.NoError(t, err)
	assert.Equal(t, appBefore.Czxid, appAfter.Czxid)

	// The subscriptions live: another provider, on each level, is seen.
	second, secondApp := listen(t), listen(t)
	other := newTestRegistry(t, u)
	require.NoError(t, other.Register(providerURL(t, second, service)))
	require.NoError(t, other.RegisterService())
	otherApp := newTestDiscovery(t, u)
	require.NoError(t, otherApp.Register(testInstance(secondApp)))
	got.await(t, "two providers", func(l []string) bool { return len(l) == 2 })
	gotApps.await(t, "two instances", func(l []item) bool { return len(l) == 2 })

	require.NoError(t, provider.Withdraw(ctx))
	got.await(t, "one provider", func(l []string) bool { return len(l) == 1 && l[0] == second+"?" })
	eventually(t, "the plain subscriber sees the removal", func() bool {
		l := plain.seen()
		return len(l) > 0 && len(l[len(l)-1]) == 1
	})
	for i, l := range plain.seen() {
		assert.NotEmpty(t, l, "list %d", i)
	}
}

func TestZooKeeperLostSessionPublishesTheCurrentStatus(t *testing.T) {
	server := testserver.ZooKeeper(t)
	ctx := testContext(t)
	const service = "shop.Lost"
	addr, app := listen(t), listen(t)
	u := registryURL(t, constant.ZookeeperKey, server.Addr, "1s")
	provider := newTestRegistry(t, u)
	require.NoError(t, provider.Register(providerURL(t, addr, service)))
	require.NoError(t, provider.RegisterService())
	discovery := newTestDiscovery(t, u)
	require.NoError(t, discovery.Register(testInstance(app)))
	draining := wire.Mark{Status: wire.Draining, Start: self.Current().Start, Seq: self.Current().Seq + 1}
	require.NoError(t, provider.Announce(ctx, draining))
	require.NoError(t, discovery.Announce(ctx, draining))

	consumer := newTestRegistry(t, u)
	got := newLists()
	require.NoError(t, consumer.LoadSubscribeInstances(referenceURL(t, service), got))

	lost := expireSession(t, server, provider.pub.(*zkPublisher).conn)
	look := onlooker(t, server.Addr)
	dir := "/dubbo/" + service + "/providers"
	owned := func(path string) bool {
		data, stat, err := look.Get(path)
		return err == nil && stat.EphemeralOwner != lost && strings.Contains(string(data), "DRAINING")
	}
	eventually(t, "interface record of the new session", func() bool {
		children, _, err := look.Children(dir)
		return err == nil && len(children) == 1 && owned(dir+"/"+children[0])
	})
	eventually(t, "service record of the new session", func() bool { return owned("/services/backend/" + app) })

	second := listen(t)
	other := newTestRegistry(t, u)
	require.NoError(t, other.Register(providerURL(t, second, service)))
	require.NoError(t, other.RegisterService())
	got.await(t, "both providers after the lost session", func(l []string) bool { return len(l) == 2 })
}

// Everybody's session is lost at once. The providers live, and no consumer ever has a list without one of them.
func TestZooKeeperLostSessionsOfAllProvidersEmptyNoList(t *testing.T) {
	server := testserver.ZooKeeper(t)
	const service = "shop.AllLost"
	u := registryURL(t, constant.ZookeeperKey, server.Addr, "1s")
	// Each process has a session of its own.
	apart := func(session string) *common.URL { return registryURL(t, constant.ZookeeperKey, server.Addr, session) }
	for _, session := range []string{"1001ms", "1002ms", "1003ms"} {
		provider := newTestRegistry(t, apart(session))
		require.NoError(t, provider.Register(providerURL(t, listen(t), service)))
		require.NoError(t, provider.RegisterService())
	}
	consumer := newTestRegistry(t, u)
	got := newLists()
	require.NoError(t, consumer.LoadSubscribeInstances(referenceURL(t, service), got))
	got.await(t, "all", func(l []string) bool { return len(l) == 3 })
	begin := got.count()

	look := onlooker(t, server.Addr)
	dir := "/dubbo/" + service + "/providers"
	owners := func() map[int64]bool {
		out := make(map[int64]bool)
		children, _, err := look.Children(dir)
		if err != nil {
			return nil
		}
		for _, c := range children {
			if _, stat, getErr := look.Get(dir + "/" + c); getErr == nil {
				out[stat.EphemeralOwner] = true
			}
		}
		return out
	}
	before := owners()
	require.Len(t, before, 3)
	require.NoError(t, server.Freeze())
	time.Sleep(4 * time.Second) // longer than the sessions
	require.NoError(t, server.Thaw())
	eventually(t, "every provider has a session again", func() bool {
		now := owners()
		return len(now) == 3
	})
	time.Sleep(500 * time.Millisecond) // what is under way arrives
	got.mu.Lock()
	defer got.mu.Unlock()
	for _, l := range got.all[begin:] {
		assert.Len(t, l, 3)
	}
}

// expireSession has the server forget a session, by a freeze that is longer than it, and returns its id.
func expireSession(t *testing.T, server *testserver.Server, c *zkConn) int64 {
	t.Helper()
	conn, err := c.ready(testContext(t))
	require.NoError(t, err)
	id := conn.SessionID()
	expired := make(chan struct{}, 8)
	cancel := c.onSession(func() { expired <- struct{}{} })
	defer cancel()
	for conn.SessionID() == id {
		require.NoError(t, server.Freeze())
		time.Sleep(3 * time.Second) // longer than the session
		require.NoError(t, server.Thaw())
		select {
		case <-expired:
		case <-time.After(testWait):
			require.FailNow(t, "no session")
		}
	}
	return id
}

func TestZooKeeperStalePredecessorIsReplaced(t *testing.T) {
	server := testserver.ZooKeeper(t)
	look := onlooker(t, server.Addr)
	addr := listen(t)
	u := registryURL(t, constant.ZookeeperKey, server.Addr, "5s")
	const service = "shop.Stale"

	// The predecessor's session: alive, with nodes at both paths.
	rec := record{url: providerURL(t, addr, service)}
	old := wire.Mark{Status: wire.Draining, Start: wire.NewStartID(time.Now().Add(-time.Hour)), Seq: 2}
	node := "/dubbo/" + service + "/providers/" + encodedURL(rec)
	appNode := "/services/backend/" + addr
	for _, path := range []string{node, appNode} {
		require.NoError(t, createParents(look, path[:strings.LastIndex(path, "/")]))
		_, err := look.Create(path, []byte(old.Encode()), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	provider := newTestRegistry(t, u)
	require.NoError(t, provider.Register(rec.url))
	require.NoError(t, provider.RegisterService())
	discovery := newTestDiscovery(t, u)
	require.NoError(t, discovery.Register(testInstance(addr)))
	for _, path := range []string{node, appNode} {
		data, stat, err := look.Get(path)
		require.NoError(t, err)
		assert.NotEqual(t, look.SessionID(), stat.EphemeralOwner, path)
		assert.Contains(t, string(data), self.Current().Start, path)
	}
	// A successor has the address: what we unregister is not ours to remove any more.
	require.NoError(t, look.Delete(appNode, -1))
	successor := []byte(`{"name":"backend","payload":{"metadata":{"graceful.start":"1-aaaa"}}}`)
	_, err := look.Create(appNode, successor, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.NoError(t, discovery.Unregister(testInstance(addr)))
	data, _, err := look.Get(appNode)
	require.NoError(t, err)
	assert.Equal(t, successor, data)
}

func TestZooKeeperDownAtStart(t *testing.T) {
	server := testserver.ZooKeeper(t)
	require.NoError(t, server.Stop())
	addr, app := listen(t), listen(t)
	u := registryURL(t, constant.ZookeeperKey, server.Addr, "1s")
	const service = "shop.Down"
	provider := newTestRegistry(t, u)
	require.NoError(t, provider.Register(providerURL(t, addr, service)))
	require.NoError(t, provider.RegisterService(), "a registry that is down must not end the start")
	discovery := newTestDiscovery(t, u)
	require.NoError(t, discovery.Register(testInstance(app)))
	consumer := newTestRegistry(t, u)
	got := newLists()
	require.NoError(t, consumer.LoadSubscribeInstances(referenceURL(t, service), got))
	assert.Empty(t, got.last())

	require.NoError(t, server.Restart(context.Background()))
	got.await(t, "the provider, once the server is up", func(l []string) bool { return len(l) == 1 })
	look := onlooker(t, server.Addr)
	eventually(t, "the instance, once the server is up", func() bool {
		exists, _, err := look.Exists("/services/backend/" + app)
		return err == nil && exists
	})
}

func TestZooKeeperConsumerRecord(t *testing.T) {
	server := testserver.ZooKeeper(t)
	look := onlooker(t, server.Addr)
	const service = "shop.Called"
	consumer := newTestRegistry(t, registryURL(t, constant.ZookeeperKey, server.Addr, "5s"))
	ref := referenceURL(t, service)
	require.NoError(t, consumer.Register(ref))
	children, _, err := look.Children("/dubbo/" + service + "/consumers")
	require.NoError(t, err)
	assert.Len(t, children, 1)
	require.NoError(t, consumer.UnRegister(ref))
	children, _, err = look.Children("/dubbo/" + service + "/consumers")
	require.NoError(t, err)
	assert.Empty(t, children)
}

func TestZooKeeperDrainTag(t *testing.T) {
	settings.Isolate(t)
	require.NoError(t, settings.Configure(config.WithDrainVanillaTag(true)))
	require.NoError(t, settings.Load(nil))
	server := testserver.ZooKeeper(t)
	ctx := testContext(t)
	look := onlooker(t, server.Addr)
	u := registryURL(t, constant.ZookeeperKey, server.Addr, "5s")
	one, two := listen(t), listen(t)
	first, second := newTestDiscovery(t, u), newTestDiscovery(t, u)
	require.NoError(t, first.Register(testInstance(one)))
	require.NoError(t, second.Register(testInstance(two)))
	tag := func(addr string) string {
		data, _, err := look.Get("/services/backend/" + addr)
		require.NoError(t, err)
		in, err := parseCurator(data)
		require.NoError(t, err)
		return in.Tag
	}
	own := self.Current().Mark()
	draining := wire.Mark{Status: wire.Draining, Start: own.Start, Seq: own.Seq + 1}
	require.NoError(t, first.Announce(ctx, draining))
	require.NoError(t, first.Confirmed(ctx, draining))
	assert.Equal(t, drainTag, tag(one))
	require.NoError(t, second.Announce(ctx, draining))
	require.NoError(t, second.Confirmed(ctx, draining))
	assert.Empty(t, tag(two), "the last one must stay visible")
	require.NoError(t, first.Announce(ctx, wire.Mark{Status: wire.Up, Start: own.Start, Seq: own.Seq + 2}))
	assert.Empty(t, tag(one))
}

// The mapping and the metadata of a service-level provider go through the metadata report, which must not end the start
// while its server is down.
func TestZooKeeperMetadataReportDownAtStart(t *testing.T) {
	server := testserver.ZooKeeper(t)
	require.NoError(t, server.Stop())
	u := registryURL(t, constant.ZookeeperKey, server.Addr, "1s")
	r := reports.CreateMetadataReport(u).(*metadataReport)
	assert.Same(t, r, reports.CreateMetadataReport(u.Clone()), "one connection per server")
	require.NoError(t, r.RegisterServiceAppMapping("shop.Mapped", "mapping", "backend"))
	require.NoError(t, r.PublishAppMetadata("backend", "7", info.NewAppMetadataInfo("backend")))
	learned := make(chan *registry.ServiceMappingChangeEvent, 8)
	_, err := r.GetServiceAppMapping("shop.Mapped", "mapping", mappingListener(learned))
	require.Error(t, err)

	require.NoError(t, server.Restart(context.Background()))
	select {
	case e := <-learned:
		assert.True(t, e.GetServiceNames().Contains("backend"))
	case <-time.After(testWait):
		require.FailNow(t, "the mapping never came")
	}
	eventually(t, "the metadata is there", func() bool {
		m, getErr := r.GetAppMetadata("backend", "7")
		return getErr == nil && m.App == "backend"
	})
	require.NoError(t, r.Close(testContext(t)))
	require.NoError(t, r.Close(testContext(t)))
}

type mappingListener chan *registry.ServiceMappingChangeEvent

func (l mappingListener) OnEvent(e observer.Event) error {
	l <- e.(*registry.ServiceMappingChangeEvent)
	return nil
}

func (l mappingListener) Stop() {}
