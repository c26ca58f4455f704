// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Command client sends an open-loop load to shop.Front and prints what became of it, once a second.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3"
	_ "dubbo.apache.org/dubbo-go/v3/imports"

	"github.com/HdrHistogram/hdrhistogram-go"
)

import (
	_ "github.com/dubbogo/graceful"
	"github.com/dubbogo/graceful/internal/shop/shoppb"
)

func main() {
	config := flag.String("config", "samples/app/client/dubbogo.yml", "dubbogo.yml of this process")
	rate := flag.Float64("rate", 100, "requests a second")
	flag.Parse()
	if *rate <= 0 {
		log.Fatalf("-rate %v: want more than 0", *rate)
	}

	front := new(shoppb.FrontConsumer)
	shoppb.SetFrontConsumer(front)
	if err := dubbo.Load(dubbo.WithPath(*config)); err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	load(ctx, front, time.Duration(float64(time.Second) / *rate))
	// graceful has the signal too, and ends the process when the last answer is there.
	select {}
}

// load sends at start + n*interval, whatever has become of the requests before, until ctx ends.
func load(ctx context.Context, front *shoppb.FrontConsumer, interval time.Duration) {
	var (
		s     stats
		start = time.Now()
		tick  = time.NewTicker(time.Second)
		next  = time.NewTimer(0)
	)
	defer tick.Stop()
	defer next.Stop()
	for n := 0; ; {
		select {
		case <-next.C:
			intended := start.Add(time.Duration(n) * interval)
			go s.send(front, fmt.Sprintf("hand-%d-%d", start.UnixNano(), n), intended)
			n++
			next.Reset(time.Until(start.Add(time.Duration(n) * interval)))
		case <-tick.C:
			fmt.Println(s.line())
		case <-ctx.Done():
			return
		}
	}
}

// stats of the last second, and the failures of all.
type stats struct {
	mu      sync.Mutex
	latency *hdrhistogram.Histogram
	shares  map[string]int
	failed  int
	err     error
}

func (s *stats) send(front *shoppb.FrontConsumer, id string, intended time.Time) {
	reply, err := front.Order(context.Background(), &shoppb.OrderRequest{Id: id})
	took := time.Since(intended)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latency == nil {
		s.latency, s.shares = hdrhistogram.New(1, time.Minute.Microseconds(), 3), map[string]int{}
	}
	_ = s.latency.RecordValue(min(took, time.Minute).Microseconds()) // in range
	if err != nil {
		s.failed, s.err = s.failed+1, err
		return
	}
	s.shares[reply.GetServedBy()]++
}

func (s *stats) line() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latency == nil {
		return "no answer yet"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%4d/s  failed so far %d  p50 %5.1fms  p99 %5.1fms ", s.latency.TotalCount(), s.failed,
		float64(s.latency.ValueAtQuantile(50))/1000, float64(s.latency.ValueAtQuantile(99))/1000)
	for _, name := range slices.Sorted(maps.Keys(s.shares)) {
		fmt.Fprintf(&b, " %s=%d", name, s.shares[name])
	}
	if s.err != nil {
		fmt.Fprintf(&b, "  last error: %.100s", s.err)
	}
	s.latency, s.shares, s.err = nil, nil, nil
	return b.String()
}
