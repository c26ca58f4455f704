// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"testing"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3"
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/global"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.uber.org/goleak"
)

import (
	"github.com/dubbogo/graceful/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

func instance(t *testing.T, configMap map[string]any) *dubbo.Instance {
	ins, err := dubbo.NewInstance(dubbo.WithName("settings-test"), dubbo.WithCustom(configMap))
	require.NoError(t, err)
	return ins
}

func TestDefaultsBeforeAnyLoad(t *testing.T) {
	Isolate(t)
	assert.Equal(t, config.Default(), *Get())
	assert.Nil(t, Shutdown())
}

func TestOptionsWinOverTheFile(t *testing.T) {
	Isolate(t)
	require.NoError(t, Configure(config.WithDrainTimeout(7*time.Second)))
	require.NoError(t, FromInstance(instance(t, map[string]any{"graceful": map[string]any{"drain": map[string]any{"timeout": "9s", "quiet": "1s"}}})))
	require.NoError(t, Configure(config.WithWarmupCurve(2)))
	assert.Equal(t, config.Default(), *Get(), "nothing is final yet")

	require.NoError(t, Load(nil))
	assert.Equal(t, 7*time.Second, Get().Drain.Timeout)
	assert.Equal(t, time.Second, Get().Drain.Quiet)
	assert.EqualValues(t, 2, Get().Warmup.Curve)
}

func TestSettingsAreFinalOnce(t *testing.T) {
	Isolate(t)
	shutdown := global.DefaultShutdownConfig()
	require.NoError(t, Load(shutdown))
	assert.Same(t, shutdown, Shutdown())
	final := Get()

	assert.ErrorIs(t, Configure(config.WithWarmupCurve(2)), ErrTooLate)
	assert.ErrorIs(t, FromInstance(instance(t, map[string]any{"graceful.drain.timeout": "9s"})), ErrTooLate)
	require.NoError(t, Load(global.DefaultShutdownConfig()))
	assert.Same(t, final, Get())
	assert.Same(t, shutdown, Shutdown(), "the first one stays")
}

func TestConfigureRefusesWhatIsNotAllowed(t *testing.T) {
	Isolate(t)
	err := Configure(config.WithDrainTimeout(time.Second), config.WithWarmupCurve(0))
	require.ErrorIs(t, err, config.ErrInvalid)
	assert.EqualError(t, err, "graceful: graceful.warmup.curve: 0 is not allowed; allowed: a number above 0 and up to 10")

	require.NoError(t, Load(nil))
	assert.Equal(t, config.Default(), *Get(), "none of them counts")
}

func TestFromInstanceErrors(t *testing.T) {
	Isolate(t)
	assert.Error(t, FromInstance(nil))
	assert.Error(t, FromInstance(&dubbo.Instance{}))
	assert.ErrorIs(t, FromInstance(instance(t, map[string]any{"graceful.drain.timeout": 3000})), config.ErrInvalid)
	require.NoError(t, Load(nil))
	assert.Equal(t, config.Default(), *Get(), "a refused instance leaves nothing behind")
}

func TestFileAndOptionMustFitTogether(t *testing.T) {
	Isolate(t)
	require.NoError(t, Configure(config.WithShutdownTimeout(50*time.Second)))
	require.NoError(t, FromInstance(instance(t, map[string]any{"graceful.shutdown.grace-period": "20s"})))
	err := Load(nil)
	require.ErrorIs(t, err, config.ErrInvalid)
	assert.Same(t, err, Load(nil), "a second call does not forget it")
	assert.Equal(t, config.Default(), *Get())
}

func TestOnLoad(t *testing.T) {
	Isolate(t)
	var seen []time.Duration
	record := func(s *config.Settings) {
		seen = append(seen, s.Drain.Timeout)
		assert.NotNil(t, Shutdown(), "no lock is held")
	}
	OnLoad(record)
	assert.Empty(t, seen)
	require.NoError(t, Configure(config.WithDrainTimeout(7*time.Second)))
	require.NoError(t, Load(global.DefaultShutdownConfig()))
	assert.Equal(t, []time.Duration{7 * time.Second}, seen)
	OnLoad(record)
	assert.Equal(t, []time.Duration{7 * time.Second, 7 * time.Second}, seen, "at once")
	require.NoError(t, Load(nil))
	assert.Len(t, seen, 2, "only once")
}

func TestOnLoadIsNotCalledWithBadSettings(t *testing.T) {
	Isolate(t)
	OnLoad(func(*config.Settings) { t.Error("called") })
	require.NoError(t, Configure(config.WithLoadbalance("no-such-balancer")))
	require.ErrorIs(t, Load(nil), config.ErrInvalid)
	OnLoad(func(*config.Settings) { t.Error("called") })
}

func TestUnregisteredLoadBalancer(t *testing.T) {
	for name, tc := range map[string]struct {
		option config.Option
		want   string
	}{
		"of all references":    {config.WithLoadbalance("nope"), "graceful.loadbalance: nope is no registered load balancer (is its package imported?); allowed: settings-test"},
		"of the blacklist":     {config.WithBlacklistLoadbalance("nope"), "graceful.blacklist.loadbalance: nope is no registered load balancer (is its package imported?); allowed: settings-test"},
		"set to the default":   {config.WithBlacklistLoadbalance("warmup"), "graceful.blacklist.loadbalance: warmup is no registered load balancer (is its package imported?); allowed: settings-test"},
		"registered":           {config.WithLoadbalance("settings-test"), ""},
		"default, no importer": {config.WithRetryEnabled(true), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := config.Default()
			s.Apply(tc.option)
			err := checkBalancers(&s, []string{"settings-test"})
			if tc.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.EqualError(t, err, tc.want)
		})
	}

	// And against what is really registered.
	Isolate(t)
	extension.SetLoadbalance("settings-test", func() loadbalance.LoadBalance { return nil })
	t.Cleanup(func() { extension.UnregisterLoadbalance("settings-test") })
	require.NoError(t, Configure(config.WithLoadbalance("settings-test")))
	require.NoError(t, Load(nil))
}

func TestBothBalancersWrongIsAlwaysTheSameError(t *testing.T) {
	s := config.Default()
	s.Apply(config.WithLoadbalance("a"), config.WithBlacklistLoadbalance("b"))
	for range 50 {
		assert.ErrorContains(t, checkBalancers(&s, nil), "graceful.blacklist.loadbalance: b ")
	}
}

func TestCheckRegistries(t *testing.T) {
	delegate := func(name string) map[string]string { return map[string]string{config.DelegateKey: name} }
	for name, tc := range map[string]struct {
		registries map[string]*global.RegistryConfig
		want       string
	}{
		"none":      {nil, ""},
		"nil":       {map[string]*global.RegistryConfig{"a": nil}, ""},
		"not ours":  {map[string]*global.RegistryConfig{"a": {Protocol: "nacos", Address: "nacos://127.0.0.1:8848"}}, ""},
		"ours":      {map[string]*global.RegistryConfig{"a": {Protocol: "graceful", Address: "127.0.0.1:2181", Params: delegate("zookeeper")}}, ""},
		"by scheme": {map[string]*global.RegistryConfig{"a": {Protocol: "graceful", Address: "graceful+nacos://127.0.0.1:8848"}}, ""},
		"scheme over protocol": {
			map[string]*global.RegistryConfig{"main": {Protocol: "graceful", Address: "nacos://127.0.0.1:8848", Params: delegate("nacos")}},
			"dubbo.registries.main.protocol: nacos ignores graceful.delegate=nacos (a scheme in address overwrites protocol); allowed: graceful with an address without a scheme, or an address that begins with graceful+nacos://",
		},
		"first by name": {
			map[string]*global.RegistryConfig{
				"z": {Protocol: "graceful"}, "b": {Protocol: "graceful", Params: delegate("consul")}, "a": {Protocol: "zookeeper"},
			},
			"dubbo.registries.b.params.graceful.delegate: consul is no supported registry; allowed: zookeeper, nacos, etcdv3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckRegistries(tc.registries)
			if tc.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.EqualError(t, err, tc.want)
			assert.ErrorIs(t, err, config.ErrInvalid)
		})
	}
}

func TestFromInstanceChecksRegistries(t *testing.T) {
	Isolate(t)
	// The instance is built without its registries: dubbo-go would look for a metadata report of that name first.
	ins := instance(t, nil)
	require.NoError(t, FromInstance(ins))
	require.NoError(t, Load(nil))
}

func TestDubboShutdownKeepsItsMeaning(t *testing.T) {
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for name, tc := range map[string]struct {
		upstream func(*global.ShutdownConfig)
		ours     []config.Option
		want     func(*config.Settings)
		notes    int
	}{
		"defaults change nothing": {func(*global.ShutdownConfig) {}, nil, func(*config.Settings) {}, 0},
		"a default in another spelling": {
			func(c *global.ShutdownConfig) { c.Timeout, c.StepTimeout = "1m", "3000ms" }, nil, func(*config.Settings) {}, 0,
		},
		"timeout, shorter than dubbo-go allows": {
			func(c *global.ShutdownConfig) { c.Timeout = "20s" }, nil, func(s *config.Settings) { s.Shutdown.Timeout = seconds(20) }, 1,
		},
		"step-timeout is for both directions": {
			func(c *global.ShutdownConfig) { c.StepTimeout = "10s" }, nil,
			func(s *config.Settings) { s.Drain.InboundTimeout, s.Drain.OutboundTimeout = seconds(10), seconds(10) }, 2,
		},
		"consumer-update-wait-time": {
			func(c *global.ShutdownConfig) { c.ConsumerUpdateWaitTime = "5s" }, nil, func(s *config.Settings) { s.Drain.MinWait = seconds(5) }, 1,
		},
		"offline-request-window-timeout": {
			func(c *global.ShutdownConfig) { c.OfflineRequestWindowTimeout = "1s" }, nil, func(s *config.Settings) { s.Drain.Quiet = seconds(1) }, 1,
		},
		"notify-timeout": {
			func(c *global.ShutdownConfig) { c.NotifyTimeout = "2s" }, nil, func(s *config.Settings) { s.Drain.Timeout = seconds(2) }, 1,
		},
		"closing-invoker-expire-time": {
			func(c *global.ShutdownConfig) { c.ClosingInvokerExpireTime = "45s" }, nil, func(s *config.Settings) { s.Blacklist.NoticeTime = seconds(45) }, 1,
		},
		"ours win where both are set": {
			func(c *global.ShutdownConfig) { c.Timeout, c.StepTimeout = "20s", "10s" },
			[]config.Option{config.WithShutdownTimeout(seconds(8)), config.WithDrainOutboundTimeout(seconds(3))},
			func(s *config.Settings) { s.Shutdown.Timeout, s.Drain.InboundTimeout = seconds(8), seconds(10) }, 1,
		},
		"ours win also with the default's value": {
			func(c *global.ShutdownConfig) { c.NotifyTimeout = "1s" },
			[]config.Option{config.WithDrainTimeout(config.Default().Drain.Timeout)}, func(*config.Settings) {}, 0,
		},
		"a grace period of ours decides the budget": {
			func(c *global.ShutdownConfig) { c.Timeout = "120s" },
			[]config.Option{config.WithShutdownGracePeriod(seconds(20))}, func(s *config.Settings) { s.Shutdown.GracePeriod = seconds(20) }, 0,
		},
		"what dubbo-go cannot read changes nothing": {
			func(c *global.ShutdownConfig) { c.Timeout, c.StepTimeout, c.NotifyTimeout = "soon", "", "5" }, nil, func(*config.Settings) {}, 0,
		},
		"what is not allowed changes nothing, and is said": {
			func(c *global.ShutdownConfig) { c.Timeout, c.NotifyTimeout = "48h", "-1s" }, nil, func(*config.Settings) {}, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			shutdown := global.DefaultShutdownConfig()
			tc.upstream(shutdown)
			given := config.Default()
			given.Apply(tc.ours...)
			got, notes := withUpstream(given, shutdown)
			want := given
			tc.want(&want)
			assert.Equal(t, want, got)
			assert.Len(t, notes, tc.notes, "%v", notes)
		})
	}
	s, notes := withUpstream(config.Default(), nil)
	assert.Equal(t, config.Default(), s)
	assert.Empty(t, notes)
}

func BenchmarkGet(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if Get() == nil {
			b.Fatal("never")
		}
	}
}
