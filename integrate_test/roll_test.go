// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integrate_test

import (
	"context"
	"fmt"
	"testing"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/rollout"
	"github.com/dubbogo/graceful/internal/shop"
)

// Every provider and every proxy is replaced, without a pause, on every registry and level. The second
// round has no transparent retry: the drain must do it alone.
func TestRollingUpdate(t *testing.T) {
	type combination struct {
		kind     string
		level    shop.Level
		protocol string
	}
	var all []combination
	for _, kind := range kinds {
		for _, level := range levels {
			all = append(all, combination{kind, level, "tri"})
		}
	}
	all = append(all,
		combination{"zookeeper", shop.LevelInterface, "dubbo"},
		combination{"nacos", shop.LevelInterface, "dubbo"})

	for _, c := range all {
		for _, retry := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%s/%s/retry=%t", c.protocol, c.kind, c.level, retry), func(t *testing.T) {
				srv := servers.get(t, c.kind)
				ctx := testContext(t, testTimeout)
				cfg := scenario(t, rollout.Graceful(c.kind, srv.Addr, c.level), c.protocol)
				cfg.Edit = custom(map[string]any{"retry": map[string]any{"enabled": retry}})
				rollAll(ctx, t, cfg)
			})
		}
	}
}

// rollAll rolls providers and proxies and requires that nobody noticed.
func rollAll(ctx context.Context, t *testing.T, cfg rollout.Config) *rollout.Report {
	t.Helper()
	run := begin(ctx, t, cfg)
	step(ctx, t, run, "steady", hold(run, time.Second))
	step(ctx, t, run, "roll providers", roll(run, shop.Provider))
	step(ctx, t, run, "roll proxies", roll(run, shop.Proxy))
	step(ctx, t, run, "after", hold(run, time.Second))
	report := finish(ctx, t, run)
	requireNoneFailed(t, report)
	requireCleanExits(t, report)
	return report
}

// Over the dubbo protocol all calls to a provider share a connection, which dubbo-go closes under them
// when the record goes. The longer the calls, the more are lost.
func TestDubboProtocolWithLongCalls(t *testing.T) {
	for _, kind := range []string{"zookeeper", "nacos"} {
		t.Run(kind, func(t *testing.T) {
			srv := servers.get(t, kind)
			ctx := testContext(t, testTimeout)
			cfg := scenario(t, rollout.Graceful(kind, srv.Addr, shop.LevelInterface), "dubbo")
			cfg.HandlerTime = 500 * time.Millisecond
			rollAll(ctx, t, cfg)
		})
	}
}

// Calls of 8 s, longer than every fixed wait of dubbo-go, go through a roll.
func TestHandlersOfEightSeconds(t *testing.T) {
	srv := servers.get(t, "zookeeper")
	for _, protocol := range []string{"tri", "dubbo"} {
		t.Run(protocol, func(t *testing.T) {
			ctx := testContext(t, testTimeout)
			cfg := scenario(t, rollout.Graceful("zookeeper", srv.Addr, shop.LevelInterface), protocol)
			cfg.HandlerTime, cfg.RequestTimeout, cfg.Rate = 8*time.Second, 20*time.Second, 30
			cfg.Providers, cfg.Proxies = 2, 2
			cfg.Edit = custom(map[string]any{"drain": map[string]any{"outbound-timeout": "15s"}})
			rollAll(ctx, t, cfg)
		})
	}
}

// Large answers are written after the filters have returned, which is what the linger is for. The dubbo protocol of
// dubbo-go 3.3.2 sends at most 1,024,000 bytes in one message and loses answers of that size without any roll.
func TestLargeAnswers(t *testing.T) {
	srv := servers.get(t, "zookeeper")
	for protocol, size := range map[string]int{"tri": 1 << 20, "dubbo": 100_000} {
		t.Run(protocol, func(t *testing.T) {
			ctx := testContext(t, testTimeout)
			cfg := scenario(t, rollout.Graceful("zookeeper", srv.Addr, shop.LevelInterface), protocol)
			cfg.Rate = 25
			cfg.Edit = both(cfg.Edit, func(o *shop.Options) { o.ResponseBytes = size })
			report := rollAll(ctx, t, cfg)
			for _, rec := range report.Records {
				if rec.Bytes != size {
					t.Fatalf("request %s: got %d bytes of %d", rec.ID, rec.Bytes, size)
				}
			}
		})
	}
}
