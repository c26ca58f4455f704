// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pgregory.net/rapid"
)

import (
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/wire"
)

// process is a simulated instance, which knows the truth about itself.
type process struct {
	id     string
	seq    uint64
	status wire.Status
}

func (p *process) mark() wire.Mark {
	return wire.Mark{Status: p.status, Start: p.id, Seq: p.seq}
}

// One address at which processes come and go, with a registry whose events come in order, and stale voices that repeat what was
// said before. The table always knows the process that the registry listed last, and what it said last.
func TestTableFollowsTheRegistry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := DefaultSettings()
		tab := New(s)
		now := time.Now()
		ids := 0
		var cur *process // as the registry has it
		var told struct {
			status wire.Status
			at     time.Time
		}
		var past []wire.Mark
		held := false
		heard := func(st wire.Status) {
			if told.status != st {
				told.status, told.at = st, now
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"a process appears": func(t *rapid.T) {
				now = now.Add(2 * time.Second) // two lists, not one
				if cur != nil {
					past = append(past, cur.mark())
				}
				ids++
				cur = &process{id: fmt.Sprintf("%d-a", rapid.IntRange(1, 1000).Draw(t, "clock")*1000+ids), seq: 1, status: wire.Up}
				require.True(t, tab.Observe(a, Observation{Mark: cur.mark()}, now))
				told.status, told.at, held = wire.Up, now, false
			},
			"it changes its mind": func(t *rapid.T) {
				if cur == nil {
					return
				}
				past = append(past, cur.mark())
				cur.seq++
				cur.status = wire.Up + wire.Draining - cur.status
				tab.Observe(a, Observation{Mark: cur.mark()}, now)
				heard(cur.status)
			},
			"the registry repeats itself": func(t *rapid.T) {
				if cur != nil {
					require.False(t, tab.Observe(a, Observation{Mark: cur.mark()}, now))
				}
			},
			"a stale record": func(t *rapid.T) {
				if len(past) > 0 {
					require.False(t, tab.Observe(a, Observation{Mark: rapid.SampledFrom(past).Draw(t, "stale")}, now))
				}
			},
			"a stale list from disk": func(t *rapid.T) {
				if cur != nil && len(past) > 0 {
					require.False(t, tab.Observe(a, Observation{Mark: rapid.SampledFrom(past).Draw(t, "stale"), Source: FromDisk}, now))
				}
			},
			"a mark of somebody else": func(t *rapid.T) {
				if cur != nil {
					require.False(t, tab.MarkDraining(a, "7-other", FromResponse, now))
				}
			},
			"a mark of its own": func(t *rapid.T) {
				if cur != nil && cur.status == wire.Draining && told.status == wire.Draining {
					tab.MarkDraining(a, cur.id, FromResponse, now)
					if now.Sub(told.at) >= s.NoticeTime {
						told.at = now // said anew
					}
				}
			},
			"an old record is removed": func(t *rapid.T) {
				if len(past) > 0 {
					if id := rapid.SampledFrom(past).Draw(t, "old").Start; cur != nil && id != cur.id {
						tab.LeaveID(a, id, now)
					}
				}
			},
			"held": func(*rapid.T) {
				if cur != nil {
					held = !held
					tab.Lookup(a).SetHeld(held)
				}
			},
			"requests": func(t *rapid.T) {
				e := tab.Obtain("other:1", now)
				for range rapid.IntRange(1, 7).Draw(t, "n") {
					e.Begin(now)
					e.End(attempt.Class(rapid.IntRange(0, 4).Draw(t, "class")), 0, now)
				}
				if rapid.Bool().Draw(t, "dial") {
					e.Dialed(rapid.Bool().Draw(t, "ok"), now)
				}
			},
			"time passes": func(t *rapid.T) {
				// The memory of ids is ten minutes long; what is stale for longer is not simulated.
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "wait")))
				if len(past) > 12 {
					past = past[len(past)-12:]
				}
			},
			"": func(t *rapid.T) {
				if cur == nil {
					return
				}
				e := tab.Lookup(a)
				require.Equal(t, cur.id, e.StartID())
				status, _, _ := e.Status()
				require.Equal(t, told.status, status)
				draining := told.status == wire.Draining && now.Sub(told.at) < s.NoticeTime
				require.Equal(t, draining || held, e.Hidden(now))
				require.Equal(t, held, e.Verdict(now) == Removed)
				if draining || held {
					require.True(t, tab.Hidden(), "the fast path must not miss it")
				}
				for _, v := range tab.Snapshot(now) {
					require.Equal(t, tab.Lookup(v.Addr).Verdict(now), v.Verdict)
					require.Equal(t, v.Verdict != Usable, v.Excluded)
					require.Equal(t, v.Excluded, v.Why != "")
					require.Equal(t, v.Excluded, v.By != "")
					if v.Excluded || v.Warming {
						require.True(t, tab.Troubled())
					}
					if !v.Until.IsZero() && v.Verdict == Draining {
						require.True(t, v.Until.After(now))
					}
				}
				checkCounts(t, tab)
			},
		})
	})
}

// checkCounts compares the counts of a table at rest with its entries.
func checkCounts(t require.TestingT, tab *Table) {
	var hidden, troubled, ejected, unreachable int64
	tab.Each(func(e *Entry) bool {
		w := e.word.Load()
		count := func(n *int64, bits uint64) {
			if w&bits != 0 {
				*n++
			}
		}
		count(&hidden, bitsHidden)
		count(&troubled, bitsTroubled)
		count(&ejected, bitEjected)
		count(&unreachable, bitUnreachable)
		return true
	})
	require.Equal(t, hidden, tab.hidden.Load())
	require.Equal(t, troubled, tab.troubled.Load())
	require.Equal(t, ejected, tab.ejected.Load())
	require.Equal(t, unreachable, tab.unreachable.Load())
}

// Writers and readers on all sides: at the end nothing is in flight, and every count is right.
func TestConcurrentUse(t *testing.T) {
	tab := New(DefaultSettings())
	defer tab.OnChange(func(addr string) { tab.Lookup(addr) })()
	addrs := make([]string, 6)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("10.0.0.%d:20000", i)
	}
	began := time.Now()
	var ticks atomic.Int64
	clock := func() time.Time { return began.Add(time.Duration(ticks.Add(1)) * 5 * time.Millisecond) }
	var wg sync.WaitGroup
	for g := range uint64(6) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(g, 7))
			for range 1500 {
				addr := addrs[r.IntN(len(addrs))]
				now := clock()
				switch r.IntN(12) {
				case 0:
					tab.Observe(addr, Observation{Mark: up(fmt.Sprintf("%d-a", r.IntN(50)), uint64(r.IntN(4))), Preexisting: r.IntN(2) == 0}, now)
				case 1:
					tab.Observe(addr, Observation{Mark: leaving(fmt.Sprintf("%d-a", r.IntN(50)), uint64(r.IntN(4)))}, now)
				case 2:
					tab.Leave(addr, now)
				case 3:
					e := tab.Obtain(addr, now)
					tab.MarkDraining(addr, e.StartID(), FromRejection, now)
				case 4:
					tab.Obtain(addr, now).SetHeld(r.IntN(2) == 0)
				case 5:
					tab.Obtain(addr, now).Dialed(r.IntN(2) == 0, now)
				case 6:
					tab.Snapshot(now)
					tab.NextDial()
				default:
					e := tab.Obtain(addr, now)
					if e.Verdict(now) == Trial {
						e.TryTrial(now)
					}
					e.Hidden(now)
					e.Weight(100, now)
					e.NeedsDial(now)
					f := e.Flight("shop.Backend")
					e.Begin(now)
					f.Begin()
					e.End(attempt.Class(r.IntN(5)), time.Duration(r.IntN(1e8)), clock())
					f.End()
				}
			}
		})
	}
	wg.Wait()
	tab.Each(func(e *Entry) bool {
		assert.Zero(t, e.InFlight())
		assert.Zero(t, e.Flight("shop.Backend").Count())
		return true
	})
	checkCounts(t, tab)
}

// A reader that finds a mark outlived clears it. It must never clear the next one: from the return of MarkDraining on, everybody
// sees the instance hidden.
func TestReadersDoNotClearANewMark(t *testing.T) {
	s := DefaultSettings()
	s.NoticeTime = time.Minute
	tab := New(s)
	began := time.Now()
	tab.Observe(a, Observation{Mark: up("1-a", 1), Preexisting: true}, began)
	e := tab.Lookup(a)
	var minute atomic.Int64
	clock := func() time.Time { return began.Add(time.Duration(minute.Load()) * time.Minute) }
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					now := clock()
					e.Hidden(now)
					e.Verdict(now)
				}
			}
		})
	}
	for range 3000 {
		minute.Add(1) // the notice time of the last mark is over
		if now := clock(); !tab.MarkDraining(a, "1-a", FromResponse, now) || !e.Hidden(now) || !tab.Hidden() {
			t.Error("the mark was lost")
			break
		}
	}
	close(stop)
	wg.Wait()
	checkCounts(t, tab)
}

// The same, step by step: the reader has read the word, and is late.
func TestLateClear(t *testing.T) {
	f := newFixture(t)
	f.list(leaving("1-a", 2))
	f.pass(2 * time.Minute)
	e := f.entry()
	word := e.word.Load()
	require.True(t, f.MarkDraining(a, "1-a", FromResponse, f.now))
	e.clear(word, bitDraining)
	assert.True(t, e.Hidden(f.now))
	assert.True(t, f.Hidden())
	checkCounts(t, f.Table)
}

// One trial, many requests that want it.
func TestOneWinsTheTrial(t *testing.T) {
	f := newFixture(t)
	f.list(up("1-a", 1))
	for range 500 {
		f.call(attempt.Transport)
		f.pass(time.Minute)
		f.entry().Dialed(true, f.now)
		require.Equal(t, Trial, f.entry().Verdict(f.now))
		var won atomic.Int32
		var wg sync.WaitGroup
		var ready atomic.Int32
		for range 4 {
			wg.Go(func() {
				for ready.Add(1); ready.Load() < 4; {
					runtime.Gosched() // all at once
				}
				if f.Lookup(a).TryTrial(f.now) {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		require.Equal(t, int32(1), won.Load())
		f.call(attempt.Answered)
	}
}

func TestRequestPathAllocatesNothing(t *testing.T) {
	now := time.Now()
	for name, tab := range fleets(now) {
		addr := address(7)
		e := tab.Lookup(addr)
		e.Flight("shop.Backend")
		for what, f := range map[string]func(){
			"Lookup":   func() { tab.Lookup(addr) },
			"Obtain":   func() { tab.Obtain(addr, now) },
			"Hidden":   func() { tab.Hidden(); e.Hidden(now) },
			"Troubled": func() { tab.Troubled() },
			"Verdict":  func() { e.Verdict(now) },
			"Weight":   func() { e.Weight(100, now); e.Warming(now) },
			"Flight":   func() { fl := e.Flight("shop.Backend"); fl.Begin(); fl.End() },
			"call":     func() { e.Begin(now); e.End(attempt.Answered, time.Millisecond, now) },
			"cancel":   func() { e.Begin(now); e.End(attempt.Canceled, time.Millisecond, now) },
			"NextDial": func() { e.NeedsDial(now); tab.NextDial() },
			"TryTrial": func() { e.TryTrial(now) },
			"Status":   func() { e.Status(); e.StartID(); e.EjectedFor(); e.InFlight(); e.Latency() },
		} {
			assert.Zero(t, testing.AllocsPerRun(200, f), "%s: %s", name, what)
		}
	}
}

func address(i int) string { return fmt.Sprintf("10.0.%d.%d:20000", i/250, i%250) }

// fleets are tables of a thousand instances in the states that the request path meets.
func fleets(now time.Time) map[string]*Table {
	fleet := func(preexisting bool) *Table {
		tab := New(DefaultSettings())
		for i := range 1000 {
			tab.Observe(address(i), Observation{Mark: up(fmt.Sprintf("1-%d", i), 1), Preexisting: preexisting}, now)
		}
		return tab
	}
	warm, warming, troubled := fleet(true), fleet(false), fleet(true)
	for i := range 1000 {
		addr := address(i)
		switch e := troubled.Lookup(addr); i % 10 {
		case 0:
			troubled.MarkDraining(addr, e.StartID(), FromResponse, now)
		case 7:
			e.Begin(now)
			e.End(attempt.Transport, 0, now)
		case 8:
			e.Dialed(false, now)
		}
	}
	return map[string]*Table{"warm": warm, "warming": warming, "troubled": troubled}
}

func BenchmarkRequestPath(b *testing.B) {
	now := time.Now()
	all := fleets(now)
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		tab := all[name]
		addrs := make([]string, 1000)
		for i := range addrs {
			addrs[i] = address(i)
		}
		run := func(what string, f func(i int)) {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					f(i)
					if i++; i == len(addrs) {
						i = 0
					}
				}
			})
		}
		run("Lookup", func(i int) { tab.Lookup(addrs[i]) })
		run("Verdict", func(i int) { tab.Lookup(addrs[i]).Verdict(now) })
		run("Weight", func(i int) { tab.Lookup(addrs[i]).Weight(100, now) })
		run("Call", func(i int) {
			e := tab.Lookup(addrs[i])
			f := e.Flight("shop.Backend")
			e.Begin(now)
			f.Begin()
			e.End(attempt.Answered, time.Millisecond, now)
			f.End()
		})
	}
}

func BenchmarkCallParallel(b *testing.B) {
	tab := fleets(time.Now())["warm"]
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		now := time.Now()
		for i := 0; pb.Next(); i++ {
			e := tab.Lookup(address7[i&7])
			e.Begin(now)
			e.End(attempt.Answered, time.Millisecond, now)
		}
	})
}

var address7 = [8]string{address(0), address(1), address(2), address(3), address(4), address(5), address(6), address(7)}

func BenchmarkObserve(b *testing.B) {
	now := time.Now()
	tab := fleets(now)["warm"]
	o := Observation{Mark: up("1-7", 1)}
	addr := address(7)
	b.ReportAllocs()
	for b.Loop() {
		tab.Observe(addr, o, now)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	now := time.Now()
	tab := fleets(now)["troubled"]
	b.ReportAllocs()
	for b.Loop() {
		tab.Snapshot(now)
	}
}
