// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integrate_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/internal/rollout"
	"github.com/dubbogo/graceful/internal/shop"
	"github.com/dubbogo/graceful/internal/testserver"
)

// limits of the time from SIGTERM to exit. Nacos pushes a change after 0.5 to 0.6 s, which no provider can shorten.
var limits = map[string]struct{ idle, loaded time.Duration }{
	"zookeeper": {500 * time.Millisecond, time.Second},
	"etcdv3":    {500 * time.Millisecond, time.Second},
	"nacos":     {1200 * time.Millisecond, 1700 * time.Millisecond},
}

// An idle provider with default settings has nothing to wait for. The best of three tries counts: what is
// asked is how long the drain takes, not how busy the machine is.
func TestIdleProviderLeavesAtOnce(t *testing.T) {
	const tries = 3
	for _, kind := range kinds {
		for _, useLoad := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/load=%t", kind, useLoad), func(t *testing.T) {
				srv := servers.get(t, kind)
				ctx := testContext(t, testTimeout)
				reg := inGroup(t, rollout.Graceful(kind, srv.Addr, shop.LevelInterface))
				dir, err := rollout.OpenDirectory(ctx, reg)
				require.NoError(t, err)
				t.Cleanup(func() { _ = dir.Close() })
				var took []time.Duration
				for i := range tries {
					p := startProvider(ctx, t, fmt.Sprintf("provider-%d", i), reg, func(o *shop.Options) { o.UseLoad = useLoad })
					require.NoError(t, p.Ready(ctx, dir))
					require.NoError(t, p.Term())
					exit, err := p.Wait(ctx)
					require.NoError(t, err)
					require.Zero(t, exit.Code, "%+v", exit)
					took = append(took, exit.Took)
				}
				t.Logf("SIGTERM to exit: %v", took)
				require.LessOrEqual(t, slices.Min(took), limits[kind].idle)
			})
		}
	}
}

// The same under load. Again the best exit of a roll counts.
func TestLoadedProviderLeavesSoon(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			srv := servers.get(t, kind)
			ctx := testContext(t, testTimeout)
			run := begin(ctx, t, scenario(t, rollout.Graceful(kind, srv.Addr, shop.LevelInterface), "tri"))
			step(ctx, t, run, "steady", hold(run, time.Second))
			step(ctx, t, run, "roll providers", roll(run, shop.Provider))
			report := finish(ctx, t, run)
			requireNoneFailed(t, report)
			var took []time.Duration
			for _, e := range report.Steps[1].Exits {
				took = append(took, e.Took)
			}
			t.Logf("SIGTERM to exit: %v", took)
			require.LessOrEqual(t, slices.Min(took), limits[kind].loaded)
		})
	}
}

// startProvider starts a single provider of its own, without load.
func startProvider(ctx context.Context, t *testing.T, name string, reg shop.Registry, edit func(*shop.Options)) *rollout.Process {
	t.Helper()
	o := shop.Options{
		Role: shop.Provider, Name: name, Dir: t.TempDir(), Protocol: "tri",
		Registries: map[string]shop.Registry{"main": reg}, HandlerTime: handlerTime, Cluster: "failfast",
	}
	if edit != nil {
		edit(&o)
	}
	p, err := rollout.StartProcess(bins.Graceful, o, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			out, _ := os.ReadFile(p.LogPath())
			t.Logf("%s wrote:\n%s", name, out[max(0, len(out)-8192):])
		}
	})
	return p
}

// Handlers that panic leave nothing behind in the count, or the drain would wait for them.
func TestPanicsLeaveNoCount(t *testing.T) {
	srv := servers.get(t, "zookeeper")
	for _, protocol := range []string{"tri", "dubbo"} {
		t.Run(protocol, func(t *testing.T) {
			ctx := testContext(t, testTimeout)
			cfg := scenario(t, rollout.Graceful("zookeeper", srv.Addr, shop.LevelInterface), protocol)
			cfg.Edit = both(cfg.Edit, func(o *shop.Options) {
				if o.Role == shop.Provider {
					o.Fault = shop.Fault{Mode: "panic", Every: 5}
				}
			})
			run := begin(ctx, t, cfg)
			step(ctx, t, run, "panics", hold(run, 2*time.Second))
			step(ctx, t, run, "scale in", func(ctx context.Context) error {
				_, err := run.ScaleIn(ctx, shop.Provider)
				return err
			})
			report := finish(ctx, t, run)
			require.NotZero(t, report.Total.Failed, "no handler panicked, so nothing is proven")
			requireCleanExits(t, report)
			require.Less(t, report.Steps[1].SlowestExit(), 5*time.Second, "the drain waited for a request that is gone")
		})
	}
}

// A database outage: every handler answers Unavailable. That is an answer, and nobody is ejected for it.
func TestUnavailableAnswersEjectNobody(t *testing.T) {
	srv := servers.get(t, "zookeeper")
	ctx := testContext(t, testTimeout)
	cfg := scenario(t, rollout.Graceful("zookeeper", srv.Addr, shop.LevelInterface), "tri")
	sick := "provider-1"
	cfg.Edit = both(cfg.Edit, func(o *shop.Options) {
		if o.Name == sick {
			o.Fault = shop.Fault{Mode: "unavailable"}
		}
	})
	run := begin(ctx, t, cfg)
	step(ctx, t, run, "outage", hold(run, 4*time.Second))
	report := finish(ctx, t, run)

	executed := 0
	for _, p := range run.Live(shop.Provider) {
		if p.Name == sick {
			entries, err := p.Ledger()
			require.NoError(t, err)
			executed = len(entries)
		}
	}
	// A third of the requests is its share; an ejected instance would have got a handful.
	require.InEpsilon(t, float64(report.Total.Requests)/instances, float64(executed), 0.2,
		"%s got %d of %d requests", sick, executed, report.Total.Requests)
	require.Zero(t, report.Total.Retried, "an answer is never sent again")
}

// An app that owns its signals calls BeforeShutdown, then stops a web server of its own.
func TestAppWithItsOwnSignals(t *testing.T) {
	srv := servers.get(t, "zookeeper")
	ctx := testContext(t, testTimeout)
	cfg := scenario(t, rollout.Graceful("zookeeper", srv.Addr, shop.LevelInterface), "tri")
	no := false
	cfg.Edit = both(cfg.Edit, func(o *shop.Options) {
		if o.Role != shop.Client {
			o.InternalSignal = &no
		}
		if o.Role == shop.Provider {
			port, err := rollout.FreePort()
			if err != nil {
				panic(err)
			}
			o.WebPort = port
		}
	})
	run := begin(ctx, t, cfg)
	first := run.Live(shop.Provider)[0]
	page := fmt.Sprintf("http://127.0.0.1:%d/", first.WebPort)
	resp, err := http.Get(page)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())

	step(ctx, t, run, "steady", hold(run, time.Second))
	step(ctx, t, run, "roll providers", roll(run, shop.Provider))
	step(ctx, t, run, "roll proxies", roll(run, shop.Proxy))
	report := finish(ctx, t, run)
	requireNoneFailed(t, report)
	requireCleanExits(t, report)
	resp, err = http.Get(page)
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	require.Error(t, err, "the web server of the app ended with it")
}

// SIGTERM while the registration gate is still closed: nothing was published, nothing may be.
func TestSignalBeforeTheGateOpened(t *testing.T) {
	srv := servers.get(t, "zookeeper")
	ctx := testContext(t, time.Minute)
	reg := inGroup(t, rollout.Graceful("zookeeper", srv.Addr, shop.LevelInterface))
	dir, err := rollout.OpenDirectory(ctx, reg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dir.Close() })

	p := startProvider(ctx, t, "provider", reg, custom(map[string]any{"register": map[string]any{"delay": "30s"}}))
	require.NoError(t, p.Ready(ctx, nil), "it listens")
	require.NoError(t, p.Term())
	exit, err := p.Wait(ctx)
	require.NoError(t, err)
	require.Zero(t, exit.Code, "%+v", exit)
	require.Less(t, exit.Took, 5*time.Second)
	addrs, err := dir.List(ctx, shop.Provider)
	require.NoError(t, err)
	require.Empty(t, addrs, "a process that is gone was registered")
}

// A registry that is down at the start is waited for; the process neither panics nor gives up.
func TestRegistryIsDownAtTheStart(t *testing.T) {
	for _, kind := range kinds {
		for _, level := range levels {
			t.Run(kind+"/"+string(level), func(t *testing.T) {
				var srv *testserver.Server
				switch kind {
				case "zookeeper":
					srv = testserver.ZooKeeper(t)
				case "nacos":
					srv = testserver.Nacos(t)
				default:
					srv = testserver.Etcd(t)
				}
				ctx := testContext(t, testTimeout)
				require.NoError(t, srv.Stop())
				reg := inGroup(t, rollout.Graceful(kind, srv.Addr, level))
				p := startProvider(ctx, t, "provider", reg, nil)
				require.NoError(t, p.Ready(ctx, nil), "it listens while its registry is down")

				require.NoError(t, srv.Restart(ctx))
				dir, err := rollout.OpenDirectory(ctx, reg)
				require.NoError(t, err)
				t.Cleanup(func() { _ = dir.Close() })
				require.NoError(t, dir.Listed(ctx, shop.Provider, p.Addr()), "registered once the registry is there")

				require.NoError(t, p.Term())
				exit, err := p.Wait(ctx)
				require.NoError(t, err)
				require.Zero(t, exit.Code, "%+v", exit)
				out, err := os.ReadFile(p.LogPath())
				require.NoError(t, err)
				require.NotContains(t, string(out), "panic:")
				require.NotContains(t, string(out), "goroutine 1 [")
			})
		}
	}
}

// Both levels at once (registry-type: all): dubbo-go leaves the interface record behind.
func TestEveryRecordIsGone(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			srv := servers.get(t, kind)
			ctx := testContext(t, testTimeout)
			reg := inGroup(t, rollout.Graceful(kind, srv.Addr, shop.LevelAll))
			p := startProvider(ctx, t, "provider", reg, nil)
			var dirs []rollout.Directory
			for _, level := range levels {
				one := reg
				one.Level = level
				dir, err := rollout.OpenDirectory(ctx, one)
				require.NoError(t, err)
				t.Cleanup(func() { _ = dir.Close() })
				require.NoError(t, p.Ready(ctx, dir))
				dirs = append(dirs, dir)
			}
			require.NoError(t, p.Term())
			exit, err := p.Wait(ctx)
			require.NoError(t, err)
			require.Zero(t, exit.Code, "%+v", exit)
			// Nacos answers from a view that it renews every half second.
			soon, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			for i, dir := range dirs {
				require.NoError(t, dir.Gone(soon, shop.Provider, p.Addr()), "%s level", levels[i])
			}
		})
	}
}
