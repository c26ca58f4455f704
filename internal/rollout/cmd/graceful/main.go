// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Command graceful is the demo service with this module.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3"
	_ "dubbo.apache.org/dubbo-go/v3/imports"
)

import (
	"github.com/dubbogo/graceful"
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/cluster/interceptor/retry"
	"github.com/dubbogo/graceful/graceful_shutdown"
	"github.com/dubbogo/graceful/internal/shop"
)

func main() {
	shop.Main(shop.Hooks{
		Prepare:        prepare,
		Watch:          watch,
		BeforeShutdown: func(ctx context.Context) error { return graceful_shutdown.BeforeShutdown(ctx) },
		Commands: map[string]func(context.Context, json.RawMessage) (any, error){
			"offline": func(ctx context.Context, _ json.RawMessage) (any, error) { return nil, graceful_shutdown.Offline(ctx) },
			"online":  func(ctx context.Context, _ json.RawMessage) (any, error) { return nil, graceful_shutdown.Online(ctx) },
			"status":  func(context.Context, json.RawMessage) (any, error) { return graceful_shutdown.Status(), nil },
			"instances": func(context.Context, json.RawMessage) (any, error) {
				return instance.Default().Snapshot(time.Now()), nil
			},
			"retried": func(context.Context, json.RawMessage) (any, error) { return retry.Retried(), nil },
		},
	})
}

// prepare hands the settings of an instance over; dubbo.Load needs no such call.
func prepare(_ *shop.Options, ins *dubbo.Instance) error {
	if ins == nil {
		return nil
	}
	return graceful.FromInstance(ins)
}

// watch reports what the coordinator does.
func watch(emit func(shop.Event)) {
	graceful_shutdown.Subscribe(func(e graceful_shutdown.Event) {
		ev := shop.Event{Kind: shop.KindPhase, At: e.When()}
		switch e := e.(type) {
		case graceful_shutdown.PhaseStarted:
			ev.Name, ev.Detail = e.Phase.String(), shop.PhaseStarted
		case graceful_shutdown.PhaseReached:
			ev.Name, ev.Detail = e.Phase.String(), fmt.Sprintf("reached after %v, %d of %d left", e.Took, e.Left, e.Count)
			if e.Err != nil {
				ev.Error = e.Err.Error()
			}
		case graceful_shutdown.WentOnline:
			ev.Name, ev.Detail = graceful_shutdown.Serving.String(), shop.PhaseStarted
		default:
			return
		}
		emit(ev)
	})
}
