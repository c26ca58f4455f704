// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/config"
)

func testGate(r config.Register) *onlineGate {
	g := newGate()
	g.settings = func() config.Register { return r }
	g.dial = func(context.Context, string) error { return nil }
	return g
}

func TestGateDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testGate(config.Register{Delay: time.Second, Timeout: 10 * time.Second})
		began := time.Now()
		require.NoError(t, g.wait(nil, nil))
		assert.Equal(t, time.Second, time.Since(began), "dubbo 10653: one second is one second")
		require.NoError(t, g.wait(nil, nil))
		assert.Equal(t, time.Second, time.Since(began), "once for all registries")
	})
}

func TestGateWaitsForEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testGate(config.Register{Timeout: 10 * time.Second})
		var listening, ready atomic.Bool
		g.dial = func(context.Context, string) error {
			if !listening.Load() {
				return errors.New("refused")
			}
			return nil
		}
		g.checks["cache"] = func(context.Context) error {
			if !ready.Load() {
				panic("not yet")
			}
			return nil
		}
		have := g.need("shop.Stock")
		g.need("shop.Own")
		g.exports("shop.Own")
		var done atomic.Bool
		var work sync.WaitGroup
		work.Go(func() {
			assert.NoError(t, g.wait(nil, []string{"10.0.0.1:1"}))
			done.Store(true)
		})
		for _, then := range []func(){func() { listening.Store(true) }, func() { ready.Store(true) }, have} {
			time.Sleep(time.Second)
			synctest.Wait()
			assert.False(t, done.Load())
			then()
		}
		time.Sleep(askMost)
		synctest.Wait()
		assert.True(t, done.Load())
		work.Wait()
	})
}

func TestGateTimeout(t *testing.T) {
	for _, mode := range []string{"register", "stop"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := testGate(config.Register{Timeout: 10 * time.Second, OnTimeout: mode})
				g.need("shop.Stock") // a service that needs us in turn
				stuck := make(chan struct{})
				defer close(stuck)
				g.checks["stuck"] = func(context.Context) error { <-stuck; return nil }
				began := time.Now()
				err := g.wait(nil, nil)
				assert.Equal(t, 10*time.Second, time.Since(began))
				if mode == "register" {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, ErrNotReady)
				assert.Contains(t, err.Error(), "shop.Stock")
				assert.Contains(t, err.Error(), "readiness check stuck")
				assert.Contains(t, err.Error(), "register.timeout=10s")
			})
		})
	}
}

func TestGateIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testGate(config.Register{Delay: time.Hour, Timeout: time.Hour})
		g.need("shop.Stock")
		stop := make(chan struct{})
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { close(stop) })
		require.ErrorIs(t, g.wait(stop, nil), errStoppedWaiting)
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
}

func TestGateListensOnTheSamePort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testGate(config.Register{Timeout: 2 * time.Second})
		asked := make(chan string, 8)
		g.dial = func(_ context.Context, a string) error { asked <- a; return nil }
		require.NoError(t, g.wait(nil, []string{"a:1"}))
		require.NoError(t, g.wait(nil, []string{"b:2"}), "a record that comes later is asked for its own listener")
		close(asked)
		var got []string
		for a := range asked {
			got = append(got, a)
		}
		assert.Equal(t, []string{"a:1", "b:2"}, got)
	})
}

func TestPortOfAnotherProcessIsNotRegistered(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u, err := common.NewURL("tri://" + l.Addr().String() + "/shop.Backend")
	require.NoError(t, err)

	g := newGate()
	g.dial = func(context.Context, string) error { return nil } // the other process answers
	g.claim(u)
	require.NoError(t, l.Close())
	g.claim(u) // the first look counts: from then on the listener is our own
	err = g.wait(make(chan struct{}), []string{l.Addr().String()})
	require.ErrorIs(t, err, ErrNotReady)
	require.ErrorContains(t, err, "port "+u.Port+" of this host belongs to another process")

	g = newGate()
	g.dial = func(context.Context, string) error { return nil }
	g.claim(u)
	require.NoError(t, g.wait(make(chan struct{}), []string{l.Addr().String()}), "a free port is ours")
}
