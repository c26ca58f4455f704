// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"context"
	"errors"
	"fmt"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/announce"
)

const (
	retryBase = 50 * time.Millisecond
	retryMax  = 500 * time.Millisecond
)

// retry calls f until it succeeds or ctx ends, with growing pauses. The error is that of the last call.
func retry(ctx context.Context, f func(context.Context) error) error {
	pause := retryBase
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
		pause = min(2*pause, retryMax)
	}
}

// onAll runs f for all publishers at the same time, each bounded by ctx even if f is not, and returns how many failed.
func onAll(ctx context.Context, pubs []announce.Publisher, f func(context.Context, announce.Publisher) error) (failed int, err error) {
	errs := make(chan error, len(pubs))
	for _, p := range pubs {
		go func() {
			err := bounded(ctx, func(ctx context.Context) error { return f(ctx, p) })
			if err != nil {
				err = fmt.Errorf("%s: %w", p.Name(), err)
			}
			errs <- err
		}()
	}
	var all []error
	for range pubs {
		if e := <-errs; e != nil {
			failed++
			all = append(all, e)
		}
	}
	return failed, errors.Join(all...)
}
