// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// The reconnect of the SDK is a data race, so the race detector would fail this test whatever we do.
//go:build integration && !race

package graceful

import (
	"context"
	"testing"
	"time"
)

import (
	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dubbo.apache.org/dubbo-go/v3/common/constant"
)

import (
	"github.com/dubbogo/graceful/internal/testserver"
)

func TestNacosServerRestart(t *testing.T) {
	server, group := testserver.Nacos(t), constant.ServiceDiscoveryDefaultGroup
	p := nacosPublisherOf(t, server.Addr, serviceLevel, "r1")
	back := make(chan struct{}, 10)
	p.Watch(func() { back <- struct{}{} })
	up, draining := marks()
	recs := []record{serviceRecord(20001)}
	require.NoError(t, p.Put(testContext(t), recs, up))
	src := &nacosSource{
		url: nacosURL(t, server.Addr, "r2"), service: nacosService{group: group, name: "backend"},
		parse: func(in model.Instance) (item, bool) { return nacosServiceItem(group, "backend", in), true },
	}
	seen := followSource(t, src)
	seen.until(t, "127.0.0.1:20001=UP")
	require.NoError(t, server.Stop())
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	began := time.Now()
	require.Error(t, p.Put(ctx, recs, draining))
	require.Error(t, p.Shows(ctx, recs, draining))
	assert.Less(t, time.Since(began), 3*time.Second, "no wait beyond the context")
	restart, cancelRestart := context.WithTimeout(context.Background(), testserver.StartTimeout)
	defer cancelRestart()
	require.NoError(t, server.Restart(restart))
	select {
	case <-back:
	case <-time.After(testserver.StartTimeout):
		t.Fatal("the publisher does not say that the server is back")
	}
	for p.Put(testContext(t), recs, draining) != nil {
		require.NoError(t, restart.Err())
	}
	seen.until(t, "127.0.0.1:20001=DRAINING")
	confirmed(t, p, recs, draining)
	require.NoError(t, p.Remove(testContext(t), recs))
	seen.until(t, "")
}
