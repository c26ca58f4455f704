// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package etcdv3

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

import (
	gxset "github.com/dubbogo/gost/container/set"
	"github.com/dubbogo/gost/gof/observer"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/remoting"
)

import (
	"github.com/dubbogo/graceful/internal/etcd"
	"github.com/dubbogo/graceful/internal/testserver"
)

const (
	patience = 30 * time.Second
	service  = "shop.Backend"
	app      = "backend"
)

// told collects lines and lets a test wait for one after the other.
type told struct{ lines chan string }

func newTold() *told { return &told{lines: make(chan string, 100)} }

func (c *told) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-c.lines:
		return line
	case <-time.After(patience):
		t.Fatal("nothing was told")
		return ""
	}
}

func (c *told) nothing(t *testing.T) {
	t.Helper()
	select {
	case line := <-c.lines:
		t.Fatalf("unexpected: %s", line)
	default:
	}
}

// Notify implements registry.NotifyListener.
func (c *told) Notify(e *registry.ServiceEvent) {
	action := map[remoting.EventType]string{remoting.EventTypeAdd: "add", remoting.EventTypeUpdate: "update", remoting.EventTypeDel: "delete"}
	data, _ := e.Service.GetAttribute(DataAttribute)
	c.lines <- fmt.Sprintf("%s %s data=%v", action[e.Action], e.Service.Location, data)
}

// NotifyAll implements registry.NotifyListener.
func (c *told) NotifyAll([]*registry.ServiceEvent, func()) { c.lines <- "unexpected complete list" }

// instances is a listener of service level.
type instances struct {
	*told
	names []any
}

func (i *instances) OnEvent(e observer.Event) error {
	ce, ok := e.(*registry.ServiceInstancesChangedEvent)
	if !ok {
		return fmt.Errorf("unexpected %T", e)
	}
	list := make([]string, 0, len(ce.Instances))
	for _, in := range ce.Instances {
		list = append(list, in.GetAddress()+"="+in.GetMetadata()["who"])
	}
	slices.Sort(list)
	i.lines <- ce.ServiceName + ": " + strings.Join(list, " ")
	return nil
}

func (i *instances) AddListenerAndNotify(string, registry.NotifyListener) {}
func (i *instances) RemoveListener(string)                                {}
func (i *instances) GetServiceNames() *gxset.HashSet                      { return gxset.NewSet(i.names...) }
func (i *instances) Accept(observer.Event) bool                           { return true }
func (i *instances) GetPriority() int                                     { return 0 }
func (i *instances) GetEventType() reflect.Type {
	return reflect.TypeFor[*registry.ServiceInstancesChangedEvent]()
}

func registryURL(t *testing.T, addr string, params ...string) *common.URL {
	t.Helper()
	u, err := common.NewURL("etcdv3://" + addr)
	require.NoError(t, err)
	u.SetParam(constant.RegistryKey, constant.EtcdV3Key)
	u.SetParam(constant.RegistryTimeoutKey, "5s")
	for i := 0; i < len(params); i += 2 {
		u.SetParam(params[i], params[i+1])
	}
	return u
}

func newTestRegistry(t *testing.T, u *common.URL) registry.Registry {
	t.Helper()
	r, err := extension.GetRegistry(constant.EtcdV3Key, u)
	require.NoError(t, err)
	require.IsType(t, &etcdRegistry{}, r, "ours is registered over dubbo-go's own")
	t.Cleanup(r.Destroy)
	return r
}

func newTestDiscovery(t *testing.T, u *common.URL) registry.ServiceDiscovery {
	t.Helper()
	d, err := extension.GetServiceDiscovery(u)
	require.NoError(t, err)
	require.IsType(t, &serviceDiscovery{}, d, "ours is registered over dubbo-go's own")
	t.Cleanup(func() { assert.NoError(t, d.Destroy()) })
	return d
}

func provider(t *testing.T, port int, params ...string) *common.URL {
	t.Helper()
	u, err := common.NewURL(providerText(port, params...), common.WithMethods([]string{"Get", "Put"}))
	require.NoError(t, err)
	return u
}

func providerText(port int, params ...string) string {
	q := url.Values{constant.InterfaceKey: {service}, constant.RegistryRoleKey: {fmt.Sprint(common.PROVIDER)}, constant.TimestampKey: {"1700000000"}}
	for i := 0; i < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	return fmt.Sprintf("tri://127.0.0.1:%d/%s?%s", port, service, q.Encode())
}

func reference(t *testing.T, params ...string) *common.URL {
	t.Helper()
	u, err := common.NewURL("tri://127.0.0.1/"+service, common.WithInterface(service))
	require.NoError(t, err)
	u.SetParam(constant.RegistryRoleKey, fmt.Sprint(common.CONSUMER))
	for i := 0; i < len(params); i += 2 {
		u.SetParam(params[i], params[i+1])
	}
	return u
}

func instance(port int, who string) *registry.DefaultServiceInstance {
	return &registry.DefaultServiceInstance{
		ID: fmt.Sprintf("127.0.0.1:%d", port), ServiceName: app, Host: "127.0.0.1", Port: port, Enable: true, Healthy: true,
		Metadata: map[string]string{"who": who},
	}
}

// subscribe runs Subscribe until the test ends, and returns how to end it earlier.
func subscribe(t *testing.T, r registry.Registry, ref *common.URL, l registry.NotifyListener) (end func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- r.Subscribe(ref, l) }()
	end = sync.OnceFunc(func() {
		for begin := time.Now(); time.Since(begin) < patience; {
			assert.NoError(t, r.UnSubscribe(ref, l))
			select {
			case err := <-done:
				if err != nil {
					assert.ErrorIs(t, err, etcd.ErrClosed)
				}
				return
			case <-time.After(10 * time.Millisecond): // it had not begun
			}
		}
		t.Error("Subscribe does not return")
	})
	t.Cleanup(end)
	return end
}

func etcdClient(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func keys(t *testing.T, c *clientv3.Client) []string {
	t.Helper()
	resp, err := c.Get(t.Context(), "/", clientv3.WithPrefix())
	require.NoError(t, err)
	out := make([]string, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		key, err := url.QueryUnescape(string(kv.Key))
		require.NoError(t, err)
		out = append(out, key)
	}
	return out
}

func TestInterfaceLevel(t *testing.T) {
	server := testserver.Etcd(t)
	providers := newTestRegistry(t, registryURL(t, server.Addr))
	consumers := newTestRegistry(t, registryURL(t, server.Addr, constant.RegistryTimeoutKey, "6s")) // a store of its own
	seen, ref := newTold(), reference(t)

	first := provider(t, 20001)
	require.NoError(t, providers.Register(first))
	require.NoError(t, providers.Register(first), "registering again is an upsert")
	require.NoError(t, consumers.LoadSubscribeInstances(ref, seen))
	assert.Equal(t, "add 127.0.0.1:20001 data=", seen.next(t))
	require.NoError(t, providers.Register(provider(t, 20002)), "between the load and the subscription")
	end := subscribe(t, consumers, ref, seen)
	assert.Equal(t, "add 127.0.0.1:20002 data=", seen.next(t), "what was loaded is not told again")

	// Another service, group or version, and a key that is no URL, do not concern this reference.
	require.NoError(t, providers.Register(provider(t, 20003, constant.GroupKey, "other")))
	require.NoError(t, providers.Register(provider(t, 20004, constant.VersionKey, "2.0")))
	raw := etcdClient(t, server.Addr)
	_, err := raw.Put(t.Context(), "/dubbo/"+service+"/providers/%%%", "")
	require.NoError(t, err)

	// A change of the data is an update of the same provider.
	key, err := etcd.InterfaceKey(providers.GetURL(), first)
	require.NoError(t, err)
	_, err = raw.Put(t.Context(), key, "status=DRAINING", clientv3.WithIgnoreLease())
	require.NoError(t, err)
	assert.Equal(t, "update 127.0.0.1:20001 data=status=DRAINING", seen.next(t))

	require.NoError(t, providers.UnRegister(first))
	assert.Equal(t, "delete 127.0.0.1:20001 data=status=DRAINING", seen.next(t))
	require.NoError(t, providers.UnRegister(first), "unregistering again is nothing")

	end()
	require.NoError(t, providers.Register(first))
	providers.Destroy()
	providers.Destroy()
	assert.Equal(t, []string{"/dubbo/" + service + "/providers/%%%"}, mustKeys(raw.Get(t.Context(), "/", clientv3.WithPrefix())), "Destroy leaves nothing behind")
	seen.nothing(t)
	require.ErrorIs(t, providers.Register(first), etcd.ErrClosed)
	require.ErrorIs(t, providers.Subscribe(ref, seen), etcd.ErrClosed)
	assert.False(t, providers.IsAvailable())
}

func mustKeys(resp *clientv3.GetResponse, err error) []string {
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, kv := range resp.Kvs {
		out = append(out, string(kv.Key))
	}
	return out
}

func TestProviderWhoseLeaseEndsIsRemoved(t *testing.T) {
	server := testserver.Etcd(t)
	r := newTestRegistry(t, registryURL(t, server.Addr))
	seen := newTold()
	subscribe(t, r, reference(t), seen)
	raw := etcdClient(t, server.Addr)
	lease, err := raw.Grant(t.Context(), 60)
	require.NoError(t, err)
	key, err := etcd.InterfaceKey(r.GetURL(), provider(t, 20001))
	require.NoError(t, err)
	_, err = raw.Put(t.Context(), key, "", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	assert.Equal(t, "add 127.0.0.1:20001 data=", seen.next(t))
	_, err = raw.Revoke(t.Context(), lease.ID)
	require.NoError(t, err)
	assert.Equal(t, "delete 127.0.0.1:20001 data=", seen.next(t))
}

func TestProvidersOwnSubscriptionIsQuiet(t *testing.T) {
	server := testserver.Etcd(t)
	r := newTestRegistry(t, registryURL(t, server.Addr))
	require.NoError(t, r.Register(provider(t, 20001)))
	overrides := provider(t, 20001, constant.CategoryKey, constant.ConfiguratorsCategory)
	seen := newTold()
	require.NoError(t, r.LoadSubscribeInstances(overrides, seen))
	end := subscribe(t, r, overrides, seen)
	end()
	seen.nothing(t)
}

func TestServerThatIsDownAtTheStart(t *testing.T) {
	server := testserver.Etcd(t)
	require.NoError(t, server.Stop())
	params := []string{constant.RegistryTimeoutKey, "300ms"}
	r := newTestRegistry(t, registryURL(t, server.Addr, params...))
	d := newTestDiscovery(t, registryURL(t, server.Addr, params...))
	ref, seen, list := reference(t), newTold(), &instances{told: newTold(), names: []any{app}}

	begin := time.Now()
	require.ErrorIs(t, r.Register(provider(t, 20001)), etcd.ErrUnavailable)
	require.ErrorIs(t, d.Register(instance(20001, "a")), etcd.ErrUnavailable)
	require.NoError(t, r.LoadSubscribeInstances(ref, seen), "not an error: dubbo-go would never use the reference again")
	assert.Empty(t, d.GetInstances(app))
	require.NoError(t, d.AddListener(list))
	assert.Less(t, time.Since(begin), 5*time.Second)
	subscribe(t, r, ref, seen)

	require.NoError(t, server.Restart(t.Context()))
	for r.Register(provider(t, 20001)) != nil {
		assert.Less(t, time.Since(begin), patience)
	}
	assert.Equal(t, "add 127.0.0.1:20001 data=", seen.next(t))
	for d.Register(instance(20001, "a")) != nil {
		assert.Less(t, time.Since(begin), patience)
	}
	assert.Equal(t, app+": 127.0.0.1:20001=a", list.next(t))
}

func TestServiceLevel(t *testing.T) {
	server := testserver.Etcd(t)
	providers := newTestDiscovery(t, registryURL(t, server.Addr))
	consumers := newTestDiscovery(t, registryURL(t, server.Addr, constant.RegistryTimeoutKey, "6s"))
	require.NoError(t, providers.Register(instance(20001, "a")))
	require.NoError(t, providers.Register(instance(20001, "a")), "registering again is an upsert")

	seen := &instances{told: newTold(), names: []any{app}}
	require.NoError(t, consumers.AddListener(seen))
	assert.Equal(t, app+": 127.0.0.1:20001=a", seen.next(t), "the present list first")
	require.NoError(t, consumers.AddListener(seen), "dubbo-go adds it once for each interface")
	require.NoError(t, providers.Register(instance(20002, "b")))
	assert.Equal(t, app+": 127.0.0.1:20001=a 127.0.0.1:20002=b", seen.next(t), "a running consumer sees a new instance")
	late := &instances{told: newTold(), names: []any{app}}
	require.NoError(t, consumers.AddListener(late))
	assert.Equal(t, app+": 127.0.0.1:20001=a 127.0.0.1:20002=b", late.next(t))

	require.NoError(t, providers.Update(instance(20001, "draining")))
	for _, l := range []*instances{seen, late} {
		assert.Equal(t, app+": 127.0.0.1:20001=draining 127.0.0.1:20002=b", l.next(t), "never missing in between")
	}
	assert.ElementsMatch(t, []any{app}, providers.GetServices().Values())
	assert.Len(t, consumers.GetInstances(app), 2)
	assert.Equal(t, 2, consumers.GetInstancesByPage(app, 0, 1).GetTotalPages())
	assert.Equal(t, 0, consumers.GetHealthyInstancesByPage(app, 0, 10, false).GetDataSize())
	assert.Len(t, consumers.GetRequestInstances([]string{app, "none"}, 0, 10), 2)
	assert.Empty(t, consumers.GetInstances("none"))

	require.NoError(t, providers.Unregister(instance(20001, "a")))
	require.NoError(t, providers.Unregister(instance(20001, "a")), "unregistering again is nothing")
	assert.Equal(t, app+": 127.0.0.1:20002=b", seen.next(t))
	require.NoError(t, providers.Destroy())
	require.NoError(t, providers.Destroy())
	assert.Equal(t, app+": ", seen.next(t), "Destroy leaves nothing behind")
	require.ErrorIs(t, providers.Register(instance(20001, "a")), etcd.ErrClosed)
	require.ErrorIs(t, providers.AddListener(seen), etcd.ErrClosed)
}

func TestSubscribersSurviveAServerRestart(t *testing.T) {
	server := testserver.Etcd(t)
	r := newTestRegistry(t, registryURL(t, server.Addr))
	d := newTestDiscovery(t, registryURL(t, server.Addr))
	seen, list := newTold(), &instances{told: newTold(), names: []any{app}}
	require.NoError(t, r.Register(provider(t, 20001)))
	require.NoError(t, d.Register(instance(20001, "a")))
	subscribe(t, r, reference(t), seen)
	require.NoError(t, d.AddListener(list))
	assert.Equal(t, "add 127.0.0.1:20001 data=", seen.next(t))
	assert.Equal(t, app+": 127.0.0.1:20001=a", list.next(t))
	require.NoError(t, server.Restart(t.Context()))
	require.NoError(t, r.Register(provider(t, 20002)))
	require.NoError(t, d.Register(instance(20002, "b")))
	assert.Equal(t, "add 127.0.0.1:20002 data=", seen.next(t))
	assert.Equal(t, app+": 127.0.0.1:20001=a 127.0.0.1:20002=b", list.next(t))
	require.NoError(t, r.UnRegister(provider(t, 20001)))
	require.NoError(t, d.Unregister(instance(20001, "a")))
	assert.Equal(t, "delete 127.0.0.1:20001 data=", seen.next(t))
	assert.Equal(t, app+": 127.0.0.1:20002=b", list.next(t))
}

// vanilla starts a process that knows only dubbo-go's own etcd registry.
func vanilla(t *testing.T, binary string, args ...string) *told {
	t.Helper()
	cmd := exec.Command(binary, args...)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := newTold()
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if line := lines.Text(); !strings.Contains(line, "[") { // a log line
				c.lines <- line
			}
		}
	}()
	t.Cleanup(func() {
		_ = stdin.Close() // what it ends by
		<-read
		_ = cmd.Wait()
	})
	for {
		if line := c.next(t); line == "ready" {
			return c
		} else if strings.HasPrefix(line, "error") {
			t.Fatal(line)
		}
	}
}

func buildVanilla(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "vanilla")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./testdata/vanilla").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

func TestTogetherWithDubboGoItself(t *testing.T) {
	binary := buildVanilla(t)
	server := testserver.Etcd(t)

	t.Run("its consumer sees our provider, interface level", func(t *testing.T) {
		seen := vanilla(t, binary, server.Addr, "watch-interface", service)
		r := newTestRegistry(t, registryURL(t, server.Addr))
		require.NoError(t, r.Register(provider(t, 20001)))
		assert.Equal(t, "add 127.0.0.1:20001 Get,Put", seen.next(t))
		raw := etcdClient(t, server.Addr)
		key, err := etcd.InterfaceKey(r.GetURL(), provider(t, 20001))
		require.NoError(t, err)
		_, err = raw.Put(t.Context(), key, "status=DRAINING", clientv3.WithIgnoreLease())
		require.NoError(t, err)
		assert.Equal(t, "update 127.0.0.1:20001 Get,Put", seen.next(t), "the same provider, whatever the data")
	})
	t.Run("our consumer sees its provider, interface level", func(t *testing.T) {
		r := newTestRegistry(t, registryURL(t, server.Addr))
		seen := newTold()
		subscribe(t, r, reference(t), seen)
		vanilla(t, binary, server.Addr, "provide-interface", providerText(20002))
		assert.Equal(t, "add 127.0.0.1:20002 data=", seen.next(t))
	})
	t.Run("one key for the same provider", func(t *testing.T) {
		raw := etcdClient(t, server.Addr)
		before := keys(t, raw)
		r := newTestRegistry(t, registryURL(t, server.Addr))
		u, err := common.NewURL(providerText(20002), common.WithMethods([]string{"Get"}))
		require.NoError(t, err)
		require.NoError(t, r.Register(u))
		assert.Equal(t, before, keys(t, raw))
	})
	t.Run("its consumer sees our instances, service level", func(t *testing.T) {
		d := newTestDiscovery(t, registryURL(t, server.Addr))
		require.NoError(t, d.Register(instance(20003, "ours")))
		seen := vanilla(t, binary, server.Addr, "watch-service", app)
		require.NoError(t, d.Register(instance(20001, "ours")))
		assert.Equal(t, "list 127.0.0.1:20001=ours 127.0.0.1:20003=ours", seen.next(t))
		require.NoError(t, d.Update(instance(20001, "draining")))
		assert.Equal(t, "list 127.0.0.1:20001=draining 127.0.0.1:20003=ours", seen.next(t))
		require.NoError(t, d.Unregister(instance(20001, "ours")))
		assert.Equal(t, "list 127.0.0.1:20003=ours", seen.next(t), "it notices no deletion, so a neighbour is written again")
	})
	t.Run("our consumer sees its instances, service level", func(t *testing.T) {
		d := newTestDiscovery(t, registryURL(t, server.Addr))
		seen := &instances{told: newTold(), names: []any{"other"}}
		require.NoError(t, d.AddListener(seen))
		vanilla(t, binary, server.Addr, "provide-service", "other", "127.0.0.1", "20002")
		assert.Equal(t, "other: 127.0.0.1:20002=vanilla", seen.next(t))
		list := d.GetInstances("other")
		require.Len(t, list, 1)
		assert.Equal(t, "127.0.0.1:20002", list[0].GetID())
	})
}
