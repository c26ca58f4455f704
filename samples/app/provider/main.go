// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Command provider serves shop.Backend. It is a plain dubbo-go application: the import of graceful
// and the keys in dubbogo.yml are all that is special about it.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3"
	_ "dubbo.apache.org/dubbo-go/v3/imports"
)

import (
	_ "github.com/dubbogo/graceful"
	"github.com/dubbogo/graceful/internal/shop/shoppb"
)

// Backend serves orders. Its name is exported because dubbo-go wants that.
type Backend struct {
	name string
	work time.Duration
}

// Reference is the key below provider.services in dubbogo.yml.
func (*Backend) Reference() string { return "Backend" }

// Order works for a while and answers.
func (b *Backend) Order(_ context.Context, req *shoppb.OrderRequest) (*shoppb.OrderReply, error) {
	time.Sleep(b.work)
	return &shoppb.OrderReply{Id: req.GetId(), ServedBy: b.name}, nil
}

func main() {
	host, err := os.Hostname()
	if err != nil {
		host = "provider"
	}
	config := flag.String("config", "samples/app/provider/dubbogo.yml", "dubbogo.yml of this process")
	name := flag.String("name", host, "name in the answers")
	work := flag.Duration("work", 20*time.Millisecond, "time that each request takes")
	flag.Parse()

	shoppb.SetBackendProvider(&Backend{name: *name, work: *work})
	if err := dubbo.Load(dubbo.WithPath(*config)); err != nil {
		log.Fatal(err)
	}
	// The signal ends the process, when every caller has moved and every request is answered.
	select {}
}
