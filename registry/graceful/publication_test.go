// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dubbo.apache.org/dubbo-go/v3/registry"
)

import (
	"github.com/dubbogo/graceful/internal/announce"
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/wire"
)

var errDown = errors.New("down")

// fakePublisher is a registry in memory.
type fakePublisher struct {
	mu       sync.Mutex
	there    map[string]wire.Mark
	puts     int
	tag      string // of the last record written
	down     bool
	slow     chan struct{} // Put waits for it
	watch    func()
	closed   bool
	removed  int
	sluggish bool // shows nothing yet
}

func newFakePublisher() *fakePublisher { return &fakePublisher{there: make(map[string]wire.Mark)} }

func (f *fakePublisher) Put(ctx context.Context, recs []record, m wire.Mark) error {
	f.mu.Lock()
	slow := f.slow
	f.mu.Unlock()
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.puts++
	if f.down {
		return errDown
	}
	for _, r := range recs {
		f.there[r.key()] = m
		f.tag = r.tag
	}
	return nil
}

func (f *fakePublisher) Remove(_ context.Context, recs []record) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return errDown
	}
	for _, r := range recs {
		delete(f.there, r.key())
		f.removed++
	}
	return nil
}

func (f *fakePublisher) Shows(_ context.Context, recs []record, m wire.Mark) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sluggish {
		return errNotShown
	}
	for _, r := range recs {
		if f.there[r.key()] != m {
			return errNotShown
		}
	}
	return nil
}

func (f *fakePublisher) Watch(w func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch = w
}

func (f *fakePublisher) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *fakePublisher) set(change func(*fakePublisher)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakePublisher) marks() map[string]wire.Mark {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]wire.Mark)
	for k, v := range f.there {
		out[k] = v
	}
	return out
}

func fakeRecord(port int) record {
	return record{instance: &registry.DefaultServiceInstance{ServiceName: "app", Host: "10.0.0.1", Port: port, Metadata: map[string]string{}}}
}

func bubble(t *testing.T, f func(t *testing.T, p *publication, reg *fakePublisher)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		reg := newFakePublisher()
		p := newPublication("fake registry", "main", reg)
		f(t, p, reg)
		require.NoError(t, p.Close(context.Background()))
		require.NoError(t, p.Close(context.Background()), "idempotent")
		assert.True(t, reg.closed)
	})
}

func settled(t *testing.T, p *publication) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, p.settle(ctx))
}

func TestPublicationCollectsUntilTheGateOpens(t *testing.T) {
	bubble(t, func(t *testing.T, p *publication, reg *fakePublisher) {
		for port := range 3 {
			added, err := p.collect(fakeRecord(port + 1))
			require.NoError(t, err)
			require.True(t, added)
		}
		require.NoError(t, p.Announce(context.Background(), self.Current().Mark()), "nothing is published yet")
		synctest.Wait()
		assert.Empty(t, reg.marks())
		assert.Contains(t, announce.All(), announce.Publisher(p))

		assert.True(t, p.openGate())
		settled(t, p)
		assert.Len(t, reg.marks(), 3)
		assert.Equal(t, 1, reg.puts, "all records go together")

		added, err := p.collect(fakeRecord(3))
		require.NoError(t, err)
		assert.False(t, added, "the same record again")
		_, err = p.collect(fakeRecord(4))
		require.NoError(t, err)
		settled(t, p)
		assert.Len(t, reg.marks(), 4, "what comes later passes at once")
	})
}

func TestPublicationRetriesUntilTheRegistryIsBack(t *testing.T) {
	bubble(t, func(t *testing.T, p *publication, reg *fakePublisher) {
		reg.set(func(f *fakePublisher) { f.down = true })
		_, err := p.collect(fakeRecord(1))
		require.NoError(t, err)
		p.openGate()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err = p.settle(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errDown)
		reg.mu.Lock()
		puts := reg.puts
		reg.mu.Unlock()
		assert.Greater(t, puts, 5)
		assert.Less(t, puts, 40, "attempts must back off")
		reg.set(func(f *fakePublisher) { f.down = false })
		settled(t, p)
		assert.Len(t, reg.marks(), 1)
	})
}

func TestPublicationAnnouncesAndWithdraws(t *testing.T) {
	bubble(t, func(t *testing.T, p *publication, reg *fakePublisher) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := p.collect(fakeRecord(1))
		require.NoError(t, err)
		p.openGate()
		settled(t, p)
		own := self.Current().Mark()
		draining := wire.Mark{Status: wire.Draining, Start: own.Start, Seq: own.Seq + 1}
		require.NoError(t, p.Announce(ctx, draining))
		assert.Equal(t, draining, reg.marks()[fakeRecord(1).key()])
		require.NoError(t, p.Confirmed(ctx, draining))
		require.NoError(t, p.Announce(ctx, own), "older than what was announced")
		assert.Equal(t, draining, reg.marks()[fakeRecord(1).key()], "an older mark never replaces a newer one")

		require.NoError(t, p.Withdraw(ctx))
		require.NoError(t, p.Withdraw(ctx))
		assert.Empty(t, reg.marks())
		require.NoError(t, p.Announce(ctx, draining), "nothing comes back by itself")
		require.NoError(t, p.Confirmed(ctx, draining))
		reg.watch()
		synctest.Wait()
		assert.Empty(t, reg.marks(), "nor by a reconnect")
		_, err = p.collect(fakeRecord(2))
		require.NoError(t, err)
		synctest.Wait()
		assert.Empty(t, reg.marks(), "nor by a late record")

		back := wire.Mark{Status: wire.Up, Start: own.Start, Seq: own.Seq + 2}
		require.NoError(t, p.Announce(ctx, back))
		assert.Equal(t, map[string]wire.Mark{fakeRecord(1).key(): back, fakeRecord(2).key(): back}, reg.marks())
	})
}

func TestPublicationAnnouncementInterruptsAnOlderWrite(t *testing.T) {
	bubble(t, func(t *testing.T, p *publication, reg *fakePublisher) {
		_, err := p.collect(fakeRecord(1))
		require.NoError(t, err)
		reg.set(func(f *fakePublisher) { f.slow = make(chan struct{}) })
		p.openGate()
		synctest.Wait() // the first write hangs in the registry
		began := time.Now()
		reg.set(func(f *fakePublisher) { f.slow = nil })
		own := self.Current().Mark()
		draining := wire.Mark{Status: wire.Draining, Start: own.Start, Seq: own.Seq + 1}
		require.NoError(t, p.Announce(context.Background(), draining))
		assert.Zero(t, time.Since(began), "it must not wait for the older write")
		assert.Equal(t, draining, reg.marks()[fakeRecord(1).key()])
	})
}

func TestPublicationReconnectPublishesTheCurrentMarkAndTells(t *testing.T) {
	told := make(chan string, 4)
	hookFor(t, func(id string) { told <- id })
	bubble(t, func(t *testing.T, p *publication, reg *fakePublisher) {
		_, err := p.collect(fakeRecord(1))
		require.NoError(t, err)
		p.openGate()
		settled(t, p)
		own := self.Current().Mark()
		draining := wire.Mark{Status: wire.Draining, Start: own.Start, Seq: own.Seq + 1}
		require.NoError(t, p.Announce(context.Background(), draining))
		assert.Empty(t, told)
		reg.set(func(f *fakePublisher) { clear(f.there) })
		reg.watch()
		synctest.Wait()
		assert.Equal(t, draining, reg.marks()[fakeRecord(1).key()])
		require.Len(t, told, 1)
		assert.Equal(t, "main", <-told)
	})
}

func TestPublicationWithdrawBeforeTheGate(t *testing.T) {
	bubble(t, func(t *testing.T, p *publication, reg *fakePublisher) {
		ctx := context.Background()
		_, err := p.collect(fakeRecord(1))
		require.NoError(t, err)
		require.NoError(t, p.Withdraw(ctx))
		select {
		case <-p.ended:
		default:
			assert.Fail(t, "whoever waits for the gate must stop")
		}
		assert.False(t, p.openGate())
		synctest.Wait()
		assert.Empty(t, reg.marks())
		own := self.Current().Mark()
		require.NoError(t, p.Announce(ctx, own), "online again")
		assert.Len(t, reg.marks(), 1)
	})
}

func TestPublicationDropsOneRecord(t *testing.T) {
	bubble(t, func(t *testing.T, p *publication, reg *fakePublisher) {
		for port := range 2 {
			_, err := p.collect(fakeRecord(port + 1))
			require.NoError(t, err)
		}
		p.openGate()
		settled(t, p)
		assert.True(t, p.drop(fakeRecord(1).key()))
		assert.False(t, p.drop(fakeRecord(1).key()))
		settled(t, p)
		assert.Len(t, reg.marks(), 1)
		_, err := p.collect(fakeRecord(1))
		require.NoError(t, err)
		settled(t, p)
		assert.Len(t, reg.marks(), 2, "and it may come again")
	})
}

func TestPublicationConfirmedEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, p *publication, reg *fakePublisher) {
		_, err := p.collect(fakeRecord(1))
		require.NoError(t, err)
		p.openGate()
		settled(t, p)
		reg.set(func(f *fakePublisher) { f.sluggish = true })
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		err = p.Confirmed(ctx, self.Current().Mark())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errNotShown)
	})
}

func TestPublicationFailedWithdrawIsReportedAndRetried(t *testing.T) {
	bubble(t, func(t *testing.T, p *publication, reg *fakePublisher) {
		_, err := p.collect(fakeRecord(1))
		require.NoError(t, err)
		p.openGate()
		settled(t, p)
		reg.set(func(f *fakePublisher) { f.down = true })
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		require.ErrorIs(t, p.Withdraw(ctx), errDown)
		reg.set(func(f *fakePublisher) { f.down = false })
		require.NoError(t, p.Withdraw(context.Background()))
		assert.Empty(t, reg.marks())
	})
}

func TestPublicationAfterClose(t *testing.T) {
	reg := newFakePublisher()
	p := newPublication("fake", "main", reg)
	require.NoError(t, p.Close(context.Background()))
	_, err := p.collect(fakeRecord(1))
	require.ErrorIs(t, err, ErrStopped)
	require.ErrorIs(t, p.Announce(context.Background(), wire.Mark{}), ErrStopped)
	require.NoError(t, p.Withdraw(context.Background()))
	assert.False(t, slices.Contains(announce.All(), announce.Publisher(p)))
}

func TestPublicationInstanceUpdate(t *testing.T) {
	bubble(t, func(t *testing.T, p *publication, reg *fakePublisher) {
		_, err := p.collect(fakeRecord(1))
		require.NoError(t, err)
		p.openGate()
		settled(t, p)
		changed := fakeRecord(1)
		changed.instance.GetMetadata()["revision"] = "2"
		puts := reg.puts
		_, err = p.collect(changed)
		require.NoError(t, err)
		settled(t, p)
		assert.Equal(t, puts+1, reg.puts)
		assert.Equal(t, fmt.Sprint(map[string]string{"revision": "2"}), fmt.Sprint(p.allLocked()[0].instance.GetMetadata()))
	})
}

func TestPublicationOfAProcessThatLeavesAlready(t *testing.T) {
	bubble(t, func(t *testing.T, p *publication, reg *fakePublisher) {
		self.SetStatus(wire.Draining)
		defer self.SetStatus(wire.Up)
		_, err := p.collect(fakeRecord(1))
		require.NoError(t, err)
		assert.False(t, p.openGate(), "the coordinator may have withdrawn all it knew of before")
		synctest.Wait()
		assert.Empty(t, reg.marks())
		require.NoError(t, p.Announce(context.Background(), self.SetStatus(wire.Up).Mark()))
		assert.Len(t, reg.marks(), 1, "online again")
	})
}
