// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package announce_test

import (
	"context"
	"sync"
	"testing"
)

import (
	"github.com/stretchr/testify/assert"
)

import (
	"github.com/dubbogo/graceful/internal/announce"
	"github.com/dubbogo/graceful/internal/wire"
)

type publisher string

func (p publisher) Name() string                             { return string(p) }
func (publisher) Announce(context.Context, wire.Mark) error  { return nil }
func (publisher) Withdraw(context.Context) error             { return nil }
func (publisher) Confirmed(context.Context, wire.Mark) error { return nil }
func (publisher) Close(context.Context) error                { return nil }

func names() (n []string) {
	for _, p := range announce.All() {
		n = append(n, p.Name())
	}
	return n
}

func TestAdd(t *testing.T) {
	assert.Empty(t, names())
	removeA := announce.Add(publisher("a"))
	removeB := announce.Add(publisher("b"))
	removeA2 := announce.Add(publisher("a"))
	assert.Equal(t, []string{"a", "b", "a"}, names(), "in the order of adding; equal ones are two")
	before := announce.All()
	removeA()
	removeA()
	assert.Equal(t, []string{"b", "a"}, names(), "the one that was added, once")
	assert.Len(t, before, 3, "a list that was read does not change")
	assert.Equal(t, publisher("a"), before[0])
	removeB()
	removeA2()
	assert.Empty(t, names())
}

func TestConcurrentAdd(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				remove := announce.Add(publisher("x"))
				assert.NotEmpty(t, announce.All())
				remove()
			}
		})
	}
	wg.Wait()
	assert.Empty(t, names())
}
