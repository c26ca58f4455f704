// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integrate_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/internal/rollout"
	"github.com/dubbogo/graceful/internal/shop"
)

// Consumers of dubbo-go alone do not know the mark. With our providers they must lose no more than
// with providers of their own kind: three paired runs, since one run of either says little.
func TestVanillaConsumers(t *testing.T) {
	const pairs = 3
	srv := servers.get(t, "zookeeper")
	for _, protocol := range []string{"tri", "dubbo"} {
		t.Run(protocol, func(t *testing.T) {
			ours, theirs := 0, 0
			for i := range pairs {
				ours += rollUnderVanilla(t, srv.Addr, protocol, fmt.Sprintf("ours-%d", i), true)
				theirs += rollUnderVanilla(t, srv.Addr, protocol, fmt.Sprintf("theirs-%d", i), false)
			}
			t.Logf("failed requests of vanilla consumers: %d with our providers, %d with vanilla ones", ours, theirs)
			require.LessOrEqual(t, ours, theirs)
		})
	}
}

// rollUnderVanilla rolls the providers under vanilla consumers and returns the number of failed requests. Each run has a group
// of its own: the records of the processes that were killed at the end of the one before outlive them.
func rollUnderVanilla(t *testing.T, addr, protocol, group string, graceful bool) int {
	t.Helper()
	ctx := testContext(t, testTimeout)
	plain := rollout.Plain("zookeeper", addr, shop.LevelInterface)
	cfg := scenario(t, plain, protocol)
	cfg.Registry.Group += "-" + group
	cfg.Binary, cfg.Edit, cfg.Proxies = bins.Plain, nil, 1
	cfg.Dir = t.TempDir()
	if graceful {
		cfg.Binaries = map[shop.Role]string{shop.Provider: bins.Graceful}
		ours := rollout.Graceful("zookeeper", addr, shop.LevelInterface)
		ours.Group = cfg.Registry.Group
		cfg.Registries = map[shop.Role]shop.Registry{shop.Provider: ours}
	}
	run := begin(ctx, t, cfg)
	lists := watch(ctx, t, run)
	step(ctx, t, run, "steady", hold(run, time.Second))
	step(ctx, t, run, "roll providers", roll(run, shop.Provider))
	step(ctx, t, run, "after", hold(run, time.Second))
	report := finish(ctx, t, run)
	require.NotZero(t, report.Total.Requests)
	if graceful {
		lists.requireSteady(t, run, report)
	}
	lists.stop()
	run.Close()
	return report.Total.Failed
}

// recorder keeps every list of providers that a plain subscriber of the registry gets.
type recorder struct {
	stop func() // ends the subscription; may be called again

	mu    sync.Mutex
	lists []listed
}

type listed struct {
	at    time.Time
	addrs []string
}

func watch(ctx context.Context, t *testing.T, run *rollout.Run) *recorder {
	t.Helper()
	rec := new(recorder)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := run.Directory().Watch(ctx, shop.Provider, func(addrs []string) {
			rec.mu.Lock()
			defer rec.mu.Unlock()
			rec.lists = append(rec.lists, listed{time.Now(), slices.Clone(addrs)})
		})
		if ctx.Err() == nil {
			assert.NoError(t, err, "the plain subscriber ended")
		}
	}()
	rec.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(rec.stop)
	return rec
}

// requireSteady wants every provider to be in each list exactly once, from the first list that has it to
// the last, and wants it to be in lists until its SIGTERM.
func (r *recorder) requireSteady(t *testing.T, run *rollout.Run, report *rollout.Report) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NotEmpty(t, r.lists, "the plain subscriber got no list")
	first, last := map[string]int{}, map[string]int{}
	for i, l := range r.lists {
		for _, addr := range l.addrs {
			if _, ok := first[addr]; !ok {
				first[addr] = i
			}
			last[addr] = i
		}
	}
	for addr, from := range first {
		for _, l := range r.lists[from : last[addr]+1] {
			n := 0
			for _, a := range l.addrs {
				if a == addr {
					n++
				}
			}
			require.Equal(t, 1, n, "%s is listed %d times at %v, in the middle of its life", addr, n, l.at)
		}
	}
	terms := map[string]time.Time{}
	for _, m := range report.Moments {
		if m.What == rollout.MomentTerm {
			terms[m.Process] = m.At
		}
	}
	for _, p := range run.Live(shop.Provider) {
		require.Contains(t, first, p.Addr(), "%s was never listed", p.Name)
		require.Equal(t, len(r.lists)-1, last[p.Addr()], "%s is live and not in the last list", p.Name)
	}
	require.NotEmpty(t, terms)
}

// A plain subscriber sees the whole roll on every registry and level: nobody missing, nobody twice.
func TestListsStaySteady(t *testing.T) {
	for _, kind := range kinds {
		for _, level := range levels {
			t.Run(kind+"/"+string(level), func(t *testing.T) {
				srv := servers.get(t, kind)
				ctx := testContext(t, testTimeout)
				cfg := scenario(t, rollout.Graceful(kind, srv.Addr, level), "tri")
				cfg.Proxies = 1
				run := begin(ctx, t, cfg)
				lists := watch(ctx, t, run)
				step(ctx, t, run, "roll providers", roll(run, shop.Provider))
				step(ctx, t, run, "after", hold(run, time.Second))
				report := finish(ctx, t, run)
				requireNoneFailed(t, report)
				lists.requireSteady(t, run, report)
			})
		}
	}
}
