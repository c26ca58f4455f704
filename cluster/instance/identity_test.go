// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"fmt"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pgregory.net/rapid"
)

import (
	"github.com/dubbogo/graceful/internal/instant"
	"github.com/dubbogo/graceful/internal/wire"
)

func up(id string, seq uint64) wire.Mark {
	return wire.Mark{Status: wire.Up, Start: id, Seq: seq}
}

func leaving(id string, seq uint64) wire.Mark {
	return wire.Mark{Status: wire.Draining, Start: id, Seq: seq}
}

func TestDecide(t *testing.T) {
	now := at(1000)
	old := at(0)
	listedA := known{id: "5-a", seq: 2, status: wire.Up, seen: old, origin: listed}
	with := func(k known, f func(*known)) known {
		f(&k)
		return k
	}
	vanilla := known{timestamp: 7, seen: old, origin: listed}
	nameless := known{seen: old, origin: listed}
	disk := func(m wire.Mark) Observation { return Observation{Mark: m, Source: FromDisk} }
	live := func(m wire.Mark) Observation { return Observation{Mark: m} }

	for name, tc := range map[string]struct {
		k    known
		o    Observation
		want decision
	}{
		"same id, same number":                 {listedA, live(up("5-a", 2)), refresh},
		"same id, same number, another status": {listedA, live(leaving("5-a", 2)), refresh},
		"same id, lower number":                {listedA, live(leaving("5-a", 1)), ignore},
		"same id, higher number":               {listedA, live(leaving("5-a", 3)), update},
		"same id, higher number, same status":  {listedA, live(up("5-a", 4)), refresh},
		"UP follows DRAINING":                  {with(listedA, func(k *known) { k.status = wire.Draining }), live(up("5-a", 3)), update},
		"a mark from a response is not undone": {with(listedA, func(k *known) { k.status = wire.Draining }), live(up("5-a", 2)), refresh},
		"a record without numbers":             {listedA, live(leaving("5-a", 0)), update},
		"a record with an id alone":            {listedA, live(wire.Mark{Start: "5-a"}), refresh},
		"same id after it left: it is there":   {with(listedA, func(k *known) { k.left = true; k.gone = k.gone.add("5-a", true, old) }), live(up("5-a", 2)), refresh},

		"another id":                                {listedA, live(up("4-b", 1)), replace},
		"another id, that left":                     {with(listedA, func(k *known) { k.gone = k.gone.add("4-b", true, at(900)) }), live(up("4-b", 1)), ignore},
		"another id, that left long ago":            {with(listedA, func(k *known) { k.gone = k.gone.add("4-b", true, at(399)) }), live(up("4-b", 1)), replace},
		"another id, that was replaced":             {with(listedA, func(k *known) { k.gone = k.gone.add("4-b", false, at(900)) }), live(up("4-b", 1)), ignore},
		"replaced, but its successor left":          {with(listedA, func(k *known) { k.left = true; k.gone = k.gone.add("4-b", false, at(900)) }), live(up("4-b", 1)), replace},
		"said to leave, and its successor left":     {with(listedA, func(k *known) { k.left = true; k.gone = k.gone.add("4-b", true, at(900)) }), live(up("4-b", 1)), ignore},
		"two ids in one list, the older one second": {with(listedA, func(k *known) { k.seen = now }), live(up("4-b", 1)), ignore},
		"two ids in one list, the newer one second": {with(listedA, func(k *known) { k.seen = now }), live(up("6-b", 1)), replace},
		"two ids without times in one list":         {with(listedA, func(k *known) { k.seen = now }), live(up("b", 1)), replace},

		"a record without an id beside ours": {listedA, live(wire.Mark{}), ignore},
		"... when ours has left":             {with(listedA, func(k *known) { k.left = true }), live(wire.Mark{}), replace},
		"... with another timestamp":         {with(listedA, func(k *known) { k.timestamp = 1 }), Observation{Timestamp: 2}, replace},
		"... with the same timestamp":        {with(listedA, func(k *known) { k.timestamp = 2 }), Observation{Timestamp: 2}, ignore},

		"vanilla, same timestamp":                {vanilla, Observation{Timestamp: 7}, refresh},
		"vanilla, another timestamp":             {vanilla, Observation{Timestamp: 8}, replace},
		"vanilla, same timestamp after a delete": {with(vanilla, func(k *known) { k.left = true }), Observation{Timestamp: 7}, refresh},
		"service level, again":                   {nameless, live(wire.Mark{}), refresh},
		"service level, Add after Delete":        {with(nameless, func(k *known) { k.left = true }), live(wire.Mark{}), replace},
		"a status written by hand":               {nameless, live(wire.Mark{Status: wire.Draining}), update},
		"restarted with the module":              {vanilla, live(up("9-c", 1)), replace},

		"direct, then listed":                 {known{seen: old}, live(up("9-c", 1)), adopt},
		"direct, then listed without an id":   {known{seen: old}, live(wire.Mark{}), adopt},
		"direct with another id, then listed": {known{id: "5-a", seen: old}, live(up("9-c", 1)), adopt},
		"direct with this id, then listed":    {known{id: "5-a", status: wire.Up, seen: old}, live(up("5-a", 1)), refresh},

		"disk, nothing known":         {known{seen: old}, disk(up("5-a", 1)), adopt},
		"disk, another id":            {listedA, disk(up("9-c", 9)), ignore},
		"disk, same id":               {listedA, disk(leaving("5-a", 3)), ignore},
		"disk over disk":              {with(listedA, func(k *known) { k.origin = stored }), disk(leaving("5-a", 3)), update},
		"disk over disk, nothing new": {with(listedA, func(k *known) { k.origin = stored }), disk(up("5-a", 2)), ignore},
		"disk without an id":          {vanilla, disk(wire.Mark{}), ignore},
		"registry over disk":          {with(listedA, func(k *known) { k.origin = stored }), live(up("4-b", 1)), adopt},
		"registry over disk, same id": {with(listedA, func(k *known) { k.origin = stored }), live(up("5-a", 2)), refresh},
		"registry over disk, no id":   {with(listedA, func(k *known) { k.origin = stored }), live(wire.Mark{}), adopt},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, decide(&tc.k, &tc.o, now))
		})
	}
}

func TestGoneIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g gone
		now := at(0)
		for range rapid.IntRange(0, 100).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(2*time.Minute)).Draw(t, "wait")))
			id := fmt.Sprintf("%d-a", rapid.IntRange(0, 30).Draw(t, "id"))
			g = g.add(id, rapid.Bool().Draw(t, "said"), now)
			x, ok := g.find(id, now)
			require.True(t, ok)
			require.Equal(t, now, x.at)
			require.LessOrEqual(t, len(g), goneMax)
			seen := map[string]bool{}
			for _, x := range g {
				require.False(t, seen[x.id], "one id once")
				seen[x.id] = true
				require.Less(t, now.Sub(x.at), goneTime)
			}
		}
	})
	assert.Empty(t, gone(nil).add("", true, at(0)), "no id, nothing to remember")
	_, ok := gone{{id: "a", at: at(0)}}.find("a", at(0).Add(goneTime))
	assert.False(t, ok)
	g := gone{{id: "a"}, {id: "b"}}
	assert.Equal(t, gone{{id: "b"}}, g.without("a"))
	assert.Len(t, g, 2, "what others hold does not change")
	assert.Equal(t, "a", g[0].id)
	var never instant.Instant
	assert.Equal(t, instant.Never, never)
}
