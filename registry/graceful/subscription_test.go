// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"

	"pgregory.net/rapid"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/wire"
)

// fakeSource emits what the test tells it to.
type fakeSource struct {
	lists chan []item

	mu      sync.Mutex
	answers [][]item // of query, in turn; the last one stays
	errs    []error
	asked   int
	trouble bool
}

func (f *fakeSource) troubled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}

func newFakeSource() *fakeSource { return &fakeSource{lists: make(chan []item)} }

func (f *fakeSource) follow(ctx context.Context, emit func([]item)) {
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-f.lists:
			emit(l)
		}
	}
}

func (f *fakeSource) query(context.Context) ([]item, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, err
	}
	if len(f.answers) == 0 {
		return nil, nil
	}
	a := f.answers[0]
	if len(f.answers) > 1 {
		f.answers = f.answers[1:]
	}
	return a, nil
}

const testService = "shop.Backend"

// provider makes an item of interface level.
func provider(port int, start string, status wire.Status, seq uint64) item {
	u, err := common.NewURL(fmt.Sprintf("tri://10.0.0.1:%d/%s", port, testService), common.WithParams(url.Values{
		constant.InterfaceKey: {testService}, constant.TimestampKey: {fmt.Sprint(1700000000 + len(start))}, "who": {start},
	}))
	if err != nil {
		panic(err)
	}
	it, ok := interfaceItem(u, u, wire.Mark{Status: status, Start: start, Seq: seq})
	if !ok {
		panic("not asked for")
	}
	return it
}

type rig struct {
	*subscription
	source *fakeSource
	mu     sync.Mutex
	handed [][]string
	deaf   []string // addresses that refuse connections
}

func (r *rig) refuse(addresses ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = addresses
}

func newRig(t *testing.T) *rig {
	r := &rig{source: newFakeSource()}
	r.subscription = newSubscription(testService, r.source, func(items []item) {
		var l []string
		for _, it := range items {
			l = append(l, fmt.Sprintf("%s=%s", it.url.Port, it.url.GetParam("who", "")))
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.handed = append(r.handed, l)
	})
	r.table = instance.New(instance.DefaultSettings())
	r.presence = newPresence(r.table)
	r.limit = func() time.Duration { return 30 * time.Second }
	r.dial = func(_ context.Context, address string) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return !slices.Contains(r.deaf, address)
	}
	r.start()
	t.Cleanup(r.close)
	return r
}

func (r *rig) emit(items ...item) {
	r.source.lists <- items
	synctest.Wait()
}

func (r *rig) last() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.handed) == 0 {
		return nil
	}
	return r.handed[len(r.handed)-1]
}

func (r *rig) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.handed)
}

func (r *rig) entry(port int) *instance.Entry {
	return r.table.Lookup(fmt.Sprintf("10.0.0.1:%d", port))
}

func TestSubscriptionMarksGoToTheTableOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.emit(provider(1, "a", wire.Up, 1), provider(2, "b", wire.Up, 1))
		assert.Equal(t, []string{"1=a", "2=b"}, r.last())
		r.emit(provider(1, "a", wire.Draining, 2), provider(2, "b", wire.Up, 1))
		assert.Equal(t, 1, r.count())
		status, source, _ := r.entry(1).Status()
		assert.Equal(t, wire.Draining, status)
		assert.Equal(t, instance.FromRegistry, source)
		assert.True(t, r.entry(1).Hidden(time.Now()))
		assert.False(t, r.entry(2).Hidden(time.Now()))
	})
}

func TestSubscriptionHoldsARemovalWhileCallsAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.emit(provider(1, "a", wire.Up, 1), provider(2, "b", wire.Up, 1))
		flight := r.entry(1).Flight(testService)
		flight.Begin()
		r.emit(provider(2, "b", wire.Up, 1))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, r.count(), "still handed on")
		assert.True(t, r.entry(1).Hidden(time.Now()), "but hidden from new calls")
		assert.Equal(t, instance.Removed, r.entry(1).Verdict(time.Now()))

		r.emit(provider(2, "b", wire.Up, 1), provider(3, "c", wire.Up, 1))
		assert.Equal(t, []string{"2=b", "3=c", "1=a"}, r.last(), "other changes pass meanwhile")
		flight.End()
		synctest.Wait()
		assert.Equal(t, []string{"2=b", "3=c"}, r.last(), "the newest list, not the one that caused the hold")
		assert.False(t, r.entry(1).Hidden(time.Now()))
	})
}

func TestSubscriptionHoldIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.emit(provider(1, "a", wire.Up, 1), provider(2, "b", wire.Up, 1))
		flight := r.entry(1).Flight(testService)
		flight.Begin()
		defer flight.End()
		r.emit(provider(2, "b", wire.Up, 1))
		time.Sleep(30*time.Second - time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 1, r.count())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		assert.Equal(t, []string{"2=b"}, r.last())
	})
}

func TestSubscriptionCallsOfOtherServicesHoldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.emit(provider(1, "a", wire.Up, 1), provider(2, "b", wire.Up, 1))
		flight := r.entry(1).Flight("shop.Other")
		flight.Begin()
		defer flight.End()
		r.emit(provider(2, "b", wire.Up, 1))
		time.Sleep(holdMin)
		synctest.Wait()
		assert.Equal(t, []string{"2=b"}, r.last())
	})
}

func TestSubscriptionRestartAtTheSameAddressPassesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.emit(provider(1, "a", wire.Draining, 2), provider(2, "b", wire.Up, 1))
		flight := r.entry(1).Flight(testService)
		flight.Begin()
		r.emit(provider(2, "b", wire.Up, 1))
		assert.True(t, r.entry(1).Hidden(time.Now()))
		r.emit(provider(2, "b", wire.Up, 1), provider(1, "new", wire.Up, 1))
		assert.Equal(t, []string{"2=b", "1=new"}, r.last())
		assert.False(t, r.entry(1).Hidden(time.Now()), "the new instance has no mark of the old one")
		flight.End()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"2=b", "1=new"}, r.last(), "the old hold is over")
	})
}

func TestSubscriptionOverlapAtOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		old, young := provider(1, "old", wire.Draining, 2), provider(1, "young", wire.Up, 1)
		old.order, young.order = 1, 2
		r.emit(young, old)
		assert.Equal(t, []string{"1=young"}, r.last())
		assert.Equal(t, "young", r.entry(1).StartID())
		r.emit(young)
		assert.Equal(t, 1, r.count())
	})
}

func TestSubscriptionAddCancelsAHeldRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.emit(provider(1, "a", wire.Up, 1), provider(2, "b", wire.Up, 1))
		flight := r.entry(1).Flight(testService)
		flight.Begin()
		r.emit(provider(2, "b", wire.Up, 1))
		r.emit(provider(1, "a", wire.Up, 1), provider(2, "b", wire.Up, 1))
		assert.False(t, r.entry(1).Hidden(time.Now()))
		flight.End()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, r.count(), "nothing has changed for the listener")
	})
}

func TestSubscriptionUnannouncedEmptyListIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.source.answers = [][]item{nil, {provider(1, "a", wire.Up, 1)}}
		r.source.errs = []error{errors.New("no answer")}
		r.emit(provider(1, "a", wire.Up, 1))
		r.emit()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, r.count(), "the registry has filled up again")
		assert.Equal(t, 3, r.source.asked, "an error is no answer")

		r.source.answers = [][]item{nil}
		r.refuse("10.0.0.1:1")
		r.emit()
		assert.Equal(t, 1, r.count())
		time.Sleep(emptyAsks*emptyPause + holdMin)
		synctest.Wait()
		assert.Empty(t, r.last(), "three times empty is empty, when nobody accepts connections")
		assert.Equal(t, 2, r.count())
	})
}

func TestSubscriptionUnannouncedEmptyListIsNotBelievedWhileAProviderIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.source.answers = [][]item{nil}
		r.emit(provider(1, "a", wire.Up, 1), provider(2, "b", wire.Up, 1))
		r.refuse("10.0.0.1:1")
		r.emit()
		time.Sleep(emptyMost - time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"1=a", "2=b"}, r.last(), "one of them still accepts connections")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Empty(t, r.last(), "the registry has the last word")
	})
}

func TestSubscriptionProvidersWithoutAnIDMayBeTakenOutByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.source.answers = [][]item{nil}
		r.emit(provider(1, "", wire.Unknown, 0))
		r.emit()
		time.Sleep(emptyAsks*emptyPause + holdMin)
		synctest.Wait()
		assert.Empty(t, r.last())
	})
}

func TestSubscriptionANewListEndsTheAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.source.answers = [][]item{nil}
		r.emit(provider(1, "a", wire.Up, 1))
		r.emit()
		r.emit(provider(2, "b", wire.Up, 1))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"2=b"}, r.last())
	})
}

func TestSubscriptionAnnouncedEmptyListIsTheTruth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.emit(provider(1, "a", wire.Draining, 2))
		r.emit()
		time.Sleep(holdMin)
		synctest.Wait()
		assert.Empty(t, r.last())
		assert.Zero(t, r.source.asked)
	})
}

func TestPresenceOfSeveralLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		other := newRig(t)
		other.table, other.presence = r.table, r.presence
		r.emit(provider(1, "a", wire.Up, 1), provider(2, "b", wire.Up, 1))
		other.emit(provider(1, "a", wire.Up, 1), provider(2, "b", wire.Up, 1))
		flight := r.entry(1).Flight(testService)
		flight.Begin()
		r.emit(provider(2, "b", wire.Up, 1))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.False(t, r.entry(1).Hidden(time.Now()), "another list still has it")
		other.emit(provider(2, "b", wire.Up, 1))
		assert.True(t, r.entry(1).Hidden(time.Now()))
		flight.End()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Empty(t, r.presence.m["10.0.0.1:1"], "gone from every list")
	})
}

func TestSubscriptionCloseCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.emit(provider(1, "a", wire.Up, 1), provider(2, "b", wire.Up, 1))
		flight := r.entry(1).Flight(testService)
		flight.Begin()
		defer flight.End()
		r.emit(provider(2, "b", wire.Up, 1))
		r.close()
		assert.Empty(t, r.presence.m)
		assert.False(t, r.entry(1).Hidden(time.Now()))
	})
}

// Whatever the registry says and however calls come and go: what is handed on last is the newest list plus the providers
// that are held, a provider with calls under way is handed on within the limit, and the counts come back to zero.
func TestSubscriptionProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 63), 1, 25).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			calls := map[int]*instance.Flight{}
			var listed []int
			for _, s := range steps {
				port := s%4 + 1
				switch s / 16 {
				case 0, 1: // a list: the bits say who is in it
					listed = nil
					var items []item
					for p := 1; p <= 4; p++ {
						if s&(1<<(p-1)) != 0 {
							listed = append(listed, p)
							items = append(items, provider(p, fmt.Sprint("id", p), wire.Draining, 2))
						}
					}
					r.emit(items...)
				case 2: // a call begins or ends
					if f := calls[port]; f != nil {
						f.End()
						delete(calls, port)
					} else if e := r.entry(port); e != nil && slices.Contains(listed, port) {
						f = e.Flight(testService)
						f.Begin()
						calls[port] = f
					}
				default:
					time.Sleep(holdMin)
				}
				synctest.Wait()
			}
			time.Sleep(holdMin)
			synctest.Wait()
			var want []string
			for p := 1; p <= 4; p++ {
				if slices.Contains(listed, p) {
					want = append(want, fmt.Sprintf("%d=id%d", p, p))
				}
			}
			got := slices.Sorted(slices.Values(r.last()))
			for _, w := range want {
				assert.Contains(t, got, w)
			}
			for _, g := range got {
				if !slices.Contains(want, g) {
					port := int(g[0] - '0')
					assert.NotNil(t, calls[port], "%s is handed on without calls", g)
				}
			}
			for _, f := range calls {
				f.End()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.ElementsMatch(t, want, r.last())
			r.close()
			assert.Empty(t, r.presence.m)
		})
	})
}

func TestYoungest(t *testing.T) {
	require.Empty(t, youngest(nil))
}

func TestDeadProvidersDoNotHoldUpTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ready := 0
		r.have = func() { ready++ }
		r.refuse("10.0.0.1:1")
		r.emit(provider(1, "dead", wire.Up, 1), provider(2, "a", wire.Up, 1))
		require.Equal(t, []string{"2=a"}, r.last(), "the one that refuses connections is left out")
		require.Equal(t, 1, ready)
		require.Equal(t, instance.Unreachable, r.table.Lookup("10.0.0.1:1").Verdict(time.Now()))

		time.Sleep(3 * dialPause)
		synctest.Wait()
		require.Equal(t, 1, r.count(), "nothing is handed on while nothing changes")

		r.refuse()
		time.Sleep(dialPause)
		synctest.Wait()
		require.Equal(t, []string{"1=dead", "2=a"}, r.last(), "it is handed on as soon as it accepts connections")
		require.Equal(t, instance.Usable, r.table.Lookup("10.0.0.1:1").Verdict(time.Now()))
	})
}

func TestListOfDeadProvidersIsHandedOnAndIsNotReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ready := 0
		r.have = func() { ready++ }
		r.refuse("10.0.0.1:1")
		r.emit(provider(1, "dead", wire.Up, 1))
		require.Equal(t, []string{"1=dead"}, r.last(), "a list is never emptied for what a dial says")
		require.Zero(t, ready, "registration waits for a provider that can be called")

		r.refuse()
		time.Sleep(dialPause)
		synctest.Wait()
		require.Equal(t, []string{"1=dead"}, r.last())
		require.Equal(t, 2, r.count(), "handed on again, since dubbo-go could not connect the first time")
		require.Equal(t, 1, ready)
	})
}

func TestListOfDeadProvidersChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.refuse("10.0.0.1:1", "10.0.0.1:2")
		r.emit(provider(1, "dead", wire.Draining, 2))
		r.emit(provider(1, "dead", wire.Draining, 2), provider(2, "too", wire.Draining, 2))
		require.Equal(t, []string{"1=dead", "2=too"}, r.last())
		r.emit()
		time.Sleep(holdMin)
		synctest.Wait()
		require.Empty(t, r.last(), "what the registry takes away goes, dead or alive")
	})
}

func TestRegistryInTroubleIsDoubted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.source.trouble = true
		all := []item{provider(1, "lives", wire.Up, 1), provider(2, "dead", wire.Up, 1), provider(3, "leaves", wire.Draining, 2), provider(4, "", wire.Unknown, 0), provider(5, "e", wire.Up, 1)}
		r.emit(all...)
		r.refuse("10.0.0.1:2")
		r.emit(all[4])
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"5=e", "1=lives"}, r.last(), "the one that lives is kept, whoever is dead, has announced it, or cannot announce is not")
		assert.False(t, r.entry(1).Hidden(time.Now()), "it is called")

		r.emit(all[4], all[0])
		time.Sleep(2 * doubtMax)
		synctest.Wait()
		assert.Equal(t, []string{"1=lives", "5=e"}, slices.Sorted(slices.Values(r.last())), "it is back")

		r.emit(all[4])
		time.Sleep(doubtMax + doubtPause + holdMin)
		synctest.Wait()
		assert.Equal(t, []string{"5=e"}, r.last(), "it does not come back")

		r.emit(all[4], all[0])
		r.emit(all[4])
		r.emit(all[4], provider(1, "successor", wire.Up, 1))
		assert.Equal(t, []string{"5=e", "1=successor"}, r.last(), "another process at the address passes at once")

		r.emit(all[4])
		r.close()
		assert.Empty(t, r.presence.m)
	})
}

func TestRegistryThatWasNeverAwayIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.emit(provider(1, "a", wire.Up, 1), provider(2, "b", wire.Up, 1))
		r.emit(provider(2, "b", wire.Up, 1))
		time.Sleep(holdMin)
		synctest.Wait()
		assert.Equal(t, []string{"2=b"}, r.last())
	})
}
