// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package rollout

import (
	"context"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/internal/shop"
	"github.com/dubbogo/graceful/internal/testserver"
)

// The harness must measure dubbo-go alone as well as it measures the module.
func TestRollOfVanillaProcesses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	srv := testserver.ZooKeeper(t)
	bins, err := Build(ctx)
	require.NoError(t, err)
	for _, protocol := range []string{"tri", "dubbo"} {
		for _, level := range []shop.Level{shop.LevelInterface, shop.LevelService} {
			t.Run(protocol+"/"+string(level), func(t *testing.T) {
				run, err := Start(ctx, Config{
					Title: t.Name(), Binary: bins.Plain, Dir: t.TempDir(), Registry: Plain(ZooKeeper, srv.Addr, level),
					Protocol: protocol, Providers: 2, Proxies: 1, Rate: 200, HandlerTime: 20 * time.Millisecond,
				})
				require.NoError(t, err)
				defer run.Close()
				require.NoError(t, run.Step(ctx, "steady", func(ctx context.Context) error { return run.Hold(ctx, time.Second) }))
				require.NoError(t, run.Step(ctx, "roll", func(ctx context.Context) error { return run.Roll(ctx, shop.Provider) }))
				report, err := run.Finish(ctx)
				require.NoError(t, err)
				t.Logf("%+v", report.Total)
				for _, s := range report.Steps {
					t.Logf("%s %+v %v", s.Name, s.Figures, s.Exits)
				}
				for _, f := range report.Failures[:min(5, len(report.Failures))] {
					t.Logf("%+v", f)
				}
				require.Empty(t, report.Problems)
			})
		}
	}
}
