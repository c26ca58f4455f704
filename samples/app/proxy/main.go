// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Command proxy serves shop.Front and calls shop.Backend: a service in the middle of a chain. On
// its way out it goes on calling until its own requests are answered.
package main

import (
	"context"
	"flag"
	"log"
	"os"
)

import (
	"dubbo.apache.org/dubbo-go/v3"
	_ "dubbo.apache.org/dubbo-go/v3/imports"
)

import (
	_ "github.com/dubbogo/graceful"
	"github.com/dubbogo/graceful/internal/shop/shoppb"
)

// Front serves orders by asking a provider. Its name is exported because dubbo-go wants that.
type Front struct {
	name    string
	backend *shoppb.BackendConsumer
}

// Reference is the key below provider.services in dubbogo.yml.
func (*Front) Reference() string { return "Front" }

// Order asks a provider and hands its answer on.
func (f *Front) Order(ctx context.Context, req *shoppb.OrderRequest) (*shoppb.OrderReply, error) {
	reply, err := f.backend.Order(ctx, req)
	if err != nil {
		return nil, err
	}
	reply.Via = f.name
	return reply, nil
}

func main() {
	host, err := os.Hostname()
	if err != nil {
		host = "proxy"
	}
	config := flag.String("config", "samples/app/proxy/dubbogo.yml", "dubbogo.yml of this process")
	name := flag.String("name", host, "name in the answers")
	flag.Parse()

	backend := new(shoppb.BackendConsumer)
	shoppb.SetBackendConsumer(backend)
	shoppb.SetFrontProvider(&Front{name: *name, backend: backend})
	if err := dubbo.Load(dubbo.WithPath(*config)); err != nil {
		log.Fatal(err)
	}
	select {}
}
