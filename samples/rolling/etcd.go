// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/url"
)

import (
	"go.etcd.io/etcd/server/v3/embed"
)

type etcdServer struct {
	server  *embed.Etcd
	address string
}

// startEtcd runs an etcd in this process, on two free ports of 127.0.0.1.
func startEtcd(ctx context.Context, dir string) (*etcdServer, error) {
	any127 := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.LogLevel = "error"
	cfg.LCUrls, cfg.LPUrls = []url.URL{any127}, []url.URL{any127}
	cfg.ACUrls, cfg.APUrls = cfg.LCUrls, cfg.LPUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// The data is of no use afterwards.
	cfg.UnsafeNoFsync = true
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	select {
	case <-server.Server.ReadyNotify():
		return &etcdServer{server, server.Clients[0].Addr().String()}, nil
	case err := <-server.Err():
		return nil, errors.Join(err, ctx.Err())
	case <-ctx.Done():
		server.Close()
		return nil, ctx.Err()
	}
}

func (e *etcdServer) close() { e.server.Close() }
