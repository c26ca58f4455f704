// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"testing"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dubbo.apache.org/dubbo-go/v3/registry"
)

import (
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/settings"
	"github.com/dubbogo/graceful/internal/wire"
)

func listedApp(port int, tag string, status wire.Status) item {
	in := &registry.DefaultServiceInstance{ServiceName: "app", Host: "10.0.0.1", Port: port, Tag: tag, Metadata: map[string]string{}}
	wire.Mark{Status: status, Start: "1-a", Seq: 1}.PutInto(in.Metadata)
	return serviceItem(in)
}

func TestDrainTagOnlyWhileSomebodyElseIsLeft(t *testing.T) {
	own := fakeRecord(1)
	for _, c := range []struct {
		name string
		list []item
		err  error
		rec  record
		want string
	}{
		{name: "another one", list: []item{listedApp(1, "", wire.Up), listedApp(2, "", wire.Up)}, want: drainTag},
		{name: "another one without this module", list: []item{listedApp(2, "", wire.Unknown)}, want: drainTag},
		{name: "alone", list: []item{listedApp(1, "", wire.Up)}},
		{name: "the other drains too", list: []item{listedApp(1, "", wire.Up), listedApp(2, "", wire.Draining)}},
		{name: "the other is of another tag", list: []item{listedApp(2, "blue", wire.Up)}},
		{name: "nobody can tell", err: errors.New("down")},
		{
			name: "a tag of its own", list: []item{listedApp(2, "", wire.Up)},
			rec: record{instance: &registry.DefaultServiceInstance{ServiceName: "app", Host: "10.0.0.1", Port: 1, Tag: "blue"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := newFakeSource()
			src.answers = [][]item{c.list}
			if c.err != nil {
				src.errs = []error{c.err}
			}
			n := &node{publication: newPublication("fake", "main", newFakePublisher()), sourceOf: func(record) source { return src }}
			rec := own
			if c.rec.instance != nil {
				rec = c.rec
			}
			assert.Equal(t, c.want, n.tagged(context.Background(), []record{rec})[0].tag)
		})
	}
}

func TestDrainTagIsNotHandedOn(t *testing.T) {
	it := listedApp(1, drainTag, wire.Draining)
	assert.Empty(t, it.tag())
	assert.Equal(t, listedApp(1, "", wire.Up).content, it.content)
	assert.Equal(t, "blue", listedApp(1, "blue", wire.Up).tag())
	u := mustURL(t, "tri://10.0.0.1:1/shop.A?interface=shop.A&dubbo.tag="+drainTag)
	got, ok := interfaceItem(u, u, wire.Mark{})
	require.True(t, ok)
	assert.Empty(t, got.tag())
}

func TestDrainTagIsOptional(t *testing.T) {
	for _, on := range []bool{false, true} {
		settings.Isolate(t)
		require.NoError(t, settings.Configure(config.WithDrainVanillaTag(on)))
		require.NoError(t, settings.Load(nil))
		bubble(t, func(t *testing.T, p *publication, reg *fakePublisher) {
			asked := 0
			p.tagging = func(_ context.Context, recs []record) []record {
				asked++
				for i := range recs {
					recs[i].tag = drainTag
				}
				return recs
			}
			_, err := p.collect(fakeRecord(1))
			require.NoError(t, err)
			p.openGate()
			settled(t, p)
			assert.Zero(t, asked, "nobody drains")
			own := self.Current().Mark()
			ctx := context.Background()
			require.NoError(t, p.Announce(ctx, wire.Mark{Status: wire.Draining, Start: own.Start, Seq: own.Seq + 1}))
			reg.watch()
			settled(t, p)
			want := ""
			if on {
				want = drainTag
				assert.Equal(t, 1, asked, "once per drain")
			} else {
				assert.Zero(t, asked)
			}
			assert.Equal(t, want, reg.tag)
			require.NoError(t, p.Announce(ctx, wire.Mark{Status: wire.Up, Start: own.Start, Seq: own.Seq + 2}))
			assert.Empty(t, reg.tag)
		})
	}
}
