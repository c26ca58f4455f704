// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package draining

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/cluster/directory"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/global"
	"dubbo.apache.org/dubbo-go/v3/graceful_shutdown"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/remoting"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/wire"
)

// paper is a registry whose first list is loaded by the directory's constructor, which is where the first closing event can come.
type paper struct {
	registry.Registry
	url  *common.URL
	load func(listener registry.NotifyListener) error
}

func (p *paper) GetURL() *common.URL { return p.url }

func (p *paper) LoadSubscribeInstances(_ *common.URL, l registry.NotifyListener) error {
	return p.load(l)
}

func (p *paper) UnRegister(*common.URL) error { return nil }

func (p *paper) UnSubscribe(*common.URL, registry.NotifyListener) error { return nil }

// referred is the protocol of the test's instances.
type referred struct{ base.BaseProtocol }

func (*referred) Refer(url *common.URL) base.Invoker { return base.NewBaseInvoker(url) }

func referenceURL(t *testing.T, protocol string) *common.URL {
	t.Helper()
	sub, err := common.NewURL("fake://127.0.0.1/" + iface + "?interface=" + iface)
	require.NoError(t, err)
	url, err := common.NewURL(protocol + "://127.0.0.1:2181")
	require.NoError(t, err)
	url.SubURL = sub
	for _, u := range []*common.URL{url, sub} {
		u.SetAttribute(constant.ApplicationKey, global.DefaultApplicationConfig())
		u.SetAttribute(constant.RegistriesConfigKey, map[string]*global.RegistryConfig{})
	}
	return url
}

// addrs makes every address of the process-wide table new, also when the tests run several times.
var addrs atomic.Int64

func newAddr() string { return fmt.Sprintf("10.1.0.1:%d", addrs.Add(1)) }

// Whichever way dubbo-go makes a directory, a closing event marks the instance and destroys nothing, from the first moment on.
func TestClosingEventsMark(t *testing.T) {
	extension.SetProtocol("fake", func() base.Protocol { return new(referred) })
	extension.SetProtocol("filter", func() base.Protocol { return new(referred) })
	closed := func(url *common.URL) bool {
		return graceful_shutdown.DefaultClosingEventHandler().HandleClosingEvent(graceful_shutdown.ClosingEvent{
			Source: "triple-health-watch", InstanceKey: url.GetCacheInvokerMapKey(), ServiceKey: url.ServiceKey(), Address: url.Location,
		})
	}
	for _, protocol := range []string{constant.RegistryProtocol, constant.ServiceRegistryProtocol, "zookeeper"} {
		t.Run(protocol, func(t *testing.T) {
			table := instance.Default()
			url := referenceURL(t, protocol)
			var urls []*common.URL
			early, late := newAddr(), newAddr()
			for _, addr := range []string{early, late} {
				u, err := common.NewURL("fake://" + addr + "/" + iface + "?interface=" + iface)
				require.NoError(t, err)
				urls = append(urls, u)
				table.Observe(addr, instance.Observation{Mark: wire.Mark{Status: wire.Up, Start: protocol + "-1", Seq: 1}}, time.Now())
			}
			reg := &paper{url: url, load: func(l registry.NotifyListener) error {
				for _, u := range urls {
					l.Notify(&registry.ServiceEvent{Action: remoting.EventTypeAdd, Service: u})
				}
				assert.True(t, closed(urls[0]), "an event before the constructor is done")
				return nil
			}}
			dir, err := extension.GetDirectoryInstance(url, reg)
			require.NoError(t, err)
			defer dir.Destroy()
			assert.True(t, closed(urls[1]))

			for _, addr := range []string{early, late} {
				s, src, _ := table.Lookup(addr).Status()
				assert.Equal(t, wire.Draining, s)
				assert.Equal(t, instance.FromClosing, src)
			}
			all := dir.List(newCall())
			assert.ElementsMatch(t, []string{early, late}, addrsOf(all), "nobody else is left")
			for _, ivk := range all {
				assert.True(t, ivk.IsAvailable(), "not destroyed")
			}

			t.Run("no tombstone keeps a new process out", func(t *testing.T) {
				table.Observe(early, instance.Observation{Mark: wire.Mark{Status: wire.Up, Start: protocol + "-2", Seq: 1}}, time.Now())
				dir.(registry.NotifyListener).Notify(&registry.ServiceEvent{Action: remoting.EventTypeUpdate, Service: urls[0]})
				assert.Equal(t, []string{early}, addrsOf(dir.List(newCall())))
			})
			assert.False(t, (&marker{table: table}).RemoveClosingInstance("fake://:@10.1.0.9:1/?interface=x"), "unknown here")
		})
	}
}

func TestErrorOfTheRegistryIsHandedOn(t *testing.T) {
	down := errors.New("down")
	url := referenceURL(t, "zookeeper")
	_, err := extension.GetDirectoryInstance(url, &paper{url: url, load: func(registry.NotifyListener) error { return down }})
	assert.ErrorIs(t, err, down)
	_ = directory.ClosingInstanceRemover(closing)
}

func TestAddressOf(t *testing.T) {
	for key, want := range map[string]string{
		"tri://:@10.0.0.1:20000/?interface=a&group=&version=&timestamp=1": "10.0.0.1:20000",
		"dubbo://me:p@ss@10.0.0.1:20000/?interface=a":                     "10.0.0.1:20000",
		"tri://:@::1:20000/?interface=a":                                  "::1:20000",
		"tri://:@:/?interface=a":                                          "",
		"":                                                                "",
		"x":                                                               "",
		"tri://:@10.0.0.1:20000":                                          "",
	} {
		got, ok := addressOf(key)
		assert.Equal(t, want != "", ok, key)
		if ok {
			assert.Equal(t, want, got, key)
		}
	}
	u, err := common.NewURL("tri://10.0.0.1:20000/" + iface + "?interface=" + iface + "&group=g&version=1.0")
	require.NoError(t, err)
	got, ok := addressOf(u.GetCacheInvokerMapKey())
	assert.True(t, ok)
	assert.Equal(t, u.Location, got)
}
