// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/instant"
	"github.com/dubbogo/graceful/internal/wire"
)

// Source tells who said something about an instance.
type Source uint8

// The sources.
const (
	FromRegistry  Source = iota // its record in a registry
	FromResponse                // a response of the instance itself
	FromRejection               // a request that it turned away
	FromClosing                 // dubbo-go's own closing event: a health watch, or its closing mark
	FromDisk                    // the last good list, kept on disk
)

// String returns the name for logs and labels.
func (s Source) String() string {
	switch s {
	case FromRegistry:
		return "registry"
	case FromResponse:
		return "response"
	case FromRejection:
		return "rejection"
	case FromClosing:
		return "closing"
	case FromDisk:
		return "disk"
	default:
		return "unknown"
	}
}

// Observation is what a list or an event of a registry says about the instance at an address.
type Observation struct {
	Mark      wire.Mark // the zero Mark for an instance without this module
	Timestamp int64     // of the provider's URL, unix ms; 0 if unknown. It tells instances without a start id apart
	Source    Source    // FromRegistry or FromDisk
	Release   string    // release parameter of the provider, which tells the unit of Mark.Warmup

	// Preexisting says that the instance was in the first list after the subscription: it was there before this consumer,
	// and its age is what it announces. Otherwise it is new.
	Preexisting bool
}

const (
	// goneTime is how long an id that left an address cannot come back there: longer than any registry keeps a dead record.
	goneTime = 10 * time.Minute
	// sameList: two ids that appear within this time stand in one list, the record of a dead predecessor beside that of the
	// instance. A list has no order; but who shares an address mostly shares a clock, so the later start wins.
	sameList = time.Second
	// goneMax bounds the ids kept per address.
	goneMax = 16
)

// origin is how an instance became known.
type origin uint8

const (
	direct origin = iota // by a direct URL: no list has told of it, only requests tell what is there
	stored               // by a list from disk
	listed               // by a live registry
)

// goneID is an id that is not at this address any more.
type goneID struct {
	id string
	at instant.Instant
	// said: it announced its leaving, or the registry removed it. Otherwise another id only took its place; if that one
	// leaves, this one may have been there all the time.
	said bool
}

// gone is the bounded memory of ids seen leaving one address, oldest first.
type gone []goneID

func (g gone) add(id string, said bool, now instant.Instant) gone {
	if id == "" {
		return g
	}
	kept := make(gone, 0, len(g)+1)
	for _, x := range g {
		switch {
		case x.id == id:
			said = said || x.said
		case now.Sub(x.at) < goneTime:
			kept = append(kept, x)
		}
	}
	kept = append(kept, goneID{id: id, at: now, said: said})
	if len(kept) > goneMax {
		kept = kept[len(kept)-goneMax:]
	}
	return kept
}

func (g gone) find(id string, now instant.Instant) (goneID, bool) {
	for _, x := range g {
		if x.id == id && now.Sub(x.at) < goneTime {
			return x, true
		}
	}
	return goneID{}, false
}

// without forgets an id that turned out to be there.
func (g gone) without(id string) gone {
	for i, x := range g {
		if x.id == id {
			return append(g[:i:i], g[i+1:]...)
		}
	}
	return g
}

// known is what the decisions below need to know of the instance that an entry stands for.
type known struct {
	id        string
	seq       uint64
	timestamp int64
	status    wire.Status
	seen      instant.Instant
	origin    origin
	left      bool // and has told of its removal since
	gone      gone
}

// decision is what an observation means.
type decision uint8

const (
	ignore  decision = iota // stale, or nothing new
	refresh                 // the instance that is known, alive, nothing else new
	update                  // the instance that is known, with another status
	adopt                   // what was known without a registry now has a record
	replace                 // another instance at this address
)

// decide is the identity rule.
func decide(k *known, o *Observation, now instant.Instant) decision {
	m := &o.Mark
	live := o.Source != FromDisk
	switch {
	case m.Start != "" && m.Start == k.id:
		switch {
		case !live && k.origin == listed:
			return ignore // the registry knows better
		case m.Seq > k.seq:
			if statusOf(m) != k.status {
				return update
			}
			return refresh
		case m.Seq < k.seq && m.Seq != 0:
			return ignore // an older record of the same process
		case m.Seq == 0 && m.Status != wire.Unknown && m.Status != k.status && live:
			return update // a record without numbers: the latest word holds
		case live:
			return refresh
		default:
			return ignore
		}

	case !live:
		if k.origin == direct && k.id == "" {
			return adopt // nothing is known
		}
		return ignore // a disk list never touches an entry of another id

	case k.origin != listed:
		return adopt

	case m.Start != "":
		if x, ok := k.gone.find(m.Start, now); ok && (x.said || !k.left) {
			return ignore // a record that outlived its process
		}
		if !k.left && k.id != "" && now.Sub(k.seen) < sameList && announced(m.Start, k.id) < 0 {
			return ignore
		}
		return replace

	case k.id != "":
		// A record without an id where an instance with one is known: an unread or foreign record beside ours, unless it
		// proves that it is of another process.
		if k.left || differ(o.Timestamp, k.timestamp) {
			return replace
		}
		return ignore

	default:
		// Instances without ids: interface-level URLs carry the time of export, service-level records nothing.
		if differ(o.Timestamp, k.timestamp) || k.left && (o.Timestamp == 0 || k.timestamp == 0) {
			return replace
		}
		if m.Status != wire.Unknown && m.Status != k.status {
			return update
		}
		return refresh
	}
}

func differ(a, b int64) bool { return a != 0 && b != 0 && a != b }

// announced compares the start times of two ids; 0 where one announces none.
func announced(a, b string) int {
	ta, oka := wire.StartTime(a)
	tb, okb := wire.StartTime(b)
	if !oka || !okb {
		return 0
	}
	return ta.Compare(tb)
}

// statusOf returns the status that a mark stands for: an instance with an id that says nothing else is up.
func statusOf(m *wire.Mark) wire.Status {
	if m.Status == wire.Unknown && m.Start != "" {
		return wire.Up
	}
	return m.Status
}
