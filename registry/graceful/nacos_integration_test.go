// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package graceful

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

import (
	nacosClient "github.com/dubbogo/gost/database/kv/nacos"

	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/remoting/nacos"
)

import (
	"github.com/dubbogo/graceful/internal/testserver"
	"github.com/dubbogo/graceful/internal/wire"
)

// nacosURL is the registry URL of one process; each name is a connection of its own.
func nacosURL(t *testing.T, addr, process string) *common.URL {
	t.Helper()
	u := registryURL(t, constant.NacosKey, addr, "3s")
	u.SetParam(constant.ClientNameKey, process)
	d := delegateURL(u, constant.NacosKey)
	base := t.TempDir()
	d.SetParam(constant.NacosCacheDirKey, base)
	d.SetParam(constant.NacosLogDirKey, base)
	return d
}

// bystander is a plain subscriber with a connection of its own, which records every list it is pushed.
type bystander struct {
	service nacosService

	mu     sync.Mutex
	lists  [][]model.Instance
	change chan struct{}
}

func newBystander(t *testing.T, addr string, s nacosService) *bystander {
	t.Helper()
	_, cc, err := nacos.GetNacosConfig(nacosURL(t, addr, "bystander"))
	require.NoError(t, err)
	sc, _, err := nacos.GetNacosConfig(nacosURL(t, addr, "bystander"))
	require.NoError(t, err)
	client, err := nacosClient.NewNacosNamingClient("bystander", false, sc, cc)
	require.NoError(t, err)
	b := &bystander{service: s, change: make(chan struct{}, 1)}
	sdk := client.Client()
	require.NoError(t, sdk.Subscribe(&vo.SubscribeParam{ServiceName: s.name, GroupName: s.group, SubscribeCallback: b.pushed}))
	t.Cleanup(sdk.CloseClient)
	return b
}

func (b *bystander) pushed(list []model.Instance, err error) {
	if err != nil {
		panic(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lists = append(b.lists, slices.Clone(list))
	select {
	case b.change <- struct{}{}:
	default:
	}
}

// describe is "port=STATUS port=STATUS", sorted.
func (b *bystander) describe(list []model.Instance) string {
	out := make([]string, 0, len(list))
	for _, in := range list {
		out = append(out, fmt.Sprintf("%d=%s", in.Port, in.Metadata[wire.KeyStatus]))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (b *bystander) until(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(testWait)
	for {
		last := "nothing"
		b.mu.Lock()
		if n := len(b.lists); n > 0 {
			last = b.describe(b.lists[n-1])
		}
		b.mu.Unlock()
		if last == want {
			return
		}
		select {
		case <-b.change:
		case <-deadline:
			t.Fatalf("never pushed %q, last %q", want, last)
		}
	}
}

// since checks every list pushed after the n-th, and returns how many there are now.
func (b *bystander) since(n int, check func(list []model.Instance)) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, list := range b.lists[min(n, len(b.lists)):] {
		check(list)
	}
	return len(b.lists)
}

// whole checks that each port is listed exactly once.
func whole(t *testing.T, ports ...uint64) func([]model.Instance) {
	return func(list []model.Instance) {
		var got []uint64
		for _, in := range list {
			got = append(got, in.Port)
		}
		slices.Sort(got)
		assert.Equal(t, ports, got, "missing or doubled")
	}
}

func interfaceRecord(t *testing.T, protocolName, addr, service string) record {
	t.Helper()
	u := providerURL(t, addr, service)
	u.Protocol = protocolName
	return record{url: u}
}

func serviceRecord(port int) record {
	return record{instance: &registry.DefaultServiceInstance{
		ID: "127.0.0.1:" + strconv.Itoa(port), ServiceName: "backend", Host: "127.0.0.1", Port: port, Enable: true, Healthy: true,
		Metadata: map[string]string{"dubbo.metadata.storage-type": "local"},
	}}
}

// confirmed waits until the publisher shows the mark.
func confirmed(t *testing.T, p publisher, recs []record, m wire.Mark) {
	t.Helper()
	ctx := testContext(t)
	for {
		err := p.Shows(ctx, recs, m)
		if err == nil {
			return
		}
		select {
		case <-time.After(firstLook):
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

func marks() (up, draining wire.Mark) {
	up = wire.Mark{Status: wire.Up, Start: wire.NewStartID(time.Now()), Seq: 1}
	draining = up
	draining.Status, draining.Seq = wire.Draining, 2
	return up, draining
}

func nacosPublisherOf(t *testing.T, addr string, l level, process string) *nacosPublisher {
	t.Helper()
	p, err := newPublisher(constant.NacosKey, l, nacosURL(t, addr, process))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p.(*nacosPublisher)
}

func TestNacos(t *testing.T) {
	server := testserver.Nacos(t)
	group := constant.ServiceDiscoveryDefaultGroup
	newPub := func(t *testing.T, l level, process string) *nacosPublisher {
		return nacosPublisherOf(t, server.Addr, l, process)
	}

	t.Run("interface level", func(t *testing.T) {
		const service = "shop.Interface"
		p := newPub(t, interfaceLevel, "i1")
		up, draining := marks()
		recs := []record{
			interfaceRecord(t, "tri", "127.0.0.1:20001", service), interfaceRecord(t, "dubbo", "127.0.0.1:20002", service),
			interfaceRecord(t, "tri", "127.0.0.1:20001", "shop.Other"),
		}
		plain := newBystander(t, server.Addr, nacosService{group: group, name: "providers:" + service + "::"})
		require.NoError(t, p.Put(testContext(t), recs[:1], up))
		plain.until(t, "20001=UP")
		require.NoError(t, p.Put(testContext(t), recs, up), "an upsert, and a second address of the same name")
		plain.until(t, "20001=UP 20002=UP")
		confirmed(t, p, recs, up)
		n := plain.since(0, func([]model.Instance) {})
		for range 3 {
			require.NoError(t, p.Put(testContext(t), recs, draining))
			confirmed(t, p, recs, draining)
			plain.until(t, "20001=DRAINING 20002=DRAINING")
			require.ErrorIs(t, p.Shows(testContext(t), recs, up), errNotShown)
			require.NoError(t, p.Put(testContext(t), recs, up))
			plain.until(t, "20001=UP 20002=UP")
		}
		n = plain.since(n, whole(t, 20001, 20002))
		other := newBystander(t, server.Addr, nacosService{group: group, name: "providers:shop.Other::"})
		other.until(t, "20001=UP")

		require.NoError(t, p.Remove(testContext(t), recs[:1]))
		plain.until(t, "20002=UP")
		plain.since(n, func(list []model.Instance) { assert.NotEmpty(t, list, "taking one back leaves the other") })
		other.until(t, "20001=UP")
		require.NoError(t, p.Remove(testContext(t), recs))
		require.NoError(t, p.Remove(testContext(t), recs), "idempotent")
		plain.until(t, "")
		other.until(t, "")
	})

	t.Run("service level", func(t *testing.T) {
		p := newPub(t, serviceLevel, "s1")
		up, draining := marks()
		recs := []record{serviceRecord(20001)}
		plain := newBystander(t, server.Addr, nacosService{group: group, name: "backend"})
		require.NoError(t, p.Put(testContext(t), recs, up))
		plain.until(t, "20001=UP")
		second := newPub(t, serviceLevel, "s2")
		require.NoError(t, second.Put(testContext(t), []record{serviceRecord(20002)}, up))
		plain.until(t, "20001=UP 20002=UP")
		n := plain.since(0, func([]model.Instance) {})
		require.NoError(t, p.Put(testContext(t), recs, draining))
		began := time.Now()
		confirmed(t, p, recs, draining)
		plain.until(t, "20001=DRAINING 20002=UP")
		t.Logf("shown and pushed after %s", time.Since(began))
		plain.since(n, whole(t, 20001, 20002))
		require.NoError(t, p.Remove(testContext(t), recs))
		plain.until(t, "20002=UP")
		require.NoError(t, second.Remove(testContext(t), []record{serviceRecord(20002)}))
		plain.until(t, "")
	})

	t.Run("two publishers of one process share a publication", func(t *testing.T) {
		a, b := newPub(t, serviceLevel, "shared"), newPub(t, serviceLevel, "shared")
		up, _ := marks()
		plain := newBystander(t, server.Addr, nacosService{group: group, name: "backend"})
		require.NoError(t, a.Put(testContext(t), []record{serviceRecord(20001)}, up))
		require.NoError(t, b.Put(testContext(t), []record{serviceRecord(20002)}, up))
		plain.until(t, "20001=UP 20002=UP")
		require.NoError(t, a.Remove(testContext(t), []record{serviceRecord(20001)}))
		plain.until(t, "20002=UP")
		require.NoError(t, b.Remove(testContext(t), []record{serviceRecord(20002)}))
		plain.until(t, "")
	})

	t.Run("what the SDK writes again after a reconnect is overwritten", func(t *testing.T) {
		p := newPub(t, serviceLevel, "stale")
		up, draining := marks()
		recs := []record{serviceRecord(20001)}
		plain := newBystander(t, server.Addr, nacosService{group: group, name: "backend"})
		require.NoError(t, p.Put(testContext(t), recs, up))
		plain.until(t, "20001=UP")
		require.NoError(t, p.Put(testContext(t), recs, draining))
		plain.until(t, "20001=DRAINING")
		older, err := p.param(recs[0], up)
		require.NoError(t, err)
		ok, err := p.conn.sdk.RegisterInstance(older)
		require.NoError(t, err)
		require.True(t, ok)
		plain.until(t, "20001=UP")
		plain.until(t, "20001=DRAINING")
		require.NoError(t, p.Remove(testContext(t), recs))
		plain.until(t, "")
	})

	t.Run("followers", func(t *testing.T) {
		const service = "shop.Followed"
		p := newPub(t, interfaceLevel, "f1")
		up, draining := marks()
		recs := []record{interfaceRecord(t, "tri", "127.0.0.1:20001", service)}
		require.NoError(t, p.Put(testContext(t), recs, up))
		plain := newBystander(t, server.Addr, nacosService{group: group, name: "providers:" + service + "::"})
		plain.until(t, "20001=UP")

		ref := referenceURL(t, service)
		src := &nacosSource{
			url: nacosURL(t, server.Addr, "f2"), service: nacosService{group: group, name: nacosInterfaceName(ref)},
			parse: func(in model.Instance) (item, bool) { return nacosInterfaceItem(ref, in) },
		}
		first, second := followSource(t, src), followSource(t, src)
		first.until(t, "127.0.0.1:20001=UP")
		second.until(t, "127.0.0.1:20001=UP")
		require.NoError(t, p.Put(testContext(t), recs, draining))
		first.until(t, "127.0.0.1:20001=DRAINING")
		second.until(t, "127.0.0.1:20001=DRAINING")
		second.end()
		require.NoError(t, p.Put(testContext(t), recs, up))
		first.until(t, "127.0.0.1:20001=UP")
		third := followSource(t, src)
		third.until(t, "127.0.0.1:20001=UP")
		items, err := src.query(testContext(t))
		require.NoError(t, err)
		require.Len(t, items, 1)
		require.NoError(t, p.Remove(testContext(t), recs))
		first.until(t, "")
		third.until(t, "")
		items, err = src.query(testContext(t))
		require.NoError(t, err)
		assert.Empty(t, items)
	})
}

func TestNacosThatIsDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	p, err := newPublisher(constant.NacosKey, serviceLevel, nacosURL(t, addr, "down"))
	require.NoError(t, err)
	up, _ := marks()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	require.Error(t, p.Put(ctx, []record{serviceRecord(20001)}, up))
	require.Error(t, p.Shows(ctx, []record{serviceRecord(20001)}, up))
	require.Error(t, p.Remove(ctx, []record{serviceRecord(20001)}))
	assert.Less(t, time.Since(began), 3*time.Second)
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Put(context.Background(), []record{serviceRecord(20001)}, up), errNacosClosed)
}

// followed collects the lists of a source.
type followed struct {
	end func()

	mu     sync.Mutex
	last   string
	change chan struct{}
}

func followSource(t *testing.T, src source) *followed {
	t.Helper()
	f := &followed{last: "nothing", change: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		src.follow(ctx, func(items []item) {
			out := make([]string, 0, len(items))
			for _, it := range items {
				out = append(out, it.addresses[0]+"="+it.mark.Status.String())
			}
			slices.Sort(out)
			f.mu.Lock()
			f.last = strings.Join(out, " ")
			f.mu.Unlock()
			select {
			case f.change <- struct{}{}:
			default:
			}
		})
	}()
	f.end = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(f.end)
	return f
}

func (f *followed) until(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(testWait)
	for {
		f.mu.Lock()
		last := f.last
		f.mu.Unlock()
		if last == want {
			return
		}
		select {
		case <-f.change:
		case <-deadline:
			t.Fatalf("never listed %q, last %q", want, last)
		}
	}
}
