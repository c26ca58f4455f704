// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

import (
	clusterbase "dubbo.apache.org/dubbo-go/v3/cluster/cluster/base"
	"dubbo.apache.org/dubbo-go/v3/cluster/loadbalance"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/filter"
	"dubbo.apache.org/dubbo-go/v3/global"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.uber.org/goleak"

	"pgregory.net/rapid"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/settings"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

func TestProviderChain(t *testing.T) {
	for name, tc := range map[string]struct {
		chain      string
		has, taken bool
		want       string
		added      bool
	}{
		"dubbo-go's default, with the coordinator":    {constant.DefaultServiceFilters, true, true, "pshutdown,echo,token,accesslog,tps,generic_service,execute", false},
		"dubbo-go's default, without the coordinator": {constant.DefaultServiceFilters, true, false, "pgraceful,pshutdown,echo,token,accesslog,tps,generic_service,execute", true},
		"ours named at the end":                       {"echo,execute,pgraceful", true, true, "pgraceful,echo,execute", false},
		"both named":                                  {"echo,pshutdown,execute,pgraceful", true, false, "pgraceful,pshutdown,echo,execute", false},
		"both named twice":                            {"pshutdown,pgraceful,echo,pshutdown,pgraceful", true, true, "pgraceful,pshutdown,echo", false},
		"custom chain that lacks both":                {"echo", true, true, "pgraceful,echo", true},
		"empty chain":                                 {"", true, true, "pgraceful", true},
		"blanks":                                      {" echo , pgraceful ,", true, true, "pgraceful,echo", false},
		"no filter of ours imported":                  {"echo,pshutdown", false, false, "pshutdown,echo", false},
		"metrics and tracing stay behind":             {constant.DefaultServiceFilters + ",metrics,otelServerTrace", true, true, "pshutdown,echo,token,accesslog,tps,generic_service,execute,metrics,otelServerTrace", false},
	} {
		t.Run(name, func(t *testing.T) {
			chain, added := providerChain(split(tc.chain), tc.has, tc.taken)
			assert.Equal(t, tc.want, strings.Join(chain, ","))
			assert.Equal(t, tc.added, added)
		})
	}
}

func TestProviderChainProperties(t *testing.T) {
	names := rapid.SampledFrom([]string{"echo", "tps", "execute", "pgraceful", "pshutdown", "own"})
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(names).Draw(t, "chain")
		has, taken := rapid.Bool().Draw(t, "has"), rapid.Bool().Draw(t, "taken")
		out, added := providerChain(slices.Clone(in), has, taken)
		isOurs := func(f string) bool { return f == "pgraceful" || f == "pshutdown" }
		others := func(chain []string) []string {
			return slices.DeleteFunc(slices.Clone(chain), isOurs)
		}
		if !slices.Equal(others(in), others(out)) {
			t.Fatalf("the rest of %v changed: %v", in, out)
		}
		if i := slices.IndexFunc(out, func(f string) bool { return !isOurs(f) }); i >= 0 && slices.ContainsFunc(out[i:], isOurs) {
			t.Fatalf("not in front: %v", out)
		}
		counted := slices.Contains(out, "pgraceful") || taken && slices.Contains(out, "pshutdown")
		if has && !counted {
			t.Fatalf("%v is not counted: %v", in, out)
		}
		again, addedAgain := providerChain(slices.Clone(out), has, taken)
		if !slices.Equal(out, again) || addedAgain {
			t.Fatalf("a second time changes %v (added=%v) to %v", out, added, again)
		}
	})
}

func TestAdaptService(t *testing.T) {
	fakeFilters(t, map[string]filter.Filter{providerFilter: &fakeFilter{}, constant.GracefulShutdownProviderFilterKey: &otherFilter{}})
	url := common.NewURLWithOptions(common.WithParamsValue(constant.ServiceFilterKey, "echo,execute"))
	adaptService(url)
	assert.Equal(t, "pgraceful,echo,execute", url.GetParam(constant.ServiceFilterKey, ""))

	url.SetParam(constant.ServiceFilterKey, constant.DefaultServiceFilters)
	adaptService(url)
	assert.Equal(t, "pgraceful,pshutdown,echo,token,accesslog,tps,generic_service,execute", url.GetParam(constant.ServiceFilterKey, ""))

	fakeFilters(t, map[string]filter.Filter{constant.GracefulShutdownProviderFilterKey: &fakeFilter{}})
	url.SetParam(constant.ServiceFilterKey, constant.DefaultServiceFilters)
	adaptService(url)
	assert.Equal(t, "pshutdown,echo,token,accesslog,tps,generic_service,execute", url.GetParam(constant.ServiceFilterKey, ""))
}

func TestAdaptReference(t *testing.T) {
	for name, tc := range map[string]struct {
		params   map[string]string
		setting  string
		taken    bool // cshutdown is ours
		balancer string
		filters  string
	}{
		"nothing set":                         {nil, "", true, "", "cshutdown"},
		"dubbo-go's own":                      {map[string]string{"loadbalance": "p2c"}, "", false, "p2c", "cshutdown"},
		"ours, named by the reference":        {map[string]string{"loadbalance": "blacklist"}, "", false, "blacklist", "cgraceful,cshutdown"},
		"ours, for all":                       {nil, "blacklist", false, "blacklist", "cgraceful,cshutdown"},
		"ours, for all, with the coordinator": {nil, "blacklist", true, "blacklist", "cshutdown"},
		"the reference's own wins":            {map[string]string{"loadbalance": "roundrobin"}, "blacklist", false, "roundrobin", "cshutdown"},
		"another one for all":                 {nil, "roundrobin", false, "roundrobin", "cshutdown"},
		"warm-up alone":                       {nil, "warmup", false, "warmup", "cgraceful,cshutdown"},
		"named already":                       {map[string]string{"reference.filter": "cshutdown,cgraceful"}, "blacklist", false, "blacklist", "cshutdown,cgraceful"},
		"of one method":                       {map[string]string{"loadbalance": "p2c", "methods.Pay.loadbalance": "blacklist"}, "", false, "p2c", "cgraceful,cshutdown"},
		"adaptive service":                    {map[string]string{"loadbalance": "p2c", "cluster": "adaptiveService"}, "blacklist", false, "p2c", "cshutdown"},
		"adaptive service names none":         {map[string]string{"cluster": "adaptiveService"}, "blacklist", false, "", "cshutdown"},
	} {
		t.Run(name, func(t *testing.T) {
			fakes := map[string]filter.Filter{consumerFilter: &fakeFilter{}, constant.GracefulShutdownConsumerFilterKey: &otherFilter{}}
			if tc.taken {
				fakes[constant.GracefulShutdownConsumerFilterKey] = fakes[consumerFilter]
			}
			fakeFilters(t, fakes)
			url := reference(nil)
			for k, v := range tc.params {
				url.SetParam(k, v)
			}
			s := config.Default()
			s.Loadbalance = tc.setting
			adaptReference(url, &s)
			assert.Equal(t, tc.balancer, url.GetParam(constant.LoadbalanceKey, ""))
			assert.Equal(t, tc.filters, url.GetParam(constant.ReferenceFilterKey, ""))
		})
	}
}

func TestWithoutTheFilterPackageNoFilterIsNamed(t *testing.T) {
	fakeFilters(t, nil)
	url := reference(nil)
	s := config.Default()
	s.Loadbalance = "blacklist"
	adaptReference(url, &s)
	assert.Equal(t, "cshutdown", url.GetParam(constant.ReferenceFilterKey, ""))
}

// service is how a reference without generated code looks.
type service struct {
	GetUser func(ctx context.Context, id string) (string, error) `dubbo:"getUser"`
	Pay     func(ctx context.Context) error
	_       func()
	Name    string
}

// A provider always publishes a load balancer, and dubbo-go lets it win over the reference's where the reference has no generated
// code (3.3.2). Here the balancer is asked for as the cluster does it, on the merged URL.
func TestLoadBalancerOfAReferenceWinsWithoutGeneratedCode(t *testing.T) {
	for _, name := range []string{"random", "bootstrap-test"} {
		extension.SetLoadbalance(name, func() loadbalance.LoadBalance { return named(name) })
		t.Cleanup(func() { extension.UnregisterLoadbalance(name) })
	}
	provider, err := common.NewURL("tri://127.0.0.1:20000/shop.Backend?interface=shop.Backend&loadbalance=random&cluster=failover&retries=1")
	require.NoError(t, err)
	asked := func(url *common.URL, method string) loadbalance.LoadBalance {
		return clusterbase.GetLoadBalance(base.NewBaseInvoker(provider.MergeURL(url)), method)
	}
	s := config.Default()
	s.Loadbalance = "bootstrap-test"

	for name, tc := range map[string]struct {
		url     *common.URL
		methods []string
	}{
		"service struct":  {reference(&service{}), []string{"GetUser", "getUser", "Pay"}},
		"generic":         {func() *common.URL { u := reference(nil); u.SetParam(constant.GenericKey, "true"); return u }(), []string{"$invoke", "GetUser"}},
		"nothing known":   {reference(nil), []string{"GetUser"}},
		"generated code":  {func() *common.URL { u := reference(nil); u.Methods = []string{"GetUser"}; return u }(), []string{"GetUser"}},
		"struct by value": {reference(service{}), []string{"GetUser"}},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "generated code" {
				tc.url.SetParam(constant.LoadbalanceKey, "bootstrap-test")
				require.Equal(t, named("random"), asked(tc.url, tc.methods[0]), "dubbo-go has changed: adaptReference may not be needed any more")
				tc.url.SetParam(constant.LoadbalanceKey, "")
			}
			adaptReference(tc.url, &s)
			for _, m := range tc.methods {
				assert.Equal(t, named("bootstrap-test"), asked(tc.url, m), m)
			}
		})
	}

	t.Run("a method's own balancer stays", func(t *testing.T) {
		url := reference(&service{})
		url.SetParam("methods.Pay.loadbalance", "random")
		adaptReference(url, &s)
		assert.Equal(t, named("random"), asked(url, "Pay"))
		assert.Equal(t, named("bootstrap-test"), asked(url, "GetUser"))
	})
	t.Run("nothing is touched where no balancer is named", func(t *testing.T) {
		url := reference(&service{})
		before := url.String()
		none := config.Default()
		adaptReference(url, &none)
		assert.Equal(t, before, url.String())
		assert.Empty(t, url.Methods)
	})
	t.Run("with a struct cluster and retries stay as dubbo-go merges them", func(t *testing.T) {
		url := reference(&service{})
		url.SetParam(constant.RetriesKey, "5")
		adaptReference(url, &s)
		assert.Equal(t, "1", provider.MergeURL(url).GetParam(constant.RetriesKey, ""))
	})
}

func reference(rpc any) *common.URL {
	url := common.NewURLWithOptions(
		common.WithPath("shop.Backend"), common.WithProtocol("tri"),
		common.WithParamsValue(constant.InterfaceKey, "shop.Backend"),
		common.WithParamsValue(constant.ReferenceFilterKey, "cshutdown"),
	)
	if rpc != nil {
		url.SetAttribute(constant.RpcServiceKey, rpc)
	}
	return url
}

type named string

func (named) Select([]base.Invoker, base.Invocation) base.Invoker { return nil }

type fakeFilter struct{ filter.Filter }

type otherFilter struct{ fakeFilter }

func (*fakeFilter) Invoke(ctx context.Context, invoker base.Invoker, inv base.Invocation) result.Result {
	return invoker.Invoke(ctx, inv)
}

// fakeFilters replaces the filters that this package looks at; a name that is not given is not registered.
func fakeFilters(t *testing.T, fakes map[string]filter.Filter) {
	for _, name := range []string{providerFilter, consumerFilter, constant.GracefulShutdownProviderFilterKey, constant.GracefulShutdownConsumerFilterKey} {
		before, had := extension.GetFilter(name)
		extension.UnregisterFilter(name)
		if f, ok := fakes[name]; ok {
			extension.SetFilter(name, func() filter.Filter { return f })
		}
		t.Cleanup(func() {
			extension.UnregisterFilter(name)
			if had {
				extension.SetFilter(name, func() filter.Filter { return before })
			}
		})
	}
}

func TestInstanceTableHasTheSameDefaults(t *testing.T) {
	s := config.Default()
	assert.Equal(t, instance.DefaultSettings(), limits(&s))
}

// A key that is not handed on would be accepted and do nothing.
func TestInstanceTableGetsEverySetting(t *testing.T) {
	s := config.Default()
	s.Apply(
		config.WithBlacklistConnectErrors(2), config.WithBlacklistTransportErrors(3), config.WithBlacklistTimeoutErrors(4),
		config.WithBlacklistBase(5), config.WithBlacklistMax(6), config.WithBlacklistNoticeTime(7),
		config.WithBlacklistMaxPercent(8), config.WithBlacklistPanicPercent(9), config.WithHealthCheckInterval(10),
		config.WithWarmupWindow(11), config.WithWarmupCurve(12), config.WithWarmupFloor(13), config.WithWarmupRequests(14),
	)
	assert.Equal(t, instance.Settings{
		ConnectErrors: 2, TransportErrors: 3, TimeoutErrors: 4, Base: 5, Max: 6, NoticeTime: 7, MaxPercent: 8, PanicPercent: 9,
		DialInterval: 10, WarmupWindow: 11, WarmupCurve: 12, WarmupFloor: 13, WarmupRequests: 14,
		HealthyInterval: instance.DefaultSettings().HealthyInterval,
	}, limits(&s))
}

func isolate(t *testing.T) {
	settings.Isolate(t)
	first, service, reference := hooks.first, hooks.service, hooks.reference
	hooks.first, hooks.service, hooks.reference = nil, nil, nil
	t.Cleanup(func() { hooks.first, hooks.service, hooks.reference = first, service, reference })
}

func TestPostProcessor(t *testing.T) {
	isolate(t)
	require.NoError(t, settings.Configure(config.WithDrainMinWait(1)))
	var mu sync.Mutex
	var seen []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, what)
	}
	settings.OnLoad(func(s *config.Settings) { note(fmt.Sprintf("settings %d", s.Drain.MinWait)) })
	OnFirst(func() { note("first") })
	OnService(func(u *common.URL) { note("service " + u.GetParam(constant.ServiceFilterKey, "")) })
	OnReference(func(u *common.URL) { note("reference " + u.Path) })
	fakeFilters(t, map[string]filter.Filter{providerFilter: &fakeFilter{}})

	var stderr bytes.Buffer
	var exits []int
	p := &postProcessor{stderr: &stderr, exit: func(code int) { exits = append(exits, code) }}
	shutdown := global.DefaultShutdownConfig()
	service := common.NewURLWithOptions(
		common.WithParamsValue(constant.ServiceFilterKey, "echo"),
		common.WithAttribute(constant.ShutdownConfigPrefix, shutdown),
	)
	p.PostProcessServiceConfig(service)
	assert.Equal(t, []string{"settings 1", "first", "service pgraceful,echo"}, seen)
	assert.Same(t, shutdown, settings.Shutdown())

	seen = nil
	p.PostProcessReferenceConfig(reference(nil))
	p.PostProcessServiceConfig(service)
	assert.Equal(t, []string{"reference /shop.Backend", "service pgraceful,echo"}, seen)
	assert.Empty(t, exits)

	seen = nil
	wrong := reference(nil)
	wrong.SetAttribute(constant.RegistriesConfigKey, map[string]*global.RegistryConfig{"main": {Protocol: "graceful"}})
	p.PostProcessReferenceConfig(wrong)
	assert.Equal(t, []int{1}, exits)
	assert.Equal(t, "graceful: dubbo.registries.main.params.graceful.delegate: nothing is set, but the protocol graceful needs a registry behind it; allowed: zookeeper, nacos, etcdv3\n", stderr.String())
}

// Whatever arrives at once: the first functions have all returned before any URL is handed on, and run once.
func TestFirstRunsOnceAndBeforeEverything(t *testing.T) {
	isolate(t)
	p := &postProcessor{stderr: os.Stderr, exit: os.Exit}
	ran := 0
	OnFirst(func() { ran++ })
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			p.first(reference(nil))
			if ran != 1 {
				t.Errorf("ran %d times", ran)
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 1, ran)
}
