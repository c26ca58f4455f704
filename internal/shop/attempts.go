// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"sync"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/filter"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"
)

// attemptsFilter is the name of the consumer filter that writes down every attempt of a call. The
// chain of filters sits below cluster strategy and interceptors, so whoever sends a request again
// is seen here, and seen by something that knows nothing of the module under test.
const attemptsFilter = "shop-attempts"

func init() {
	extension.SetFilter(attemptsFilter, func() filter.Filter { return attempts{} })
}

type trackKey struct{}

// track collects the addresses that one call was sent to.
type track struct {
	each func(addr string) // called before the attempt is made, may be nil

	mu    sync.Mutex
	addrs []string
}

func withTrack(ctx context.Context, t *track) context.Context {
	return context.WithValue(ctx, trackKey{}, t)
}

func (t *track) add(addr string) {
	if t.each != nil {
		t.each(addr)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addrs = append(t.addrs, addr)
}

func (t *track) tried() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.addrs...)
}

type attempts struct{}

func (attempts) Invoke(ctx context.Context, invoker base.Invoker, inv base.Invocation) result.Result {
	if t, ok := ctx.Value(trackKey{}).(*track); ok {
		t.add(invoker.GetURL().Location)
	}
	return invoker.Invoke(ctx, inv)
}

func (attempts) OnResponse(_ context.Context, res result.Result, _ base.Invoker, _ base.Invocation) result.Result {
	return res
}
