// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"net/url"
	"testing"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/metadata"
	"dubbo.apache.org/dubbo-go/v3/registry"
)

func registryOf(t *testing.T, name, address string, params map[string]string) *common.URL {
	t.Helper()
	values := url.Values{constant.RegistryKey: {name}, constant.RegistryTimeoutKey: {"5s"}}
	for k, v := range params {
		values.Set(k, v)
	}
	u, err := common.NewURL("registry://127.0.0.1:1", common.WithParams(values), common.WithLocation(address))
	require.NoError(t, err)
	u.Protocol = name
	return u
}

func TestDelegateOf(t *testing.T) {
	for _, c := range []struct {
		name, scheme, delegate, want, err string
	}{
		{name: "parameter", scheme: "graceful", delegate: "zookeeper", want: "zookeeper"},
		{name: "scheme", scheme: "graceful+zookeeper", want: "zookeeper"},
		{name: "both", scheme: "graceful+zookeeper", delegate: "zookeeper", want: "zookeeper"},
		{name: "missing", scheme: "graceful", err: "graceful.delegate of registry 127.0.0.1:1 is missing: allowed are "},
		{name: "unknown", scheme: "graceful", delegate: "consul", err: `graceful.delegate="consul" of registry 127.0.0.1:1: allowed are `},
		{name: "contradiction", scheme: "graceful+etcdv3", delegate: "zookeeper", err: `graceful.delegate="zookeeper" of registry 127.0.0.1:1 contradicts its address graceful+etcdv3://`},
	} {
		t.Run(c.name, func(t *testing.T) {
			params := map[string]string{}
			if c.delegate != "" {
				params[delegateKey] = c.delegate
			}
			u := registryOf(t, c.scheme, "127.0.0.1:1", params)
			got, err := delegateOf(u)
			if c.err != "" {
				require.ErrorIs(t, err, ErrDelegate)
				assert.Contains(t, err.Error(), c.err)
				_, err = extension.GetRegistry(protocol, u)
				require.ErrorIs(t, err, ErrDelegate)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestDelegateURL(t *testing.T) {
	u := registryOf(t, "graceful+zookeeper", "graceful+zookeeper://127.0.0.1:1,127.0.0.1:2", map[string]string{delegateKey: "zookeeper"})
	d := delegateURL(u, "zookeeper")
	assert.Equal(t, "127.0.0.1:1,127.0.0.1:2", d.Location)
	assert.Equal(t, "zookeeper", d.Protocol)
	assert.Equal(t, "zookeeper", d.GetParam(constant.RegistryKey, ""))
	assert.Empty(t, d.GetParam(delegateKey, ""))
	assert.Equal(t, "graceful+zookeeper", u.Protocol, "dubbo-go's own URL is not changed")
}

// dubbo-go builds a registry on every call and throws all but one away: the constructor opens nothing (goleak would see
// it), and the same registry is the same object.
func TestOneObjectPerRegistry(t *testing.T) {
	params := map[string]string{delegateKey: "zookeeper"}
	u := registryOf(t, protocol, "127.0.0.1:9", params)
	get := func(u *common.URL) registry.Registry {
		r, err := extension.GetRegistry(protocol, u)
		require.NoError(t, err)
		return r
	}
	a := get(u)
	assert.Same(t, a, get(u.Clone()))
	assert.Implements(t, (*registry.ServiceDiscoveryRegistry)(nil), a, "hides from dubbo-go otherwise that it wants the hook")
	for _, differs := range []map[string]string{
		{constant.RegistryGroupKey: "g"}, {constant.RegistryNamespaceKey: "n"}, {delegateKey: "etcdv3"},
	} {
		v := u.Clone()
		for k, x := range differs {
			v.SetParam(k, x)
		}
		other := get(v)
		assert.NotSame(t, a, other, differs)
		other.Destroy()
	}
	sd, err := extension.GetServiceDiscovery(u)
	require.NoError(t, err)
	again, err := extension.GetServiceDiscovery(u.Clone())
	require.NoError(t, err)
	assert.Same(t, sd, again)
	require.NoError(t, sd.Destroy())

	assert.True(t, a.IsAvailable())
	a.Destroy()
	a.Destroy()
	assert.False(t, a.IsAvailable())
	b := get(u)
	assert.NotSame(t, a, b, "after it was destroyed there is a new one")
	b.Destroy()
}

// The metadata report is asked for two or three times a process, before its server may be up.
func TestMetadataReportOpensNothing(t *testing.T) {
	opts := metadata.NewReportOptions(metadata.WithProtocol(protocol), metadata.WithAddress("127.0.0.1:9"),
		metadata.WithParams(map[string]string{delegateKey: "zookeeper"}), metadata.WithRegistryId("lazy"))
	require.NoError(t, opts.Init())
	require.NoError(t, opts.Init())
	assert.NotNil(t, metadata.GetMetadataReportByRegistry("lazy"))
	metadata.ClearMetadataReportInstances()

	broken := reports.CreateMetadataReport(registryOf(t, protocol, "127.0.0.1:9", nil))
	_, err := broken.GetAppMetadata("app", "1")
	require.ErrorIs(t, err, ErrDelegate)
	require.ErrorIs(t, broken.RegisterServiceAppMapping("shop.A", "mapping", "app"), ErrDelegate)
}

func TestConfigCenterOpensNothing(t *testing.T) {
	factory, err := extension.GetConfigCenterFactory(protocol)
	require.NoError(t, err)
	u := registryOf(t, protocol, "127.0.0.1:9", map[string]string{delegateKey: "zookeeper"})
	center, err := factory.GetDynamicConfiguration(u)
	require.NoError(t, err)
	assert.NotNil(t, center.Parser())
	_, err = factory.GetDynamicConfiguration(registryOf(t, protocol, "127.0.0.1:9", nil))
	require.ErrorIs(t, err, ErrDelegate)
}

func TestWith(t *testing.T) {
	shared := map[string]string{"a": "b"}
	o := registry.NewOptions(registry.WithParams(shared), With("zookeeper"), registry.WithAddress("127.0.0.1:2181"))
	assert.Equal(t, protocol, o.Registry.Protocol)
	assert.Equal(t, map[string]string{"a": "b", delegateKey: "zookeeper"}, o.Registry.Params)
	assert.NotContains(t, shared, delegateKey)
}
