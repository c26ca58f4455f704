// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdv3

import (
	"fmt"
	"testing"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/registry"
)

import (
	"github.com/dubbogo/graceful/internal/etcd"
)

func TestConstructorsHaveNoEffects(t *testing.T) { // goleak sees what they would start
	u, err := common.NewURL("etcdv3://127.0.0.1:1")
	require.NoError(t, err)
	u.SetParam(constant.RegistryKey, constant.EtcdV3Key)
	for range 3 {
		r, err := extension.GetRegistry(constant.EtcdV3Key, u)
		require.NoError(t, err)
		assert.IsType(t, &etcdRegistry{}, r)
		d, err := extension.GetServiceDiscovery(u)
		require.NoError(t, err)
		assert.IsType(t, &serviceDiscovery{}, d)
		assert.Equal(t, "etcd-service-discovery[127.0.0.1:1]", d.String())
		assert.Equal(t, registry.DefaultPageSize, d.GetDefaultPageSize())
		assert.True(t, d.GetServices().Empty())
	}
	u.SetParam(etcd.TTLKey, "soon")
	_, err = extension.GetRegistry(constant.EtcdV3Key, u)
	require.ErrorIs(t, err, etcd.ErrConfig)
	_, err = extension.GetServiceDiscovery(u)
	require.ErrorIs(t, err, etcd.ErrConfig)
}

func TestNothingWasEverOpened(t *testing.T) {
	u, err := common.NewURL("etcdv3://127.0.0.1:1?registry.timeout=50ms")
	require.NoError(t, err)
	r, err := newRegistry(u)
	require.NoError(t, err)
	nothing := common.NewURLWithOptions(common.WithParamsValue(constant.RegistryRoleKey, "3"))
	require.ErrorIs(t, r.Register(nothing), etcd.ErrRecord)
	require.ErrorIs(t, r.UnRegister(nothing), etcd.ErrRecord)
	r.Destroy()
	r.Destroy()
	d, err := newServiceDiscovery(u)
	require.NoError(t, err)
	require.NoError(t, d.Destroy())
	require.NoError(t, d.Destroy())
	require.ErrorIs(t, d.Update(&registry.DefaultServiceInstance{}), etcd.ErrClosed)
	require.ErrorIs(t, d.Unregister(&registry.DefaultServiceInstance{}), etcd.ErrClosed)
	assert.Empty(t, d.GetInstances("any"))
}

func TestPages(t *testing.T) {
	var all []registry.ServiceInstance
	for i := range 5 {
		all = append(all, &registry.DefaultServiceInstance{ID: fmt.Sprint(i)})
	}
	for _, c := range []struct {
		offset, size int
		want         []string
	}{
		{0, 2, []string{"0", "1"}}, {4, 2, []string{"4"}}, {5, 2, nil}, {9, 2, nil}, {-1, 1, []string{"0"}}, {0, -1, nil}, {0, 100, []string{"0", "1", "2", "3", "4"}},
	} {
		var got []string
		for _, in := range page(all, c.offset, c.size).GetData() {
			got = append(got, in.(registry.ServiceInstance).GetID())
		}
		assert.Equal(t, c.want, got, "%+v", c)
	}
}

func TestWhoWantsProviders(t *testing.T) {
	for category, want := range map[string]bool{
		"": true, "providers": true, "providers,configurators": true, "*": true, "configurators": false, "routers": false,
	} {
		u := common.NewURLWithOptions()
		u.SetParam(constant.CategoryKey, category)
		assert.Equal(t, want, wantsProviders(u), category)
	}
}
