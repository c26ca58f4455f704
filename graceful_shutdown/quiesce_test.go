// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
)

import (
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/drain"
	"github.com/dubbogo/graceful/internal/wire"
)

var (
	t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	d0 = config.Default().Drain
)

func at(d time.Duration) time.Time { return t0.Add(d) }

func known(seen, acked time.Time) drain.CallerView {
	return drain.CallerView{Caller: wire.Caller{App: "shop", IP: "10.0.0.1"}, LastSeen: seen, AckedAt: acked}
}

func unknown(seen time.Time) drain.CallerView {
	return drain.CallerView{Unknown: true, LastSeen: seen, AckedAt: seen}
}

const ms = time.Millisecond

func TestQuiesced(t *testing.T) {
	now := at(time.Second) // the run began at t0
	for _, c := range []struct {
		name    string
		callers []drain.CallerView
		done    bool
		next    time.Duration
		left    int
	}{
		{"nobody", nil, true, 0, 0},
		{"saw the mark, nothing since", []drain.CallerView{known(at(900*ms), at(920*ms))}, true, 0, 0},
		{"saw the mark, a request may still be on its way", []drain.CallerView{known(at(910*ms), at(920*ms))}, false, 10 * ms, 1},
		{"saw the mark, but sends on", []drain.CallerView{known(at(950*ms), at(920*ms))}, false, 50 * ms, 1},
		{"has not seen it", []drain.CallerView{known(at(990*ms), time.Time{})}, false, 190 * ms, 1},
		{"quiet for long enough", []drain.CallerView{known(at(800*ms), time.Time{})}, true, 0, 0},
		{"saw the mark of an earlier run", []drain.CallerView{known(at(900*ms), at(-10*time.Minute))}, false, 100 * ms, 1},
		{"without this module", []drain.CallerView{unknown(now)}, true, 0, 0},
		{"not seen within the window", []drain.CallerView{known(at(-61*time.Second), time.Time{})}, true, 0, 0},
		{"the latest decides", []drain.CallerView{known(at(850*ms), time.Time{}), known(at(900*ms), time.Time{})}, false, 100 * ms, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := quiesced(c.callers, t0, now, d0)
			assert.Equal(t, c.done, v.done)
			assert.Equal(t, c.next, v.next)
			assert.Equal(t, c.left, v.left)
			if c.left > 0 {
				assert.Contains(t, v.who, "shop@10.0.0.1")
			}
		})
	}
}

func TestSettled(t *testing.T) {
	unregistered := at(500 * ms)
	patient := d0
	patient.MinWait = 2 * time.Second
	for _, c := range []struct {
		name    string
		callers []drain.CallerView
		now     time.Time
		d       config.Drain
		done    bool
		next    time.Duration
	}{
		{"nobody", nil, unregistered, d0, true, 0},
		{"all saw the mark", []drain.CallerView{known(at(400*ms), at(410*ms))}, unregistered, d0, true, 0},
		{"one with this module did not see it", []drain.CallerView{known(at(-5*time.Second), time.Time{})}, unregistered, d0, false, 200 * ms},
		{"and time has passed", []drain.CallerView{known(at(-5*time.Second), time.Time{})}, at(700 * ms), d0, true, 0},
		{"saw the mark of an earlier run", []drain.CallerView{known(at(-5*time.Second), at(-4*time.Second))}, unregistered, d0, false, 200 * ms},
		{"without this module, long ago", []drain.CallerView{unknown(at(-30 * time.Second))}, unregistered, d0, false, 200 * ms},
		{"without this module, still calling", []drain.CallerView{unknown(at(690 * ms))}, at(700 * ms), d0, false, 190 * ms},
		{"beyond the window", []drain.CallerView{unknown(at(-61 * time.Second))}, unregistered, d0, true, 0},
		{"least wait", nil, unregistered, patient, false, 2 * time.Second},
		{"least wait over", nil, at(2500 * ms), patient, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := settled(c.callers, t0, unregistered, c.now, c.d)
			assert.Equal(t, c.done, v.done)
			assert.Equal(t, c.next, v.next)
		})
	}
}

func TestSome(t *testing.T) {
	assert.Equal(t, "", some(nil, 0))
	assert.Equal(t, "a, b", some([]string{"a", "b"}, 2))
	assert.Equal(t, "a, b, c and 2 more", some([]string{"a", "b", "c", "d", "e"}, 5))
}
