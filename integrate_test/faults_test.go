// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integrate_test

import (
	"context"
	"strings"
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

// A provider that stops and starts at the same address is a new instance (dubbo-go 3615): no mark of its
// predecessor keeps it out.
func TestRestartAtTheSameAddress(t *testing.T) {
	const patience = time.Second
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			srv := servers.get(t, kind)
			ctx := testContext(t, testTimeout)
			run := begin(ctx, t, scenario(t, rollout.Graceful(kind, srv.Addr, shop.LevelService), "tri"))
			step(ctx, t, run, "steady", hold(run, time.Second))

			var (
				next  *rollout.Process
				since time.Time
			)
			step(ctx, t, run, "restart", func(ctx context.Context) error {
				var err error
				next, err = run.RestartInPlace(ctx, run.Live(shop.Provider)[0])
				since = time.Now()
				return err
			})
			step(ctx, t, run, "after", hold(run, 2*time.Second))
			report := finish(ctx, t, run)
			requireNoneFailed(t, report)
			requireCleanExits(t, report)

			served := 0
			for _, rec := range report.Records {
				if rec.ServedBy == next.Name && rec.Sent.Before(since.Add(patience)) {
					served++
				}
			}
			require.NotZero(t, served, "%s got no request within %v of being registered", next.Name, patience)
		})
	}
}

// A ZooKeeper server that does not answer for 4 s makes every client reconnect. From then on dubbo-go's
// interface-level consumers learn nothing any more.
func TestRollAfterZooKeeperWasFrozen(t *testing.T) {
	const frozen = 4 * time.Second
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			srv := testserver.ZooKeeper(t)
			ctx := testContext(t, testTimeout)
			run := begin(ctx, t, scenario(t, rollout.Graceful("zookeeper", srv.Addr, level), "tri"))
			step(ctx, t, run, "steady", hold(run, time.Second))
			step(ctx, t, run, "frozen", func(ctx context.Context) error {
				if err := srv.Freeze(); err != nil {
					return err
				}
				holdErr := run.Hold(ctx, frozen)
				if err := srv.Thaw(); err != nil {
					return err
				}
				return holdErr
			})
			step(ctx, t, run, "thawed", hold(run, 2*time.Second))
			step(ctx, t, run, "roll providers", roll(run, shop.Provider))
			step(ctx, t, run, "roll proxies", roll(run, shop.Proxy))
			step(ctx, t, run, "after", hold(run, time.Second))
			report := finish(ctx, t, run)
			requireNoneFailed(t, report)
			requireCleanExits(t, report)
		})
	}
}

// A provider that is killed takes with it what it was working on, and nothing else.
func TestKilledProvider(t *testing.T) {
	for _, kind := range kinds {
		for _, level := range levels {
			t.Run(kind+"/"+string(level), func(t *testing.T) {
				srv := servers.get(t, kind)
				ctx := testContext(t, testTimeout)
				run := begin(ctx, t, scenario(t, rollout.Graceful(kind, srv.Addr, level), "tri"))
				step(ctx, t, run, "steady", hold(run, time.Second))

				var victim *rollout.Process
				step(ctx, t, run, "kill", func(ctx context.Context) error {
					var err error
					if victim, err = run.Kill(ctx, shop.Provider); err != nil {
						return err
					}
					return run.Hold(ctx, 8*time.Second) // beyond the session that keeps its record
				})
				report := finish(ctx, t, run)
				require.Empty(t, report.Problems)
				require.Empty(t, report.Unexplained(), "requests failed that were not in flight on %s", victim.Name)

				ledger, err := victim.Ledger()
				require.NoError(t, err)
				begun := 0
				for _, entry := range ledger {
					if entry.End.IsZero() {
						begun++
					}
				}
				served := 0
				for _, f := range report.Failures {
					if strings.HasPrefix(f.Cause, "being served") {
						served++
					}
				}
				require.LessOrEqual(t, served, begun, "the others were on the wire: %+v", report.Failures)
				t.Logf("%d requests had begun, %d failed", begun, len(report.Failures))
				requireAvoided(ctx, t, run, victim)
			})
		}
	}
}

// requireAvoided wants no proxy to have asked the dead process again once it knew.
func requireAvoided(ctx context.Context, t *testing.T, run *rollout.Run, dead *rollout.Process) {
	t.Helper()
	const known = 500 * time.Millisecond // the first refused connection comes within a few requests
	exit, err := dead.Wait(ctx)
	require.NoError(t, err)
	for _, proxy := range run.Live(shop.Proxy) {
		entries, err := proxy.Ledger()
		require.NoError(t, err)
		for _, entry := range entries {
			for _, try := range entry.Tried {
				if try.Addr == dead.Addr() {
					require.WithinRange(t, try.At, time.Time{}, exit.At.Add(known),
						"%s asked the killed %s again for request %s", proxy.Name, dead.Name, entry.ID)
				}
			}
		}
	}
}
