// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	clientv3 "go.etcd.io/etcd/client/v3"

	"pgregory.net/rapid"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/metadata/info"
	"dubbo.apache.org/dubbo-go/v3/registry"
)

func parse(t *testing.T, text string, opts ...common.Option) *common.URL {
	t.Helper()
	u, err := common.NewURL(text, opts...)
	require.NoError(t, err)
	return u
}

func TestConfig(t *testing.T) {
	cfg, err := ConfigOf(parse(t, "etcdv3://user:secret@10.0.0.1:2379?registry.timeout=3s&etcd.lease-ttl=15s",
		common.WithLocation(" 10.0.0.1:2379, 10.0.0.2:2379 ,")))
	require.NoError(t, err)
	assert.Equal(t, Config{
		Endpoints: "10.0.0.1:2379,10.0.0.2:2379", Username: "user", Password: "secret", Timeout: 3 * time.Second, TTL: 15 * time.Second,
	}, cfg)
	cfg, err = ConfigOf(parse(t, "etcdv3://10.0.0.1:2379"))
	require.NoError(t, err)
	assert.Equal(t, Config{Endpoints: "10.0.0.1:2379", Timeout: 5 * time.Second, TTL: DefaultTTL}, cfg)

	for text, says := range map[string]string{
		"etcdv3://10.0.0.1:2379?etcd.lease-ttl=1s":     `etcd.lease-ttl="1s": want a duration from 2s to 10m0s`,
		"etcdv3://10.0.0.1:2379?etcd.lease-ttl=never":  `etcd.lease-ttl="never"`,
		"etcdv3://10.0.0.1:2379?registry.timeout=-1s":  `registry.timeout="-1s"`,
		"etcdv3://10.0.0.1:2379?etcd.lease-ttl=100000": `etcd.lease-ttl="100000"`,
	} {
		_, err = ConfigOf(parse(t, text))
		require.ErrorIs(t, err, ErrConfig, text)
		require.ErrorContains(t, err, says)
	}
	_, err = ConfigOf(parse(t, "etcdv3://10.0.0.1:2379", common.WithLocation(" , ")))
	require.ErrorIs(t, err, ErrConfig)
}

func TestInterfaceKey(t *testing.T) {
	reg := parse(t, "etcdv3://10.0.0.1:2379")
	u := parse(t, "tri://10.1.1.1:20000/shop.Backend?interface=shop.Outer$Inner&registry.role=3&empty=&version=1.0&app=a b",
		common.WithMethods([]string{"Get", "Put"}))
	key, err := InterfaceKey(reg, u)
	require.NoError(t, err)
	prefix, ok := strings.CutPrefix(ProvidersPrefix(reg, "shop.Outer$Inner"), "/dubbo/")
	require.True(t, ok)
	assert.Equal(t, "shop.Outer%24Inner/providers/", prefix, "as dubbo-go escapes it")
	require.True(t, strings.HasPrefix(key, "/dubbo/"+prefix), key)
	assert.Equal(t, 4, strings.Count(key, "/"), "the URL is one segment")

	back, err := ParseInterfaceKey(key)
	require.NoError(t, err)
	assert.Equal(t, "tri://10.1.1.1:20000/shop.Backend", back.Protocol+"://"+back.Location+back.Path)
	assert.Equal(t, "Get,Put", back.GetParam(constant.MethodsKey, ""))
	assert.Equal(t, "true", back.GetParam(constant.AnyhostKey, ""))
	_, has := back.GetParams()["empty"]
	assert.False(t, has)

	reg.SetParam(constant.RegistryGroupKey, "other")
	consumer := parse(t, "tri://10.1.1.1/shop.Backend?interface=shop.Backend&registry.role=0")
	key, err = InterfaceKey(reg, consumer)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(key, "/other/shop.Backend/consumers/"+url.QueryEscape("consumer://"+common.GetLocalIp()+"/shop.Backend?")), key)

	for _, bad := range []string{
		"tri://10.1.1.1:20000/shop.Backend?interface=shop.Backend&registry.role=3", // no methods
		"tri://10.1.1.1:20000/shop.Backend?interface=shop.Backend&registry.role=2",
		"tri://10.1.1.1:20000/shop.Backend?interface=shop.Backend&registry.role=x",
	} {
		_, err = InterfaceKey(reg, parse(t, bad))
		require.ErrorIs(t, err, ErrRecord, bad)
	}
	_, err = ParseInterfaceKey("/dubbo/shop.Backend/providers/%%%")
	require.ErrorIs(t, err, ErrRecord)
}

func TestInstance(t *testing.T) {
	in := &registry.DefaultServiceInstance{
		ID: "id", ServiceName: "backend", Host: "10.1.1.1", Port: 20000, Enable: true, Healthy: true, Tag: "t", GroupName: "g",
		Metadata: map[string]string{"k": "v"}, ServiceMetadata: info.NewAppMetadataInfo("backend"),
	}
	assert.Equal(t, "/services/backend/10.1.1.1:20000", ServiceKey(in))
	value, err := EncodeInstance(in, nil)
	require.NoError(t, err)
	assert.NotContains(t, value, `"app"`, "consumers fetch the metadata by its revision")
	back, err := DecodeInstance(value)
	require.NoError(t, err)
	want := *in
	want.ServiceMetadata, want.Address = nil, "10.1.1.1:20000"
	assert.Equal(t, &want, back)

	value, err = EncodeInstance(in, map[string]string{"k": "other"})
	require.NoError(t, err)
	back, err = DecodeInstance(value)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"k": "other"}, back.Metadata)
	assert.Equal(t, map[string]string{"k": "v"}, in.Metadata)
	_, err = DecodeInstance("{")
	require.ErrorIs(t, err, ErrRecord)
}

// Whatever happens to the keys, the changes lead from the old list to the new one, and each key is told once.
func TestChangesLeadFromListToList(t *testing.T) {
	list := rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.SampledFrom([]string{"1", "2"}))
	replay := func(t *rapid.T, on map[string]string, changes []Change) {
		for _, c := range changes {
			_, known := on[c.Key]
			switch c.Kind {
			case Created:
				require.False(t, known)
				on[c.Key] = c.Value
			case Changed:
				require.True(t, known)
				require.NotEqual(t, on[c.Key], c.Value)
				on[c.Key] = c.Value
			case Removed:
				require.Equal(t, on[c.Key], c.Value)
				delete(on, c.Key)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		old, now := list.Draw(t, "old"), list.Draw(t, "now")
		changes := diff(old, now)
		on := maps.Clone(old)
		replay(t, on, changes)
		require.Equal(t, now, on)
		told := map[string]int{}
		for _, c := range changes {
			told[c.Key]++
			require.Equal(t, 1, told[c.Key])
		}

		state := Snapshot{Values: maps.Clone(old), Created: map[string]int64{}}
		var events []*clientv3.Event
		want := maps.Clone(old)
		for i := range rapid.IntRange(0, 10).Draw(t, "events") {
			key := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key")
			e := &clientv3.Event{Type: mvccpb.PUT, Kv: &mvccpb.KeyValue{Key: []byte(key), CreateRevision: int64(i)}}
			if rapid.Bool().Draw(t, "delete") {
				e.Type = mvccpb.DELETE
				delete(want, key)
			} else {
				e.Kv.Value = []byte(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value"))
				want[key] = string(e.Kv.Value)
			}
			events = append(events, e)
		}
		replay(t, maps.Clone(old), state.apply(events))
		require.Equal(t, want, state.Values)
	})
}

func TestKindNames(t *testing.T) {
	assert.Equal(t, "created changed removed", Created.String()+" "+Changed.String()+" "+Removed.String())
	assert.Equal(t, []string{"a", "b"}, Snapshot{Values: map[string]string{"b": "", "a": ""}}.Keys())
}

func TestWhichErrorsAreWorthAnotherTry(t *testing.T) {
	for err, want := range map[error]bool{
		rpctypes.ErrNoLeader:         true,
		rpctypes.ErrLeaseNotFound:    true,
		rpctypes.ErrPermissionDenied: false,
		rpctypes.ErrEmptyKey:         false,
		errors.New("any"):            true,
	} {
		assert.Equal(t, want, passing(err), "%v", err)
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := "127.0.0.1:" + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	require.NoError(t, l.Close())
	s, err := Open(Config{Endpoints: addr, Timeout: 200 * time.Millisecond, TTL: DefaultTTL})
	require.NoError(t, err, "without a login nothing is waited for")
	began := time.Now()
	for what, err := range map[string]error{
		"put":    s.Put(t.Context(), Record{Key: "/k"}),
		"delete": s.Delete(t.Context(), "/k"), // what the failed put may have left
		"get":    func() error { _, _, _, err := s.Get(t.Context(), "/k"); return err }(),
		"list":   func() error { _, err := s.List(t.Context(), "/"); return err }(),
	} {
		require.ErrorIs(t, err, ErrUnavailable, what)
		require.ErrorContains(t, err, addr, what)
	}
	assert.Less(t, time.Since(began), 3*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Follow(ctx, "/", Snapshot{}, func([]Change, Snapshot) { t.Error("told without a list") }), context.DeadlineExceeded)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Put(t.Context(), Record{Key: "/k"}), ErrClosed)
	require.ErrorIs(t, s.Follow(t.Context(), "/", Snapshot{}, nil), ErrClosed)

	_, err = Open(Config{Endpoints: addr, Timeout: 200 * time.Millisecond, TTL: DefaultTTL, Username: "u", Password: "p"})
	require.ErrorIs(t, err, ErrUnavailable, "a login is waited for")
}
