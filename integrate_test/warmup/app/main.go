// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Command app is a process of the warm-up measurement: a provider, or the consumer that measures.
//
//	app provider <etcd address> <port> <warmup> <weight>
//	app consumer <etcd address> <address of the warm provider> <window> <requests a second>
//
// A provider serves until its standard input ends. The consumer writes "ready" when its calls are answered, waits until
// another instance appears, calls for the time of the window and writes a Report as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3"
	"dubbo.apache.org/dubbo-go/v3/client"
	_ "dubbo.apache.org/dubbo-go/v3/imports"
	"dubbo.apache.org/dubbo-go/v3/logger"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/server"
)

import (
	"github.com/dubbogo/graceful"
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/integrate_test/warmup/report"
	"github.com/dubbogo/graceful/internal/shop/shoppb"
)

// timeout is generous: what is measured is who is asked, on a machine that may be busy with other tests.
const timeout = 15 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 5 && args[0] == "provider":
		return provide(args[1], args[2], args[3], args[4])
	case len(args) == 5 && args[0] == "consumer":
		return consume(args[1], args[2], args[3], args[4])
	default:
		return fmt.Errorf("usage: see the comment of the command; got %q", args)
	}
}

func newInstance(name, etcd string, settings map[string]any, opts ...dubbo.InstanceOption) (*dubbo.Instance, error) {
	ins, err := dubbo.NewInstance(append(opts,
		dubbo.WithName(name),
		dubbo.WithLogger(logger.WithLevel("warn")),
		dubbo.WithRegistry(
			registry.WithRegistry("graceful"), registry.WithAddress(etcd), registry.WithRegisterInterface(),
			registry.WithParams(map[string]string{"graceful.delegate": "etcdv3"})),
		dubbo.WithCustom(map[string]any{"graceful": settings}),
	)...)
	if err != nil {
		return nil, err
	}
	return ins, graceful.FromInstance(ins)
}

// Backend answers with its own address. It is exported because dubbo-go wants it so.
type Backend struct{ addr string }

// Order implements the service.
func (b Backend) Order(_ context.Context, req *shoppb.OrderRequest) (*shoppb.OrderReply, error) {
	return &shoppb.OrderReply{Id: req.Id, ServedBy: b.addr}, nil
}

func provide(etcd, port, warmup, weight string) error {
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	window, err := time.ParseDuration(warmup)
	if err != nil {
		return err
	}
	ins, err := newInstance("warmup-provider", etcd, map[string]any{}, dubbo.WithProtocol(
		protocol.WithTriple(), protocol.WithIp("127.0.0.1"), protocol.WithPort(n)))
	if err != nil {
		return err
	}
	srv, err := ins.NewServer()
	if err != nil {
		return err
	}
	// The weight of a method, because 3.3.2 has no option for that of a provider.
	if err = shoppb.RegisterBackend(srv, Backend{net.JoinHostPort("127.0.0.1", port)},
		server.WithWarmup(window), server.WithParam("methods.Order.weight", weight)); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve() }()
	closed := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		closed <- err
	}()
	select {
	case err = <-served:
		return errors.Join(errors.New("the server ended by itself"), err)
	case err = <-closed:
		return err
	}
}

func consume(etcd, warm, window, rate string) error {
	w, err := time.ParseDuration(window)
	if err != nil {
		return err
	}
	perSecond, err := strconv.Atoi(rate)
	if err != nil {
		return err
	}
	ins, err := newInstance("warmup-consumer", etcd, map[string]any{
		"loadbalance": "blacklist", "warmup": map[string]any{"window": window},
	})
	if err != nil {
		return err
	}
	cli, err := ins.NewClient()
	if err != nil {
		return err
	}
	appeared := make(chan string, 1)
	defer instance.Default().OnChange(func(addr string) {
		if addr != warm {
			select {
			case appeared <- addr:
			default:
			}
		}
	})()
	calls, err := shoppb.NewBackend(cli, client.WithClusterFailFast(), client.WithRetries(0),
		client.WithRequestTimeout(timeout))
	if err != nil {
		return err
	}
	if _, err = calls.Order(context.Background(), &shoppb.OrderRequest{Id: "first"}); err != nil {
		return err
	}
	fmt.Println("ready")

	fresh := <-appeared
	out := report.Report{WarmIsWarm: !instance.Default().Lookup(warm).Warming(time.Now())}
	began := instance.Default().Lookup(fresh).View(time.Now()).FirstSeen
	var (
		mu      sync.Mutex
		pending sync.WaitGroup
	)
	interval := time.Second / time.Duration(perSecond)
	timer := time.NewTimer(0)
	defer timer.Stop()
	start := time.Now()
	for n := 0; ; n++ {
		intended := start.Add(time.Duration(n) * interval) // open loop: whatever has become of those before
		if wait := time.Until(intended); wait > 0 {
			timer.Reset(wait)
			<-timer.C
		}
		age := time.Since(began)
		if age >= w {
			break
		}
		pending.Go(func() {
			age := time.Since(began)
			reply, err := calls.Order(context.Background(), &shoppb.OrderRequest{Id: strconv.Itoa(n)})
			took := time.Since(began) - age
			mu.Lock()
			defer mu.Unlock()
			out.Slowest = max(out.Slowest, took)
			if err != nil {
				out.Failed = append(out.Failed, fmt.Sprintf("sent at %v, failed at %v: %v", age, time.Since(began), err))
				return
			}
			out.Add(age, w, reply.ServedBy == fresh)
		})
	}
	pending.Wait()
	line, err := json.Marshal(out)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	return nil
}
