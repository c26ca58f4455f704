// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package testserver

import (
	"context"
	"net"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/require"
)

func TestServersAnswerAndRestartOnTheSameAddress(t *testing.T) {
	for _, kind := range []string{"zookeeper", "nacos", "etcdv3"} {
		t.Run(kind, func(t *testing.T) {
			s := forTest(t, kind)
			require.NoError(t, dial(s.Addr))

			require.NoError(t, s.Stop())
			require.Error(t, dial(s.Addr), "a stopped server must not accept connections")
			require.NoError(t, s.Stop(), "stopping twice is harmless")

			ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
			defer cancel()
			require.NoError(t, s.Restart(ctx))
			require.NoError(t, dial(s.Addr))
		})
	}
}

func TestFrozenServerDoesNotAnswer(t *testing.T) {
	s := ZooKeeper(t)
	require.NoError(t, askFourLetters(context.Background(), s.Addr))
	require.NoError(t, s.Freeze())
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, askFourLetters(ctx, s.Addr))
	require.NoError(t, s.Thaw())
	require.NoError(t, askFourLetters(context.Background(), s.Addr))
}

func TestUnknownKindNamesWhatIsAllowed(t *testing.T) {
	_, err := Start(context.Background(), "consul", t.TempDir())
	require.ErrorContains(t, err, `"consul": allowed are zookeeper, nacos, etcdv3`)
}

func dial(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}
