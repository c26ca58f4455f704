// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package warmup

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.uber.org/goleak"
)

import (
	"github.com/dubbogo/graceful/integrate_test/warmup/report"
	"github.com/dubbogo/graceful/internal/rollout"
	"github.com/dubbogo/graceful/internal/shop"
	"github.com/dubbogo/graceful/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

const window = 20 * time.Second

// rate makes the measurement sharp enough for the 10 % that are allowed, of both shares, without needing a machine of its own.
// Of n requests an instance with the share p gets n*p with a standard deviation of sqrt(n*p*(1-p)); relative to n*p that
// is sqrt((1-p)/(n*p)), which is worst where the share is small. So the fresh instance has three times the weight of the
// other one: its share is 0.27 on average in the first fifth (its weight is 0.1*3 for two seconds and grows to 0.2*3 in
// the next two), and the other's is 0.27 in the last. With 1000 a second n is 4000 and the error 2.6 % there, less
// everywhere else: 10 % are 3.8 standard deviations, which chance alone exceeds once in seven thousand runs.
const rate = 1000

// child is a process of the measurement. It ends with the test.
func child(ctx context.Context, t *testing.T, binary string, args ...string) *bufio.Scanner {
	t.Helper()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = t.TempDir()
	var log strings.Builder
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		assert.NoError(t, stdin.Close()) // a provider ends now
		_, err := io.Copy(io.Discard, stdout)
		assert.NoError(t, err)
		assert.NoErrorf(t, cmd.Wait(), "%v: %s", args, &log)
		if t.Failed() {
			t.Logf("%v: %s", args, &log)
		}
	})
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<24)
	return lines
}

// line waits for a line of output that begins in a certain way; dubbo-go logs to the same place.
func line(t *testing.T, lines *bufio.Scanner, prefix string) string {
	t.Helper()
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), prefix) {
			return lines.Text()
		}
	}
	require.NoErrorf(t, lines.Err(), "waiting for %q", prefix)
	t.Fatalf("the process ended without a line that begins with %q", prefix)
	return ""
}

// dubbo-go 2541, dubbo 9990, 9675, 8541: the share of a fresh instance, measured, follows the curve.
func TestShareOfFreshInstance(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	binary := filepath.Join(t.TempDir(), "app")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./app").CombinedOutput()
	require.NoErrorf(t, err, "%s", out)

	etcd, err := testserver.Start(ctx, "etcdv3", t.TempDir())
	require.NoError(t, err)
	defer func() { assert.NoError(t, etcd.Stop()) }()

	var ports []string
	for range 2 {
		port, err := rollout.FreePort()
		require.NoError(t, err)
		ports = append(ports, strconv.Itoa(port))
	}
	records, err := rollout.OpenDirectory(ctx, rollout.Graceful("etcdv3", etcd.Addr, shop.LevelInterface))
	require.NoError(t, err)
	defer func() { assert.NoError(t, records.Close()) }()
	t.Run("measure", func(t *testing.T) {
		child(ctx, t, binary, "provider", etcd.Addr, ports[0], "0s", "100") // one that needs no warm-up
		require.NoError(t, records.Listed(ctx, shop.Provider, "127.0.0.1:"+ports[0]))
		consumer := child(ctx, t, binary, "consumer", etcd.Addr, "127.0.0.1:"+ports[0], window.String(), strconv.Itoa(rate))
		line(t, consumer, "ready")
		child(ctx, t, binary, "provider", etcd.Addr, ports[1], window.String(), strconv.Itoa(100*report.Weight))

		var r report.Report
		require.NoError(t, json.Unmarshal([]byte(line(t, consumer, "{")), &r))
		require.True(t, r.WarmIsWarm)
		require.Zerof(t, len(r.Failed), "the first and last: %q", slices.Concat(r.Failed[:min(3, len(r.Failed))], r.Failed[max(0, len(r.Failed)-3):]))
		t.Logf("slowest answer: %v", r.Slowest)
		total := 0
		for i, f := range r.Fifths {
			total += f.Requests
			t.Logf("fifth %d: %d requests, %d to the fresh instance, %.0f by the formula: %+.1f %%",
				i+1, f.Requests, f.Fresh, f.Expected, 100*(float64(f.Fresh)/f.Expected-1))
			assert.InEpsilonf(t, f.Expected, f.Fresh, 0.10, "fresh instance, fifth %d", i+1)
			n := float64(f.Requests)
			assert.InEpsilonf(t, n-f.Expected, n-float64(f.Fresh), 0.10, "warm instance, fifth %d", i+1)
		}
		require.GreaterOrEqual(t, total, 5000)
	})
}
