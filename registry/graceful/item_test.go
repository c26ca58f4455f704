// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"maps"
	"testing"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/metadata/info"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/remoting"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

func mustURL(t *testing.T, s string) *common.URL {
	t.Helper()
	u, err := common.NewURL(s)
	require.NoError(t, err)
	return u
}

func TestInterfaceItem(t *testing.T) {
	ref := mustURL(t, "tri:///shop.A?interface=shop.A&group=g&version=1")
	u := mustURL(t, "tri://10.0.0.1:20000/shop.A?interface=shop.A&group=g&version=1&status=DRAINING&graceful.start=1-a&graceful.seq=7&warmup=90s&loadbalance=random&timestamp=1700000000&release=dubbo-golang-3.3.2")
	it, ok := interfaceItem(ref, u, wire.Mark{})
	require.True(t, ok)
	assert.Equal(t, wire.Mark{Status: wire.Draining, Start: "1-a", Seq: 7, Warmup: "90s"}, it.mark)
	assert.Equal(t, []string{"10.0.0.1:20000"}, it.addresses)
	assert.Equal(t, int64(1700000000000), it.timestamp)
	for _, key := range wire.Keys() {
		assert.Empty(t, it.url.GetParam(key, ""), key)
		assert.NotEmpty(t, u.GetParam(key, ""), "the registry's own URL is not changed")
	}
	assert.Equal(t, "random", it.url.GetParam(constant.LoadbalanceKey, ""), "the reference names none")
	assert.Equal(t, u.GetCacheInvokerMapKey(), it.url.GetCacheInvokerMapKey())

	ref.SetParam(constant.LoadbalanceKey, "blacklist")
	it, ok = interfaceItem(ref, u, wire.Mark{Status: wire.Up, Start: "1-b", Seq: 9})
	require.True(t, ok)
	assert.Empty(t, it.url.GetParam(constant.LoadbalanceKey, ""))
	assert.Equal(t, wire.Mark{Status: wire.Up, Start: "1-b", Seq: 9, Warmup: "90s"}, it.mark, "what stands beside the URL is younger")

	vanilla := mustURL(t, "tri://10.0.0.1:20000/shop.A?interface=shop.A&group=g&version=1&status=true")
	it, ok = interfaceItem(ref, vanilla, wire.Mark{})
	require.True(t, ok)
	assert.Equal(t, wire.Mark{}, it.mark)
	assert.Equal(t, "true", it.url.GetParam(wire.KeyStatus, ""), "somebody else's status is no mark")
}

func TestAsksFor(t *testing.T) {
	for _, c := range []struct {
		ref, provider string
		want          bool
	}{
		{"tri:///shop.A?interface=shop.A", "tri://h:1/shop.A?interface=shop.A", true},
		{"tri:///shop.A?interface=shop.A", "dubbo://h:1/shop.A?interface=shop.A", false},
		{"tri:///shop.A?interface=shop.A", "tri://h:1/shop.A?interface=shop.A&version=2", false},
		{"tri:///shop.A?interface=shop.A&version=*&group=*", "tri://h:1/shop.A?interface=shop.A&version=2&group=x", true},
		{"tri:///shop.A?interface=shop.A", "tri://h:1/shop.B?interface=shop.B", false},
	} {
		assert.Equal(t, c.want, asksFor(mustURL(t, c.ref), mustURL(t, c.provider)), c)
	}
}

func TestServiceItem(t *testing.T) {
	metadata := map[string]string{
		wire.KeyStatus: "DRAINING", wire.KeyStart: "1700000001234-ab", wire.KeySeq: "2", "x": "y",
		constant.ServiceInstanceEndpoints: `[{"port":20000,"protocol":"tri"},{"port":20001,"protocol":"dubbo"}]`,
	}
	before := maps.Clone(metadata)
	in := &registry.DefaultServiceInstance{ServiceName: "app", Host: "10.0.0.1", Port: 20000, Metadata: metadata, Tag: "t"}
	it := serviceItem(in)
	assert.Equal(t, before, metadata, "a registry's own map is not changed")
	assert.Equal(t, wire.Mark{Status: wire.Draining, Start: "1700000001234-ab", Seq: 2}, it.mark)
	assert.Equal(t, []string{"10.0.0.1:20000", "10.0.0.1:20001"}, it.addresses)
	assert.Equal(t, "y", it.instance.GetMetadata()["x"])
	assert.NotContains(t, it.instance.GetMetadata(), wire.KeyStart)

	up := maps.Clone(metadata)
	up[wire.KeyStatus], up[wire.KeySeq] = "UP", "3"
	assert.Equal(t, it.content, serviceItem(copyInstance(in, up)).content, "a status is nothing to hand on")
	next := maps.Clone(metadata)
	next[wire.KeyStart] = "1700000009999-cd"
	assert.NotEqual(t, it.content, serviceItem(copyInstance(in, next)).content, "another process is")
}

func TestListedInstance(t *testing.T) {
	in := &registry.DefaultServiceInstance{ServiceName: "app", Host: "10.0.0.1", Port: 20000, Metadata: map[string]string{
		wire.KeyStart: "1700000001234-ab", constant.ServiceInstanceEndpoints: `[{"port":20000,"protocol":"tri"}]`,
		constant.ExportedServicesRevisionPropertyName: "abc",
	}}
	a := newApp("app")
	it := serviceItem(in)
	listed := a.instances([]item{it})[0]
	assert.True(t, withoutServices(listed))
	service := info.NewServiceInfo("shop.A", "g", "1", "tri", "shop.A", map[string]string{constant.TimestampKey: "1600000000"})
	meta := info.NewAppMetadataInfo("app")
	meta.Services[service.MatchKey] = service
	listed.SetServiceMetadata(meta)
	assert.False(t, withoutServices(listed))
	assert.Same(t, meta, listed.GetServiceMetadata())
	assert.ElementsMatch(t, []string{"g/shop.A:1", "shop.A"}, a.services(it))
	urls := listed.ToURLs(service)
	require.Len(t, urls, 1)
	assert.Equal(t, "1700000001", urls[0].GetParam(constant.TimestampKey, ""), "the process's own, not the revision's")
	assert.Equal(t, "1600000000", service.Params[constant.TimestampKey])
}

func TestFold(t *testing.T) {
	ref := mustURL(t, "tri:///shop.A?interface=shop.A")
	var lists [][]item
	f := newFold(ref, func(items []item) { lists = append(lists, items) })
	event := func(action remoting.EventType, s string) *registry.ServiceEvent {
		return &registry.ServiceEvent{Action: action, Service: mustURL(t, s)}
	}
	const a, b = "tri://10.0.0.1:1/shop.A?interface=shop.A&timestamp=1", "tri://10.0.0.1:2/shop.A?interface=shop.A&timestamp=1"
	f.Notify(event(remoting.EventTypeAdd, a))
	assert.Empty(t, lists, "not complete yet")
	f.open()
	f.Notify(event(remoting.EventTypeAdd, b))
	f.Notify(event(remoting.EventTypeAdd, b))
	require.Len(t, lists, 3)
	assert.Len(t, lists[2], 2)
	// A new process at the same address comes before the old one goes.
	f.Notify(event(remoting.EventTypeAdd, "tri://10.0.0.1:1/shop.A?interface=shop.A&timestamp=2"))
	f.Notify(event(remoting.EventTypeDel, a))
	last := lists[len(lists)-1]
	require.Len(t, youngest(last), 2)
	assert.Len(t, last, 2)
	n := len(lists)
	f.Notify(event(remoting.EventTypeDel, a))
	assert.Len(t, lists, n, "deletes come twice")
	marked := event(remoting.EventTypeUpdate, b)
	marked.Service.SetAttribute(recordData, wire.Mark{Status: wire.Draining, Start: "1-a", Seq: 2}.Encode())
	f.Notify(marked)
	last = lists[len(lists)-1]
	assert.Equal(t, wire.Draining, last[1].mark.Status)
	f.NotifyAll([]*registry.ServiceEvent{event(remoting.EventTypeAdd, b)}, func() {})
	assert.Len(t, lists[len(lists)-1], 1)
	f.close()
	n = len(lists)
	f.Notify(event(remoting.EventTypeAdd, a))
	assert.Len(t, lists, n)
}

func TestUnixMilli(t *testing.T) {
	assert.Equal(t, int64(1700000000000), unixMilli("1700000000"))
	assert.Equal(t, int64(1700000000123), unixMilli("1700000000123"))
	assert.Zero(t, unixMilli(""))
	assert.Zero(t, unixMilli("-1"))
}
