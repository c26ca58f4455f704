// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

var bg = context.Background()

func allPhases() (out []Phase) {
	for p := NotReady; int(p) < phases; p++ {
		out = append(out, p)
	}
	return out
}

// The order is the product: dubbo-go 987, 1254, 1257 and 2039, dubbo 10607.
func TestOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.registry("zk")
		r.others = 1
		r.callback("a", func() {})
		r.callback("b", func() {})
		require.NoError(t, r.shutdown(bg, "test"))

		assert.Equal(t, []string{
			"ready=false", "status=DRAINING",
			"zk announce DRAINING seq=2 ok=true",
			"zk confirmed DRAINING",
		}, r.did()[:4])
		assert.ElementsMatch(t, []string{"unregister others", "zk withdraw ok=true rejecting=false"}, r.did()[4:6])
		assert.Equal(t, []string{
			"callback a", "callback b",
			"release",
		}, r.did()[9:])
		assert.Equal(t, "notify", r.did()[6])
		assert.ElementsMatch(t, []string{"destroy rejecting=true", "zk close"}, r.did()[7:9])
		assert.Equal(t, allPhases(), r.reached())
		assert.Zero(t, time.Since(r.start), "an idle instance has nothing to wait for")
		assert.True(t, r.in.Rejecting())

		events := r.seen()
		assert.IsType(t, RunStarted{}, events[0])
		assert.Equal(t, time.Minute, events[0].(RunStarted).Budget)
		last, ok := events[len(events)-1].(RunFinished)
		require.True(t, ok)
		assert.False(t, last.Exiting)
		assert.Equal(t, Callbacks, last.Target)
	})
}

// A phase begins only when the one before it is over, and each signal closes with its event.
func TestPhasesDoNotOverlap(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.registry("zk")
		r.registry("nacos")
		require.NoError(t, r.shutdown(bg, "test"))
		open := Serving
		for _, e := range r.seen() {
			switch e := e.(type) {
			case PhaseStarted:
				require.Equal(t, Serving, open)
				open = e.Phase
			case PhaseReached:
				require.Equal(t, open, e.Phase)
				open = Serving
			}
		}
		for _, p := range r.run.phases[NotReady:] {
			assert.True(t, p.isReached())
		}
	})
}

func TestCallersDecideTheWaits(t *testing.T) {
	for _, c := range []struct {
		name             string
		setup            func(r *rig)
		quiesce, settled time.Duration
		timedOut         Phase
	}{
		{"idle, called 10 s ago", func(r *rig) {
			r.caller("shop", false)
			time.Sleep(10 * time.Second)
		}, 0, 200 * ms, Serving},
		{"acknowledges at once", func(r *rig) {
			go func() {
				time.Sleep(20 * ms)
				r.caller("shop", true)
			}()
			r.caller("shop", false)
		}, 200 * ms, 0, Serving},
		{"keeps sending although it knows", func(r *rig) {
			e := r.caller("shop", false)
			r.every(7*ms, func(i int) {
				if i == 0 {
					return
				}
				e.Acked(time.Now())
				time.Sleep(ms)
				r.caller("shop", false)
			})
		}, 3 * time.Second, 0, Quiesced},
		{"without this module, stops 1 s after the unregister", func(r *rig) {
			r.every(10*ms, func(i int) {
				if i <= 100 {
					r.caller("", false)
				}
			})
		}, 0, 1200 * ms, Serving},
		{"without this module, never stops", func(r *rig) {
			r.every(10*ms, func(int) { r.caller("", false) })
		}, 0, 8 * time.Second, Settled},
		{"least wait", func(r *rig) { r.set.Drain.MinWait = 700 * ms }, 0, 700 * ms, Serving},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				c.setup(r)
				synctest.Wait()
				require.NoError(t, r.shutdown(bg, "test"))
				assert.Equal(t, c.quiesce, r.phase(Quiesced).Took, "quiesced")
				assert.Equal(t, c.settled, r.phase(Settled).Took, "settled")
				for _, p := range allPhases() {
					assert.Equal(t, p == c.timedOut, r.phase(p).TimedOut, "%s", p)
				}
			})
		})
	}
}

func TestRegistries(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		tries := 0
		zk := r.registry("zk")
		zk.announceF = func(context.Context, wire.Mark) error {
			if tries++; tries < 3 {
				return errors.New("connection lost")
			}
			return nil
		}
		nacos := r.registry("nacos")
		nacos.confirmF = func(ctx context.Context, _ wire.Mark) error {
			time.Sleep(600 * ms)
			return nil
		}
		require.NoError(t, r.shutdown(bg, "test"))
		assert.Equal(t, 3, tries)
		assert.Equal(t, 150*ms, r.phase(Announced).Took, "two pauses")
		assert.Equal(t, 600*ms, r.phase(Quiesced).Took, "until the registry shows it")
		assert.Equal(t, 2, r.phase(Unregistered).Count)
	})
}

// dubbo-go 3107, 655: a failed unregister is retried, and reported.
func TestUnregisterFails(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		tries := 0
		r.registry("nacos 127.0.0.1:8848 service").withdrawF = func(context.Context) error {
			tries++
			return errors.New("no leader")
		}
		other := r.registry("zk")
		other.confirmF = func(ctx context.Context, _ wire.Mark) error { <-ctx.Done(); return ctx.Err() }
		err := r.shutdown(bg, "test")
		require.ErrorContains(t, err, "unregistered: nacos 127.0.0.1:8848 service: no leader")
		assert.Greater(t, tries, 5)
		e := r.phase(Unregistered)
		assert.Equal(t, 3*time.Second, e.Took)
		assert.Equal(t, 1, e.Left)
		assert.True(t, e.TimedOut)
		assert.Equal(t, 3*time.Second, r.phase(Quiesced).Took, "a registry that never shows it")
		assert.Equal(t, allPhases(), r.reached(), "and on it goes")
	})
}

func TestInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		require.True(t, r.in.Enter())
		require.True(t, r.out.Enter())
		go func() {
			time.Sleep(time.Second)
			r.in.Leave()
			time.Sleep(time.Second)
			r.out.Leave()
		}()
		require.NoError(t, r.shutdown(bg, "test"))
		assert.Equal(t, 1100*ms, r.phase(InboundDrained).Took, "the request, and the linger after it")
		assert.Equal(t, time.Second, r.phase(OutboundDrained).Took, "and the linger, for whoever called to look at the answer")
		assert.False(t, r.in.Enter(), "and nothing comes in after")
	})
}

// A rejection is written after the filter too: one linger for it, not one for each of an endless row.
func TestRejectionsLinger(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.in.Enter()
		r.in.Leave()
		time.Sleep(time.Second)
		r.hooks.add(&hook{phase: Rejecting, name: "late requests", limit: time.Second, f: func(context.Context) error {
			r.every(10*ms, func(int) { assert.False(t, r.in.Enter()) })
			time.Sleep(5 * ms)
			return nil
		}})
		require.NoError(t, r.shutdown(bg, "test"))
		assert.Equal(t, 100*ms, r.phase(InboundDrained).Took)
	})
}

// dubbo-go 2943: an open stream.
func TestCutOff(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set.Shutdown.Timeout = 20 * time.Second
		r.in.Enter()
		r.in.Enter()
		time.AfterFunc(time.Second, func() { r.caller("shop", false) })
		err := r.shutdown(bg, "test")
		require.ErrorIs(t, err, ErrCutOff)
		require.ErrorContains(t, err, "2 still being served, last asked by shop@10.0.0.1")
		e := r.phase(InboundDrained)
		assert.Equal(t, 2, e.Left)
		assert.True(t, e.TimedOut)
		assert.Less(t, time.Since(r.start), 20*time.Second)
		assert.Equal(t, allPhases(), r.reached())
		waits := 0
		for _, e := range r.seen() {
			if e, ok := e.(PhaseWaiting); ok {
				waits++
				assert.Equal(t, InboundDrained, e.Phase)
				assert.Equal(t, "2 requests", e.For)
				assert.Equal(t, time.Duration(waits)*time.Second, e.Elapsed)
			}
		}
		assert.Equal(t, int(r.phase(InboundDrained).Took/time.Second), waits, "one line a second")
	})
}

func TestInboundTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set.Drain.InboundTimeout = 2 * time.Second
		r.in.Enter()
		require.ErrorIs(t, r.shutdown(bg, "test"), ErrCutOff)
		assert.Equal(t, 2*time.Second, time.Since(r.start))
	})
}

// Background jobs never stop calling.
func TestOutboundNeverEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.out.Enter()
		require.NoError(t, r.shutdown(bg, "test"))
		assert.Equal(t, 3*time.Second, time.Since(r.start))
		assert.True(t, r.phase(OutboundDrained).TimedOut)
	})
}

func TestCallbacks(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		h := hang(t)
		r.callback("first", func() {})
		r.callback("panics", func() { panic("boom") })
		r.callback("hangs", h)
		r.callback("exits", func() { runtime.Goexit() })
		r.callback("last", func() {})
		err := r.shutdown(bg, "test")
		require.ErrorContains(t, err, "panics: panicked: boom")
		require.ErrorIs(t, err, errHangs)
		require.ErrorContains(t, err, "exits: ended its goroutine")
		assert.Equal(t, []string{"callback first", "callback panics", "callback hangs", "callback exits", "callback last", "release"}, r.did()[4:])
		assert.InDelta(t, 5*time.Second, time.Since(r.start), float64(50*ms), "the one that hangs is left behind")
		e := r.phase(Callbacks)
		assert.Equal(t, 5, e.Count)
		assert.Equal(t, 3, e.Left)
	})
}

// Nothing that hangs can hold the exit beyond the budget, and later phases happen all the same.
func TestEverythingHangs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set.Shutdown.Timeout = 10 * time.Second
		h := hang(t)
		p := r.registry("zk")
		p.announceF = func(context.Context, wire.Mark) error { h(); return nil }
		p.confirmF = func(context.Context, wire.Mark) error { h(); return nil }
		p.withdrawF = func(context.Context) error { h(); return nil }
		p.closeF = func(context.Context) error { h(); return nil }
		r.notifyF = func(context.Context) error { h(); return nil }
		r.destroyF = func(context.Context) error { h(); return nil }
		for range 20 {
			r.callback("hangs", h)
		}
		r.in.Enter()
		r.out.Enter()
		for _, id := range allPhases() {
			r.hooks.add(&hook{phase: id, name: "hangs", limit: time.Hour, f: func(context.Context) error { h(); return nil }})
		}
		r.bus.subscribe(func(Event) { h() })
		r.leaveOn(syscall.SIGTERM)
		time.Sleep(10*time.Second + 200*ms)
		assert.Equal(t, []int{1}, r.exited())
		assert.Equal(t, allPhases(), r.reached(), "in their order, all of them")
	})
}

func TestDeadlineOfTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.in.Enter()
		ctx, cancel := context.WithTimeout(bg, 4*time.Second)
		defer cancel()
		err := r.shutdown(ctx, "test")
		require.ErrorIs(t, err, ErrCutOff, "it ends before the deadline, and says how")
		assert.Less(t, time.Since(r.start), 4*time.Second)
	})
}

func TestCallerGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.in.Enter()
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(time.Second, cancel)
		err := r.shutdown(ctx, "test")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "inbound")
		assert.Equal(t, time.Second, time.Since(r.start))
		r.in.Leave()
		require.NoError(t, r.wait(bg), "and the shutdown went on")
	})
}

func TestOneRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.registry("zk")
		r.callback("a", func() {})
		r.in.Enter()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { assert.NoError(t, r.shutdown(bg, "test")) })
			wg.Go(func() { assert.NoError(t, r.wait(bg)) })
			wg.Go(func() { assert.NoError(t, r.offline(bg)) })
		}
		synctest.Wait()
		r.in.Leave()
		wg.Wait()
		require.NoError(t, r.shutdown(bg, "again"))
		assert.Equal(t, 1, strings.Count(strings.Join(r.did(), "\n"), "callback a"))
		assert.Equal(t, 1, strings.Count(strings.Join(r.did(), "\n"), "release"))
		assert.Len(t, r.reached(), 10)
	})
}

func TestWait(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		require.ErrorIs(t, r.wait(ctx), context.DeadlineExceeded, "it starts nothing")
		assert.Empty(t, r.did())
	})
}

func TestHooks(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.registry("zk")
		add := func(p Phase, name string, f func(context.Context) error) func() {
			return r.hooks.add(&hook{phase: p, name: name, limit: time.Second, f: func(ctx context.Context) error {
				r.note("hook %s", name)
				return f(ctx)
			}})
		}
		ok := func(context.Context) error { return nil }
		add(Unregistered, "one", ok)
		add(Unregistered, "two", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		add(Announced, "fails", func(context.Context) error { return errors.New("no") })
		add(Announced, "gone", ok)()
		err := r.shutdown(bg, "test")
		require.ErrorContains(t, err, "announced: fails: no")
		require.ErrorContains(t, err, "unregistered: two: context deadline exceeded")
		assert.Equal(t, []string{
			"zk announce DRAINING seq=2 ok=true", "hook fails", "zk confirmed DRAINING", "zk withdraw ok=true rejecting=false", "notify",
			"hook one", "hook two",
		}, r.did()[2:9])
		assert.Equal(t, time.Second, time.Since(r.start))
	})
}

func TestOfflineAndOnline(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.registry("zk")
		r.others = 1
		r.callback("a", func() {})
		require.NoError(t, r.goOnline(bg), "nothing to do")
		require.NoError(t, r.offline(bg))
		assert.Equal(t, []string{
			"status=DRAINING", "zk announce DRAINING seq=2 ok=true", "zk confirmed DRAINING", "zk withdraw ok=true rejecting=false",
		}, r.did(), "no health, no readiness flag, no registry that could not be brought back")
		assert.Equal(t, allPhases()[:5], r.reached())
		assert.True(t, r.in.Enter(), "it still serves")
		r.in.Leave()
		assert.True(t, isClosed(r.draining(bg)))

		require.NoError(t, r.goOnline(bg))
		assert.Equal(t, []string{"status=UP", "zk announce UP seq=3 ok=true"}, r.did()[4:])
		assert.False(t, isClosed(r.draining(bg)))
		assert.Equal(t, Serving, r.status().Phase)

		require.NoError(t, r.offline(bg), "and again")
		assert.Contains(t, r.did()[6:], "zk announce DRAINING seq=4 ok=true")
		require.NoError(t, r.shutdown(bg, "test"))
		require.ErrorIs(t, r.goOnline(bg), ErrShuttingDown)
		assert.Equal(t, append(append(allPhases()[:5:5], allPhases()[:5]...), allPhases()[5:]...), r.reached(), "it goes on where it stands")
		assert.Equal(t, []string{
			"ready=false", "zk withdraw ok=true rejecting=false", "unregister others", "notify",
		}, r.did()[10:14], "what Offline had left out, and what it may have failed to do")
		assert.Equal(t, []string{"callback a", "release"}, r.did()[16:])
	})
}

// A registry without our decorator still lists an instance that is offline. Its callers learn of the shutdown only when the record
// goes, and get the time to move that they would have got without the Offline before.
func TestShutdownAfterOfflineWaitsForCallersOfOtherRegistries(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.others = 1
		require.NoError(t, r.offline(bg))
		began := time.Now()
		r.load.Go(func() {
			for range 10 { // a vanilla caller that needs a second to learn of it
				r.known.Seen("", "", time.Now())
				time.Sleep(100 * time.Millisecond)
			}
		})
		require.NoError(t, r.shutdown(bg, "test"))
		assert.GreaterOrEqual(t, time.Since(began), 900*time.Millisecond+r.set.Drain.Quiet)
		assert.Less(t, time.Since(began), r.set.Drain.SettleTimeout)
	})
}

func TestShutdownDuringOffline(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set.Shutdown.Timeout = 30 * time.Second
		r.registry("zk").confirmF = func(ctx context.Context, _ wire.Mark) error { <-ctx.Done(); return nil }
		r.set.Drain.Timeout = 25 * time.Second
		offline := make(chan error, 1)
		go func() { offline <- r.offline(bg) }()
		time.Sleep(time.Second)
		assert.Equal(t, Quiesced, r.status().Phase)

		ctx, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		require.NoError(t, r.shutdown(ctx, "test"))
		require.NoError(t, <-offline)
		assert.Less(t, time.Since(r.start), 11*time.Second)
		assert.Less(t, r.phase(Quiesced).Took, 5*time.Second, "the phase on its way gets its slice of the new budget, it had 7 s")
		assert.Equal(t, allPhases(), r.reached(), "none twice")
		assert.Contains(t, r.did(), "notify")
	})
}

func TestOnlineDuringOffline(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		zk := r.registry("zk")
		zk.confirmF = func(ctx context.Context, _ wire.Mark) error { <-ctx.Done(); return ctx.Err() }
		offline := make(chan error, 1)
		go func() { offline <- r.offline(bg) }()
		time.Sleep(time.Second)
		require.NoError(t, r.goOnline(bg))
		require.ErrorIs(t, <-offline, ErrWentOnline)
		assert.Equal(t, []string{"status=DRAINING", "zk announce DRAINING seq=2 ok=true", "status=UP", "zk announce UP seq=3 ok=true"}, r.did())
		assert.Equal(t, time.Second, time.Since(r.start))
	})
}

// A run that Online took back before it had set DRAINING must not do so after.
func TestRunThatWasTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		old := &run{c: r.coordinator}
		old.ctx, old.cancel = context.WithCancel(bg)
		old.cancel()
		require.NoError(t, (&task{run: old, id: NotReady}).notReady())
		assert.Empty(t, r.did())
	})
}

// The last word counts: an Online whose writes hang must not land after the DRAINING of the shutdown that came meanwhile.
func TestShutdownDuringOnline(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		zk := r.registry("zk")
		require.NoError(t, r.offline(bg))
		zk.announceF = func(ctx context.Context, m wire.Mark) error {
			if m.Status == wire.Up {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		online := make(chan error, 1)
		go func() { online <- r.goOnline(bg) }()
		time.Sleep(time.Second)
		require.NoError(t, r.shutdown(bg, "test"))
		require.ErrorIs(t, <-online, context.Canceled)
		var words []string
		for _, s := range r.did() {
			if strings.HasPrefix(s, "zk announce") {
				words = append(words, s)
			}
		}
		assert.Equal(t, []string{"zk announce DRAINING seq=2 ok=true", "zk announce UP seq=3 ok=false", "zk announce DRAINING seq=4 ok=true"}, words)
	})
}

func TestOnlineFailsAndIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		zk := r.registry("zk")
		require.NoError(t, r.offline(bg))
		zk.announceF = func(context.Context, wire.Mark) error { return errors.New("down") }
		require.ErrorContains(t, r.goOnline(bg), "zk: down")
		zk.announceF = nil
		require.NoError(t, r.goOnline(bg))
		require.NoError(t, r.goOnline(bg))
		did := r.did()
		assert.Equal(t, "zk announce UP seq=3 ok=true", did[len(did)-1])
	})
}

func TestSignalEndsTheProcess(t *testing.T) {
	for _, c := range []struct {
		name string
		cut  bool
		code int
	}{{"clean", false, 0}, {"cut off", true, 7}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.set.Shutdown.ExitCode = 7
				if c.cut {
					r.in.Enter()
				}
				r.callback("a", func() {})
				r.leaveOn(syscall.SIGTERM)
				time.Sleep(time.Minute)
				assert.Equal(t, []int{c.code}, r.exited())
				did := r.did()
				assert.Equal(t, []string{"callback a", "exit " + string(rune('0'+c.code))}, did[len(did)-2:], "dubbo-go is not told: Serve must not return before the exit")
			})
		})
	}
}

// The application's own shutdown is on its way, or over, when the signal comes.
func TestSignalJoinsARun(t *testing.T) {
	for _, c := range []struct {
		name   string
		before bool
	}{{"on its way", true}, {"over", false}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.in.Enter()
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				go func() { _ = r.shutdown(ctx, "test") }()
				time.Sleep(time.Second)
				if !c.before {
					r.in.Leave()
					time.Sleep(time.Second)
				}
				r.leaveOn(syscall.SIGTERM)
				synctest.Wait()
				if c.before {
					assert.Empty(t, r.exited())
					r.in.Leave()
					time.Sleep(time.Second)
				}
				assert.Equal(t, []int{0}, r.exited())
				assert.Equal(t, allPhases(), r.reached())
				r.run.watchdog.Stop()
			})
		})
	}
}

func TestSecondSignal(t *testing.T) {
	for _, c := range []struct {
		name    string
		second  os.Signal
		after   time.Duration
		want    []int
		forcing bool
	}{
		{"SIGTERM", syscall.SIGTERM, time.Second, []int{143}, true},
		{"SIGINT", os.Interrupt, 2 * time.Second, []int{130}, true},
		{"the same Ctrl-C passed on", os.Interrupt, 900 * ms, nil, false},
		{"SIGHUP", syscall.SIGHUP, 2 * time.Second, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.in.Enter()
				signals, quit := make(chan os.Signal), make(chan struct{})
				go r.obey(signals, quit)
				signals <- syscall.SIGTERM
				time.Sleep(c.after)
				signals <- c.second
				assert.Equal(t, c.want, r.exited())
				forced := false
				for _, e := range r.seen() {
					if e, ok := e.(SignalReceived); ok && e.Forced {
						forced = true
					}
				}
				assert.Equal(t, c.forcing, forced)
				close(quit)
				r.in.Leave()
				time.Sleep(time.Minute)
			})
		})
	}
}

// A log on a pipe that nobody reads.
func TestSubscriberHangs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		h := hang(t)
		r.bus.subscribe(func(Event) { h() })
		r.bus.subscribe(func(Event) { panic("boom") })
		require.NoError(t, r.shutdown(bg, "test"))
		assert.Equal(t, flushLimit, time.Since(r.start), "a moment for the last lines, no more")
	})
}

func TestExitWaitsForTheLog(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.bus.subscribe(func(e Event) {
			time.Sleep(5 * ms)
			if e, ok := e.(RunFinished); ok {
				r.note("logged exiting=%v code=%d", e.Exiting, e.ExitCode)
			}
		})
		r.leaveOn(syscall.SIGTERM)
		time.Sleep(time.Second)
		did := r.did()
		assert.Equal(t, []string{"logged exiting=true code=0", "exit 0"}, did[len(did)-2:])
	})
}

func TestUnsubscribe(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		n := 0
		cancel := r.bus.subscribe(func(Event) { n++ })
		require.NoError(t, r.offline(bg))
		synctest.Wait()
		was := n
		assert.NotZero(t, was)
		cancel()
		cancel()
		require.NoError(t, r.shutdown(bg, "test"))
		synctest.Wait()
		assert.Equal(t, was, n)
	})
}

func TestDraining(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(bg)
		one, two, three := r.draining(bg), r.draining(ctx), r.draining(ctx)
		cancel()
		<-three
		<-two
		assert.False(t, isClosed(one))
		ctx, cancel = context.WithCancel(bg)
		defer cancel()
		four := r.draining(ctx)
		require.NoError(t, r.offline(bg))
		<-one
		<-four
		assert.NoError(t, ctx.Err(), "the two can be told apart")
	})
}

func TestStatus(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.registry("zk")
		r.caller("shop", false)
		r.in.Enter()
		s := r.status()
		assert.Equal(t, Serving, s.Phase)
		assert.Equal(t, []string{"zk"}, s.Records)
		go func() { _ = r.shutdown(bg, "test") }()
		time.Sleep(time.Second)
		s = r.status()
		assert.Equal(t, InboundDrained, s.Phase)
		assert.Equal(t, "test", s.Trigger)
		assert.EqualValues(t, 1, s.Inbound)
		require.Len(t, s.Phases, 7)
		assert.Equal(t, 200*ms, s.Phases[2].Took)
		assert.True(t, s.Phases[2].Reached)
		assert.False(t, s.Phases[6].Reached)
		require.Len(t, s.Callers, 1)
		assert.Equal(t, "shop", s.Callers[0].Application)
		assert.True(t, s.Callers[0].Moved)
		r.in.Leave()
		require.NoError(t, r.wait(bg))
		assert.True(t, r.status().Finished)
	})
}

func TestLogLines(t *testing.T) {
	for _, c := range []struct {
		e    Event
		want string
		bad  bool
	}{
		{RunStarted{Trigger: "signal terminated", Target: Callbacks, Budget: 25 * time.Second}, `trigger="signal terminated" until=callbacks budget=25s`, false},
		{PhaseStarted{}, "", false},
		{PhaseReached{Phase: Quiesced, Took: 412345 * time.Microsecond, Count: 5}, "phase=quiesced took=412ms callers=5", false},
		{PhaseReached{Phase: NotReady, Took: 12345 * time.Nanosecond}, "phase=not-ready took=10µs", false},
		{PhaseReached{Phase: InboundDrained, Took: time.Second, Count: 3, Left: 2, TimedOut: true, Err: errors.New("a\nb")}, `phase=inbound took=1s requests=3 left=2 timeout=true err="a; b"`, true},
		{PhaseWaiting{Phase: InboundDrained, Elapsed: 3 * time.Second, For: "12 requests"}, `phase=inbound waiting=3s for="12 requests"`, false},
		{HookDone{Phase: Callbacks, Name: "main.stop", Took: time.Second}, `phase=callbacks name="main.stop" took=1s`, false},
		{SignalReceived{Signal: syscall.SIGTERM, Forced: true}, `signal="terminated" again=true, the process ends at once exit-code=143`, true},
		{WentOnline{Seq: 3}, "online=true seq=3", false},
		{RunFinished{Target: Callbacks, Took: 2 * time.Second, CutOff: 1, Exiting: true, ExitCode: 1, Err: ErrCutOff}, `finished=callbacks took=2s cut-off=1 exit-code=1 err="requests were cut off"`, true},
	} {
		line, bad := describe(c.e)
		assert.Equal(t, c.want, line)
		assert.Equal(t, c.bad, bad)
	}
}
