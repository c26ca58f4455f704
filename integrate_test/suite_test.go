// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integrate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

const (
	rate        = 300 // requests a second, open loop
	handlerTime = 20 * time.Millisecond
	instances   = 3 // of providers and of proxies
	testTimeout = 4 * time.Minute
)

// kinds are the registries of the suite.
var kinds = []string{"zookeeper", "nacos", "etcdv3"}

var levels = []shop.Level{shop.LevelInterface, shop.LevelService}

var bins *rollout.Binaries

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if bins, err = rollout.Build(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if err = errors.Join(servers.stop(), bins.Close()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// shared servers serve all tests that do not disturb them; each is started at its first use.
type shared struct {
	mu   sync.Mutex
	byID map[string]*testserver.Server
	dirs []string
}

var servers = shared{byID: map[string]*testserver.Server{}}

func (s *shared) get(t *testing.T, kind string) *testserver.Server {
	t.Helper()
	if testserver.Skipped(kind) {
		t.Skipf("GRACEFUL_TEST_SKIP leaves %s out", kind)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if srv, ok := s.byID[kind]; ok {
		return srv
	}
	dir, err := os.MkdirTemp("", "graceful-suite-")
	require.NoError(t, err)
	s.dirs = append(s.dirs, dir)
	srv, err := testserver.Start(context.Background(), kind, dir)
	require.NoError(t, err)
	s.byID[kind] = srv
	return srv
}

func (s *shared) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, srv := range s.byID {
		errs = append(errs, srv.Stop())
	}
	for _, dir := range s.dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// scenario is a [rollout.Config] with what the tests of this suite have in common.
func scenario(t *testing.T, reg shop.Registry, protocol string) rollout.Config {
	t.Helper()
	return rollout.Config{
		Title: t.Name(), Binary: bins.Graceful, Dir: t.TempDir(), Registry: inGroup(t, reg), Protocol: protocol,
		Providers: instances, Proxies: instances, Rate: rate, HandlerTime: handlerTime,
		Edit: custom(nil),
	}
}

// inGroup keeps the records of a test away from those of the others on the same server.
func inGroup(t *testing.T, reg shop.Registry) shop.Registry {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		default:
			return '-'
		}
	}, t.Name())
	reg.Group = name
	return reg
}

// custom gives every process the settings under dubbo.custom.config-map.graceful.
func custom(settings map[string]any) func(*shop.Options) {
	all := map[string]any{"loadbalance": "blacklist"}
	maps.Copy(all, settings)
	return func(o *shop.Options) { o.Custom = map[string]any{"graceful": all} }
}

// both applies two edits in turn.
func both(edits ...func(*shop.Options)) func(*shop.Options) {
	return func(o *shop.Options) {
		for _, edit := range edits {
			edit(o)
		}
	}
}

// begin starts the scenario. Its processes end with the test, and their logs are shown if it failed.
func begin(ctx context.Context, t *testing.T, cfg rollout.Config) *rollout.Run {
	t.Helper()
	run, err := rollout.Start(ctx, cfg)
	if err != nil {
		keepLogs(t, cfg.Dir)
		t.Fatalf("%v\n%s", err, logTails(cfg.Dir))
	}
	t.Cleanup(func() {
		run.Close()
		if t.Failed() {
			keepLogs(t, cfg.Dir)
			t.Log(run.Logs(60))
		}
	})
	return run
}

// logTails returns the last lines of every process of a scenario that did not start.
func logTails(dir string) string {
	const keep = 4096
	files, _ := filepath.Glob(filepath.Join(dir, "*.log")) // the pattern is well-formed
	var b strings.Builder
	for _, file := range files {
		out, err := os.ReadFile(file)
		if err != nil {
			out = []byte(err.Error())
		}
		fmt.Fprintf(&b, "--- %s\n%s\n", file, out[max(0, len(out)-keep):])
	}
	return b.String()
}

// keepLogs copies the directory of a failed scenario to where GRACEFUL_TEST_LOGS says.
func keepLogs(t *testing.T, dir string) {
	to := os.Getenv("GRACEFUL_TEST_LOGS")
	if to == "" {
		return
	}
	to += "/" + strings.ReplaceAll(t.Name(), "/", "_") + time.Now().Format("-150405")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Logf("logs of the processes are not complete in %s: %v", to, err)
	}
}

func step(ctx context.Context, t *testing.T, run *rollout.Run, name string, f func(context.Context) error) {
	t.Helper()
	require.NoError(t, run.Step(ctx, name, f))
}

func hold(run *rollout.Run, d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error { return run.Hold(ctx, d) }
}

func roll(run *rollout.Run, role shop.Role) func(context.Context) error {
	return func(ctx context.Context) error { return run.Roll(ctx, role) }
}

// finish ends the load and returns the account, after writing it to the log of the test.
func finish(ctx context.Context, t *testing.T, run *rollout.Run) *rollout.Report {
	t.Helper()
	report, err := run.Finish(ctx)
	require.NoError(t, err)
	t.Logf("total: %s", line(report.Total))
	for _, s := range report.Steps {
		t.Logf("%s: %s, slowest exit %v", s.Name, line(s.Figures), s.SlowestExit().Round(time.Millisecond))
	}
	const shown = 10
	for _, f := range report.Failures[:min(shown, len(report.Failures))] {
		t.Logf("failed: %+v", f)
	}
	return report
}

func line(f rollout.Figures) string {
	return fmt.Sprintf("%d requests, %d failed, %d sent again, p50 %v, p99 %v, max %v",
		f.Requests, f.Failed, f.Retried, f.P50.Round(time.Millisecond), f.P99.Round(time.Millisecond), f.Max.Round(time.Millisecond))
}

// requireNoneFailed is the promise.
func requireNoneFailed(t *testing.T, report *rollout.Report) {
	t.Helper()
	require.Empty(t, report.Problems, "plan, answers and executions must agree")
	require.NotZero(t, report.Total.Requests, "a scenario without requests proves nothing")
	require.Zero(t, report.Total.Failed, "failed requests: %+v", report.Failures)
	require.Equal(t, report.Total.Requests, report.Executions, "each request is executed exactly once")
}

// requireCleanExits wants every process that got a SIGTERM to end with code 0.
func requireCleanExits(t *testing.T, report *rollout.Report) {
	t.Helper()
	for _, s := range report.Steps {
		for _, e := range s.Exits {
			require.Zero(t, e.Code, "%s in step %s: %+v", e.Process, s.Name, e)
		}
	}
}

func testContext(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
