// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

import (
	"github.com/dubbogo/graceful/graceful_shutdown"
)

// An application with a web server of its own takes the signals itself (dubbo.shutdown.internal-signal: false), and decides what
// stops when.
func ExampleBeforeShutdown() {
	web := &http.Server{Addr: ":8080", ReadHeaderTimeout: time.Second}
	go func() { _ = web.ListenAndServe() }()

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	<-signals

	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	err := graceful_shutdown.BeforeShutdown(ctx)
	if errors.Is(err, graceful_shutdown.ErrCutOff) {
		fmt.Println("requests were cut off")
	}
	_ = web.Shutdown(ctx)
}

// A consumer of a message queue stops taking messages before the requests that it sends have to be over.
func ExampleOnPhase() {
	pause := func(context.Context) error { return nil }
	graceful_shutdown.OnPhase(graceful_shutdown.Rejecting, "queue", 2*time.Second, pause)
}

// A stream that would go on for ever ends when its process leaves.
func ExampleDraining() {
	stream := func(ctx context.Context, updates <-chan string, send func(string) error) error {
		leaving := graceful_shutdown.Draining(ctx)
		for {
			select {
			case u := <-updates:
				if err := send(u); err != nil {
					return err
				}
			case <-leaving:
				return ctx.Err()
			}
		}
	}
	_ = stream
}

func ExampleSubscribe() {
	cancel := graceful_shutdown.Subscribe(func(e graceful_shutdown.Event) {
		if e, ok := e.(graceful_shutdown.PhaseReached); ok {
			fmt.Println(e.Phase, e.Took)
		}
	})
	defer cancel()
}
