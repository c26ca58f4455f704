// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"sync"
	"time"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
)

// presence counts in how many lists of this process an address stands. An instance is listed once per service and
// registry; it has left when the last list has let go of it, and only then is it hidden while calls to it end.
type presence struct {
	table *instance.Table

	mu sync.Mutex
	m  map[string]*stay
}

// stay is how often an address is listed by a registry, and how often it is held back after its removal.
type stay struct{ listed, held int }

var present = newPresence(instance.Default())

func newPresence(t *instance.Table) *presence {
	return &presence{table: t, m: make(map[string]*stay)}
}

// observe tells the table what a live list says of an address, and counts the address if it is new in that list. Both are
// one step: another list that lets go of the address at the same moment must not make it look gone.
func (p *presence) observe(address string, o instance.Observation, isNew bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.table.Observe(address, o, time.Now())
	if isNew {
		p.moveLocked(address, "", 1, 0)
	}
}

// move changes the counts of an address; start is the start id of the record that goes.
func (p *presence) move(address, start string, listed, held int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moveLocked(address, start, listed, held)
}

func (p *presence) moveLocked(address, start string, listed, held int) {
	s := p.m[address]
	if s == nil {
		s = &stay{}
		p.m[address] = s
	}
	hidden := s.listed == 0 && s.held > 0
	s.listed += listed
	s.held += held
	if now := s.listed == 0 && s.held > 0; now != hidden {
		if e := p.table.Lookup(address); e != nil {
			e.SetHeld(now)
		}
	}
	if s.listed == 0 && s.held == 0 {
		delete(p.m, address)
		p.table.LeaveID(address, start, time.Now())
	}
}
