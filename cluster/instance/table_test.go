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
)

import (
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/wire"
)

const a = "10.0.0.1:20000"

// fixture is a table with a clock, and without chance: every ejection lasts as long as it can.
type fixture struct {
	*Table
	t       *testing.T
	now     time.Time
	changes []string
}

func newFixture(t *testing.T) *fixture {
	s := DefaultSettings()
	s.WarmupWindow = 0
	f := &fixture{Table: New(s), t: t, now: time.Now()}
	f.SetJitter(func() float64 { return 1 })
	t.Cleanup(f.OnChange(func(addr string) { f.changes = append(f.changes, addr) }))
	return f
}

func (f *fixture) pass(d time.Duration) { f.now = f.now.Add(d) }

func (f *fixture) list(m wire.Mark) bool {
	return f.Observe(a, Observation{Mark: m}, f.now)
}

func (f *fixture) entry() *Entry { return f.Obtain(a, f.now) }

// call is a request that takes a millisecond.
func (f *fixture) call(c attempt.Class) bool {
	f.entry().Begin(f.now)
	f.pass(time.Millisecond)
	return f.entry().End(c, time.Millisecond, f.now)
}

func (f *fixture) is(v Verdict, why ...any) {
	f.t.Helper()
	require.Equal(f.t, v, f.entry().Verdict(f.now), why...)
}

func TestUnknownAddress(t *testing.T) {
	f := newFixture(t)
	assert.Nil(t, f.Lookup(a))
	assert.False(t, f.MarkDraining(a, "1-a", FromResponse, f.now))
	f.Leave(a, f.now)
	assert.Nil(t, f.Lookup(a))
	assert.Empty(t, f.Snapshot(f.now))
	assert.True(t, f.NextDial().IsZero())
	e := f.Obtain(a, f.now)
	assert.Same(t, e, f.Lookup(a))
	assert.Same(t, e, f.Obtain(a, f.now))
	assert.Equal(t, a, e.Addr())
	f.is(Usable)
	assert.Equal(t, attempt.Answered, e.EjectedFor())
	assert.Equal(t, 1, f.Len())
	assert.Same(t, Default(), Default())
}

func TestDrainingByTheRegistry(t *testing.T) {
	f := newFixture(t)
	assert.True(t, f.list(up("1-a", 1)))
	assert.False(t, f.list(up("1-a", 1)))
	assert.False(t, f.Hidden())
	f.pass(time.Minute)
	assert.True(t, f.list(leaving("1-a", 2)))
	assert.True(t, f.Hidden())
	assert.True(t, f.Troubled())
	assert.True(t, f.entry().Hidden(f.now))
	f.is(Draining)
	status, src, since := f.entry().Status()
	assert.Equal(t, wire.Draining, status)
	assert.Equal(t, FromRegistry, src)
	assert.Zero(t, since.Sub(f.now))

	assert.False(t, f.list(up("1-a", 1)), "a stale list revives nobody")
	f.is(Draining)
	assert.True(t, f.list(up("1-a", 3)), "its own process does")
	f.is(Usable)
	assert.False(t, f.Hidden())
	assert.False(t, f.Troubled())
	assert.Equal(t, []string{a, a, a}, f.changes)
}

func TestDrainingEndsWithTheNoticeTime(t *testing.T) {
	f := newFixture(t)
	f.list(leaving("1-a", 2))
	f.pass(2*time.Minute - 1)
	f.list(leaving("1-a", 2))
	assert.True(t, f.entry().Hidden(f.now), "said again is not said anew")
	f.pass(1)
	assert.True(t, f.Hidden(), "nobody has looked yet")
	f.is(Usable)
	assert.False(t, f.Hidden())
	assert.False(t, f.entry().Hidden(f.now))
}

func TestDrainingByAResponse(t *testing.T) {
	f := newFixture(t)
	f.list(up("1-a", 1))
	assert.False(t, f.MarkDraining(a, "2-b", FromResponse, f.now), "a proxy passes on what another one said")
	assert.False(t, f.MarkDraining(a, "", FromResponse, f.now))
	f.is(Usable)
	assert.True(t, f.MarkDraining(a, "1-a", FromResponse, f.now))
	assert.False(t, f.MarkDraining(a, "1-a", FromResponse, f.now))
	f.is(Draining)
	assert.False(t, f.list(up("1-a", 1)), "the registry does not know yet")
	f.is(Draining)
	assert.False(t, f.list(leaving("1-a", 2)))
	assert.True(t, f.list(up("1-a", 3)))
	f.is(Usable)
	f.pass(time.Millisecond)
	assert.False(t, f.MarkDraining(a, "1-a", FromResponse, f.now), "a response that was written before")
	f.is(Usable)
	f.pass(time.Second)
	assert.True(t, f.MarkDraining(a, "1-a", FromResponse, f.now))
}

func TestDrainingByTheClosingEvent(t *testing.T) {
	f := newFixture(t)
	f.list(wire.Mark{})
	assert.True(t, f.MarkDraining(a, "", FromClosing, f.now))
	f.is(Draining)
	assert.False(t, f.list(wire.Mark{}), "its record is still there")
	f.is(Draining)
	f.pass(2 * time.Minute)
	f.is(Usable)
	assert.True(t, f.MarkDraining(a, "", FromClosing, f.now), "said anew")
}

// Case "No provider for good": a restart at the same address is in use at once, whatever its predecessor left behind.
func TestRestartAtTheSameAddress(t *testing.T) {
	for name, before := range map[string]func(*fixture){
		"draining":          func(f *fixture) { f.list(leaving("5-a", 2)) },
		"draining and left": func(f *fixture) { f.list(leaving("5-a", 2)); f.Leave(a, f.now) },
		"held":              func(f *fixture) { f.list(leaving("5-a", 2)); f.entry().SetHeld(true) },
		"ejected":           func(f *fixture) { f.list(up("5-a", 1)); f.call(attempt.Transport) },
		"unreachable":       func(f *fixture) { f.list(up("5-a", 1)); f.call(attempt.NotExecuted) },
		"its clock is back": func(f *fixture) { f.list(up("9-a", 1)); f.call(attempt.NotExecuted) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			before(f)
			require.NotEqual(t, Usable, f.entry().Verdict(f.now))
			old := f.entry().StartID()
			f.pass(5 * time.Second)
			assert.True(t, f.list(up("8-b", 1)))
			f.is(Usable)
			assert.False(t, f.Hidden())
			assert.False(t, f.Troubled())
			assert.Equal(t, "8-b", f.entry().StartID())
			assert.Zero(t, f.Snapshot(f.now)[0].Requests, "figures are its own")

			assert.False(t, f.list(leaving(old, 2)), "the record that outlived its process")
			f.LeaveID(a, old, f.now)
			f.is(Usable)
			assert.Equal(t, "8-b", f.entry().StartID())
			assert.False(t, f.MarkDraining(a, old, FromResponse, f.now))
		})
	}
}

func TestRestartOfAVanillaInstance(t *testing.T) {
	f := newFixture(t)
	f.list(wire.Mark{})
	f.call(attempt.Transport)
	assert.False(t, f.list(wire.Mark{}), "the same list again")
	f.is(Ejected)
	f.Leave(a, f.now)
	assert.True(t, f.list(wire.Mark{}))
	f.is(Usable)
}

func TestSessionLossIsNoRestart(t *testing.T) {
	f := newFixture(t)
	f.list(up("1-a", 1))
	f.call(attempt.Answered)
	f.Leave(a, f.now)
	assert.False(t, f.Snapshot(f.now)[0].Left.IsZero())
	assert.False(t, f.list(up("1-a", 1)), "the same process has registered again")
	assert.True(t, f.Snapshot(f.now)[0].Left.IsZero())
	assert.Equal(t, uint64(1), f.Snapshot(f.now)[0].Requests)
	assert.True(t, f.list(up("0-b", 1)), "and it is not seen as one that left")
}

func TestDirectURL(t *testing.T) {
	f := newFixture(t)
	f.entry()
	assert.True(t, f.MarkDraining(a, "1-a", FromRejection, f.now), "nobody else tells who is there")
	f.is(Draining)
	assert.Equal(t, "1-a", f.entry().StartID())
	assert.True(t, f.entry().NextDial().Equal(f.now.Add(time.Second)), "and nobody else tells when the next one is")
	assert.False(t, f.entry().NeedsDial(f.now))
	f.pass(time.Second)
	assert.True(t, f.entry().NeedsDial(f.now))
	f.entry().Dialed(true, f.now)
	f.is(Draining, "it still listens")
	f.pass(time.Second)
	assert.True(t, f.entry().NeedsDial(f.now))
	f.entry().Dialed(false, f.now)
	f.is(Draining, "it is gone")
	f.pass(time.Second)
	f.entry().Dialed(true, f.now)
	f.is(Usable, "another process is there")
	assert.Empty(t, f.entry().StartID())
	assert.True(t, f.entry().NextDial().IsZero())

	assert.True(t, f.MarkDraining(a, "2-b", FromResponse, f.now))
	assert.True(t, f.MarkDraining(a, "3-c", FromResponse, f.now), "restarted between two dials")
	assert.Equal(t, "3-c", f.entry().StartID())
}

func TestDirectURLThatIsListedLater(t *testing.T) {
	f := newFixture(t)
	f.entry()
	assert.True(t, f.list(up("1-a", 1)))
	assert.Equal(t, "1-a", f.entry().StartID())
	assert.False(t, f.MarkDraining(a, "2-b", FromResponse, f.now))
}

func TestDiskList(t *testing.T) {
	f := newFixture(t)
	assert.True(t, f.Observe(a, Observation{Mark: up("1-a", 1), Source: FromDisk}, f.now))
	assert.Equal(t, "1-a", f.entry().StartID())
	assert.False(t, f.MarkDraining(a, "2-b", FromResponse, f.now), "its id is known")
	assert.True(t, f.list(up("2-b", 1)), "the registry knows better")
	assert.False(t, f.Observe(a, Observation{Mark: up("1-a", 5), Source: FromDisk}, f.now), "dubbo-go 2328: stale lists revive nobody")
	assert.Equal(t, "2-b", f.entry().StartID())
}

func TestHeld(t *testing.T) {
	f := newFixture(t)
	f.list(up("1-a", 1))
	f.entry().SetHeld(true)
	f.entry().SetHeld(true)
	f.is(Removed)
	assert.True(t, f.entry().Hidden(f.now))
	assert.True(t, f.Hidden())
	f.list(leaving("1-a", 2))
	f.is(Removed, "whatever else is said")
	f.pass(time.Hour)
	f.is(Removed)
	f.entry().SetHeld(false)
	f.is(Usable, "the notice time is over")
	assert.False(t, f.Hidden())
	assert.Len(t, f.changes, 4)
}

func TestRejectionIsNoFailure(t *testing.T) {
	f := newFixture(t)
	f.list(up("1-a", 1))
	f.MarkDraining(a, "1-a", FromRejection, f.now)
	assert.False(t, f.call(attempt.NotExecuted))
	f.is(Draining)
	f.list(up("1-a", 3))
	f.is(Usable, "it can be reached")

	g := newFixture(t) // the other order
	g.list(up("1-a", 1))
	g.call(attempt.NotExecuted)
	g.is(Unreachable)
	g.MarkDraining(a, "1-a", FromRejection, g.now)
	g.list(up("1-a", 3))
	g.is(Usable)
}

func TestUnreachable(t *testing.T) {
	f := newFixture(t)
	f.list(up("1-a", 1))
	assert.True(t, f.call(attempt.NotExecuted))
	f.is(Unreachable)
	assert.Equal(t, attempt.NotExecuted, f.entry().EjectedFor())
	assert.Equal(t, 1, f.Unreachable())
	assert.Zero(t, f.Ejected())
	assert.True(t, f.Troubled())
	assert.False(t, f.Hidden(), "not hidden: the balancer decides")
	assert.False(t, f.call(attempt.NotExecuted))
	assert.False(t, f.entry().TryTrial(f.now))
	f.pass(time.Hour)
	f.is(Unreachable)
	assert.True(t, f.entry().NeedsDial(f.now))
	f.entry().Dialed(true, f.now)
	f.is(Usable)
	assert.False(t, f.entry().NeedsDial(f.now))
	assert.Zero(t, f.Unreachable())
}

func TestTrialIsWonOnce(t *testing.T) {
	f := newFixture(t)
	f.list(up("1-a", 1))
	f.call(attempt.Transport)
	f.is(Ejected)
	assert.Equal(t, 1, f.Ejected())
	assert.Equal(t, attempt.Transport, f.entry().EjectedFor())
	assert.False(t, f.entry().TryTrial(f.now))
	f.entry().Dialed(true, f.now)
	f.pass(time.Second)
	f.is(Trial)
	assert.True(t, f.entry().TryTrial(f.now))
	assert.False(t, f.entry().TryTrial(f.now))
	f.is(Ejected, "while the trial runs")

	f.pass(time.Second)
	f.is(Trial, "the choice was discarded")
	assert.True(t, f.entry().TryTrial(f.now))
	f.entry().Begin(f.now)
	f.pass(10 * time.Second)
	f.is(Ejected, "the trial takes its time")
	assert.False(t, f.entry().End(attempt.Canceled, 10*time.Second, f.now))
	f.is(Trial, "a cancel says nothing")

	assert.True(t, f.entry().TryTrial(f.now))
	assert.True(t, f.call(attempt.Timeout), "one failure is enough now")
	f.is(Ejected)
	assert.Equal(t, attempt.Timeout, f.entry().EjectedFor())
	f.entry().Dialed(true, f.now)
	f.pass(2 * time.Second)
	assert.True(t, f.entry().TryTrial(f.now))
	assert.True(t, f.call(attempt.Answered))
	f.is(Usable)
	assert.Zero(t, f.Ejected())
	assert.False(t, f.Troubled())
}

func TestConsecutiveErrors(t *testing.T) {
	f := newFixture(t)
	f.list(up("1-a", 1))
	for range 10 {
		for range 4 {
			assert.False(t, f.call(attempt.Timeout))
			assert.False(t, f.call(attempt.Canceled), "a cancel does not break the row, nor count")
		}
		assert.False(t, f.call(attempt.Answered))
	}
	for range 4 {
		f.call(attempt.Timeout)
	}
	assert.True(t, f.call(attempt.Timeout))
	f.is(Ejected)
}

// What was under way when the instance went out fails late. It is no beginning of the next row.
func TestLateFailuresStartNoRow(t *testing.T) {
	f := newFixture(t)
	f.list(up("1-a", 1))
	sent := f.now
	for range 5 {
		f.call(attempt.Timeout)
	}
	f.is(Ejected)
	f.call(attempt.Answered)
	f.is(Usable)
	for range 18 {
		f.pass(time.Millisecond)
		f.entry().Begin(sent)
		f.entry().End(attempt.Timeout, f.now.Sub(sent), f.now)
	}
	f.is(Usable)
	for range 4 {
		f.call(attempt.Timeout)
	}
	f.is(Usable)
	f.call(attempt.Timeout)
	f.is(Ejected)
}

// dubbo-go 1545: a handler that fails is not a broken instance. An answer never counts, whatever it says.
func TestAnswersNeverEject(t *testing.T) {
	f := newFixture(t)
	f.list(up("1-a", 1))
	for range 1000 {
		assert.False(t, f.call(attempt.Answered))
		assert.False(t, f.call(attempt.Canceled))
	}
	f.is(Usable)
}

func TestClassesCanBeSwitchedOff(t *testing.T) {
	f := newFixture(t)
	s := f.Settings()
	s.TransportErrors, s.TimeoutErrors, s.ConnectErrors = 0, -1, 0
	f.Configure(s)
	for range 100 {
		f.call(attempt.Transport)
		f.call(attempt.Timeout)
		f.call(attempt.NotExecuted)
	}
	f.is(Usable)
	s.ConnectErrors = 3
	f.Configure(s)
	f.call(attempt.NotExecuted)
	f.call(attempt.NotExecuted)
	f.is(Usable)
	f.call(attempt.NotExecuted)
	f.is(Unreachable)
}

func TestOutcomesOfThePredecessor(t *testing.T) {
	f := newFixture(t)
	f.list(up("1-a", 1))
	f.entry().Begin(f.now)
	f.entry().Begin(f.now)
	f.pass(time.Second)
	f.list(up("2-b", 1))
	assert.Equal(t, int64(2), f.entry().InFlight())
	f.pass(time.Second)
	assert.False(t, f.entry().End(attempt.Transport, 2*time.Second, f.now), "the old process died")
	f.is(Usable)
	f.entry().End(attempt.Answered, 2*time.Second, f.now)
	v := f.Snapshot(f.now)[0]
	assert.Zero(t, v.InFlight)
	assert.Zero(t, v.Successes)
	assert.Zero(t, v.Failures)
}

func TestFigures(t *testing.T) {
	f := newFixture(t)
	f.list(up("1-a", 7))
	e := f.entry()
	fl := e.Flight("shop.Backend")
	assert.Same(t, fl, e.Flight("shop.Backend"))
	assert.NotSame(t, fl, e.Flight("shop.Stock"))
	fl.Begin()
	fl.Begin()
	zero := fl.Zero()
	assert.Equal(t, int64(2), fl.Count())
	e.Begin(f.now)
	f.pass(80 * time.Millisecond)
	e.End(attempt.Answered, 80*time.Millisecond, f.now)
	succeeded := f.now
	assert.Equal(t, 80*time.Millisecond, e.Latency())
	e.Begin(f.now)
	f.pass(160 * time.Millisecond)
	e.End(attempt.Answered, 160*time.Millisecond, f.now)
	assert.Equal(t, 90*time.Millisecond, e.Latency(), "an eighth of the new one")
	e.Begin(f.now)
	f.pass(time.Second)
	e.End(attempt.Timeout, time.Second, f.now)
	e.Begin(f.now)

	v := f.Snapshot(f.now)[0]
	assert.Equal(t, a, v.Addr)
	assert.Equal(t, "1-a", v.StartID)
	assert.Equal(t, uint64(7), v.Seq)
	assert.Equal(t, map[string]int64{"shop.Backend": 2}, v.Flights)
	assert.Equal(t, int64(1), v.InFlight)
	assert.Equal(t, uint64(4), v.Requests)
	assert.Equal(t, uint64(2), v.Successes)
	assert.Equal(t, uint64(1), v.Failures)
	assert.Equal(t, 160*time.Millisecond, v.LastSuccess.Sub(succeeded))
	assert.Zero(t, v.LastFailure.Sub(f.now))
	assert.Equal(t, 90*time.Millisecond, v.Latency, "a timeout is no latency")
	assert.Equal(t, 1240*time.Millisecond, v.Age)
	assert.False(t, v.Excluded)
	assert.Empty(t, v.Why)

	fl.End()
	select {
	case <-zero:
		t.Fatal("one is still in flight")
	default:
	}
	fl.End()
	<-zero
}

func TestSnapshotExplains(t *testing.T) {
	f := newFixture(t)
	for i, addr := range []string{"f:1", "e:1", "d:1", "c:1", "b:1", "a:1"} {
		f.Observe(addr, Observation{Mark: up(fmt.Sprintf("%d-a", i), 1)}, f.now)
	}
	first := f.now
	fail := func(addr string, c attempt.Class, n int) {
		for range n {
			f.Lookup(addr).Begin(f.now)
			f.Lookup(addr).End(c, 0, f.now)
		}
	}
	f.pass(time.Second)
	at := f.now
	f.MarkDraining("a:1", "5-a", FromRejection, f.now)
	f.Lookup("b:1").SetHeld(true)
	fail("c:1", attempt.NotExecuted, 1)
	fail("d:1", attempt.Transport, 1)
	fail("e:1", attempt.Timeout, 5)
	f.Lookup("e:1").Dialed(true, f.now)
	f.pass(2 * time.Second)
	f.Lookup("c:1").Dialed(false, f.now)

	type row struct {
		verdict Verdict
		why, by string
		since   time.Duration
		until   time.Duration
	}
	var got []row
	for _, v := range f.Snapshot(f.now) {
		assert.Equal(t, v.Verdict != Usable, v.Excluded)
		assert.Zero(t, v.FirstSeen.Sub(first))
		r := row{verdict: v.Verdict, why: v.Why, by: v.By, since: -1, until: -1}
		if !v.Since.IsZero() {
			r.since = v.Since.Sub(at)
		}
		if !v.Until.IsZero() {
			r.until = v.Until.Sub(at)
		}
		got = append(got, r)
	}
	assert.Equal(t, []row{
		{Draining, "it announced that it leaves", "rejection", 0, 2 * time.Minute},
		{Removed, "its registry has removed it; requests to it are still in flight", "registry", -1, -1},
		{Unreachable, "it accepts no connection; until a dial succeeds", "dial", 0, -1},
		{Ejected, "its connections break", "requests", 0, time.Second},
		{Trial, "its answers do not come in time; one request may try it", "requests", 0, time.Second},
		{Usable, "", "", -1, -1},
	}, got)
	assert.Zero(t, f.NextDial().Sub(at), "the broken one, at once")
}

func TestMultiplierInTheTable(t *testing.T) {
	f := newFixture(t)
	f.list(up("1-a", 1))
	ends := func() time.Duration { v := f.entry().View(f.now); return v.Until.Sub(v.Since) }
	for _, want := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		f.call(attempt.Transport)
		assert.Equal(t, time.Duration(want)*time.Second, ends())
		f.pass(ends())
		f.entry().Dialed(true, f.now)
		f.is(Trial)
	}
	f.call(attempt.Answered)
	f.pass(6 * 30 * time.Second)
	assert.Equal(t, 2, f.entry().View(f.now).Ejections, "eight, less one for each healthy interval")
	f.call(attempt.Transport)
	assert.Equal(t, 4*time.Second, ends())
}

func TestLeftInstancesAreForgotten(t *testing.T) {
	f := newFixture(t)
	f.list(leaving("1-a", 2))
	f.Leave(a, f.now)
	assert.True(t, f.Hidden(), "until the list without it is handed on")
	f.pass(5 * time.Second)
	other := f.Obtain("direct:1", f.now)
	assert.False(t, f.Hidden(), "nobody asks about it any more")
	assert.NotNil(t, f.Lookup(a))
	assert.False(t, f.list(up("0-z", 1)) && f.list(up("1-a", 3)), "its id is remembered")
	f.Leave(a, f.now)

	f.entry().Begin(f.now)
	f.pass(10 * time.Minute)
	f.Snapshot(f.now)
	assert.NotNil(t, f.Lookup(a), "a request is in flight")
	f.entry().End(attempt.Answered, 10*time.Minute, f.now)
	f.pass(time.Second)
	f.Snapshot(f.now)
	assert.Nil(t, f.Lookup(a))
	assert.Same(t, other, f.Lookup("direct:1"), "a direct URL stays")
}

// Requests alone bring the fast paths back after a roll, when no registry has anything more to say.
func TestRequestsTidyUp(t *testing.T) {
	f := newFixture(t)
	f.list(leaving("1-a", 2))
	f.Leave(a, f.now)
	f.pass(5 * time.Second)
	e := f.Lookup(a)
	require.True(t, f.Hidden())
	e.Begin(f.now)
	e.End(attempt.Answered, 0, f.now)
	assert.False(t, f.Hidden())
	assert.False(t, f.Troubled())
}

func TestOnChange(t *testing.T) {
	f := newFixture(t)
	var seen []Verdict
	cancel := f.OnChange(func(addr string) {
		seen = append(seen, f.Lookup(addr).Verdict(f.now))
		f.Snapshot(f.now) // no lock is held
		f.Observe("other:1", Observation{}, f.now)
	})
	f.list(up("1-a", 1))
	f.call(attempt.Transport)
	f.entry().Dialed(false, f.now)
	cancel()
	cancel()
	f.list(leaving("1-a", 2))
	assert.Equal(t, []Verdict{Usable, Usable, Ejected, Unreachable}, seen, "first the nested one")
}
