// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// hook is a function of the application that takes part in a phase.
type hook struct {
	phase Phase
	name  string
	limit time.Duration
	f     func(context.Context) error
}

type hooks struct {
	mu   sync.Mutex
	list []*hook
}

func (h *hooks) add(k *hook) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, k)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.list = slices.DeleteFunc(h.list, func(x *hook) bool { return x == k })
	}
}

func (h *hooks) of(p Phase) (out []*hook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.list {
		if k.phase == p {
			out = append(out, k)
		}
	}
	return out
}

// errHangs says that a function did not return although its context had ended. It is left running.
var errHangs = errors.New("did not return in its time")

// bounded runs f in a goroutine of its own and waits for it until ctx ends. A panic becomes an error. When ctx has ended, f has
// a moment more to say why it failed, so that its own error is reported where it has one.
func bounded(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	go func() {
		// runtime.Goexit in f ends this goroutine without an error and without a panic: the deferred send covers all three.
		err := errors.New("ended its goroutine")
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panicked: %v", p)
			}
			done <- err
		}()
		err = f(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	moment := time.NewTimer(patience)
	defer moment.Stop()
	select {
	case err := <-done:
		return err
	case <-moment.C:
		return fmt.Errorf("%w (%w)", errHangs, context.Cause(ctx))
	}
}

// patience is how much longer than its context a function may take to return.
const patience = 20 * time.Millisecond
