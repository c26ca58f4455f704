// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package announce is where the registries of this process and the coordinator meet: the registry decorator
// adds one [Publisher] per registry and level, the coordinator drives all of them. Neither imports the other.
package announce

import (
	"context"
	"sync"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

// Publisher keeps the records of this process in one registry. Every method is safe for concurrent use,
// idempotent, and bounded by its context.
type Publisher interface {
	// Name tells people which registry this is: "zookeeper 127.0.0.1:2181 interface".
	Name() string
	// Announce writes the mark into all records, as an upsert. Without records it does nothing; records that
	// are published later carry the state of that time.
	Announce(ctx context.Context, m wire.Mark) error
	// Withdraw closes the registration gate, removes every record and verifies it. Subscriptions stay.
	Withdraw(ctx context.Context) error
	// Confirmed blocks until the registry itself shows m for every record, or ctx ends.
	Confirmed(ctx context.Context, m wire.Mark) error
	// Close unsubscribes and releases the connections.
	Close(ctx context.Context) error
}

var publishers struct {
	sync.Mutex
	list []*Publisher
}

// Add makes p known until remove is called. remove may be called more than once.
func Add(p Publisher) (remove func()) {
	slot := &p
	publishers.Lock()
	publishers.list = append(publishers.list, slot)
	publishers.Unlock()
	return func() {
		publishers.Lock()
		defer publishers.Unlock()
		for i, s := range publishers.list {
			if s == slot {
				publishers.list = append(publishers.list[:i:i], publishers.list[i+1:]...)
				return
			}
		}
	}
}

// All returns the publishers in the order in which they were added.
func All() []Publisher {
	publishers.Lock()
	defer publishers.Unlock()
	all := make([]Publisher, len(publishers.list))
	for i, s := range publishers.list {
		all[i] = *s
	}
	return all
}
