// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

import (
	"go.etcd.io/etcd/server/v3/embed"
)

const askTimeout = 2 * time.Second

func newZooKeeper(ctx context.Context, dir string) (backend, string, error) {
	cp, err := classPath(ctx, "zookeeper", zookeeperPOM)
	if err != nil {
		return nil, "", err
	}
	port, err := freePorts()
	if err != nil {
		return nil, "", err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	// tickTime 500 keeps the shortest session a client may ask for at 1 s, so that tests of a lost session are short.
	cfg := fmt.Sprintf("tickTime=500\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"+
		"4lw.commands.whitelist=*\nmaxClientCnxns=0\n", filepath.Join(dir, "data"), port)
	if err = os.WriteFile(filepath.Join(dir, "zoo.cfg"), []byte(cfg), 0o644); err != nil {
		return nil, "", err
	}
	return &javaServer{
		dir:  dir,
		args: []string{"-Xmx256m", "-XX:+UseSerialGC", "-cp", cp, "org.apache.zookeeper.server.ZooKeeperServerMain", "zoo.cfg"},
		ask:  func(ctx context.Context) error { return askFourLetters(ctx, addr) },
	}, addr, nil
}

// askFourLetters asks ZooKeeper "are you ok".
func askFourLetters(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err = conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err = conn.Write([]byte("ruok")); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	if string(answer) != "imok" {
		return fmt.Errorf("ruok answered %q", answer)
	}
	return nil
}

func newNacos(ctx context.Context, dir string) (backend, string, error) {
	cp, err := classPath(ctx, "nacos", nacosPOM)
	if err != nil {
		return nil, "", err
	}
	// Nacos derives its gRPC and raft ports from the main one.
	port, err := freePorts(1000, 1001, -1000)
	if err != nil {
		return nil, "", err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	secret := base64.StdEncoding.EncodeToString([]byte("loopback tests only, not a secret"))
	return &javaServer{
		dir: dir,
		args: []string{
			"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
			"-Dnacos.standalone=true", "-Dnacos.home=" + dir, "-Dnacos.server.ip=127.0.0.1",
			"-Dserver.address=127.0.0.1", fmt.Sprintf("-Dserver.port=%d", port),
			"-Dnacos.core.auth.enabled=false", "-Dnacos.core.auth.plugin.nacos.token.secret.key=" + secret,
			"-Dnacos.core.auth.server.identity.key=k", "-Dnacos.core.auth.server.identity.value=v",
			"-cp", cp, "com.alibaba.nacos.Nacos",
		},
		ask: func(ctx context.Context) error { return askNacos(ctx, addr) },
	}, addr, nil
}

func askNacos(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/nacos/v1/ns/operator/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "UP") {
		return fmt.Errorf("metrics answered %s %s", resp.Status, body)
	}
	return nil
}

// etcdServer is an etcd member inside this process.
type etcdServer struct {
	config *embed.Config
	server *embed.Etcd
}

func newEtcd(dir string) (backend, string, error) {
	port, err := freePorts()
	if err != nil {
		return nil, "", err
	}
	peerPort, err := freePorts()
	if err != nil {
		return nil, "", err
	}
	client := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
	peer := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", peerPort)}

	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "data")
	cfg.LCUrls, cfg.ACUrls = []url.URL{client}, []url.URL{client}
	cfg.LPUrls, cfg.APUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.LogLevel = "error"
	cfg.LogOutputs = []string{filepath.Join(dir, "server.log")}
	cfg.UnsafeNoFsync = true // the data of a test server need not survive the machine
	return &etcdServer{config: cfg}, client.Host, nil
}

func (e *etcdServer) start(ctx context.Context) error {
	server, err := embed.StartEtcd(e.config)
	if err != nil {
		return err
	}
	e.server = server
	select {
	case <-server.Server.ReadyNotify():
		return nil
	case err = <-server.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *etcdServer) stop() error {
	if e.server == nil {
		return nil
	}
	e.server.Close()
	e.server = nil
	return nil
}

func (e *etcdServer) signal(syscall.Signal) error {
	return fmt.Errorf("embedded etcd: %w", errors.ErrUnsupported)
}
