// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.uber.org/goleak"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/attempt"
)

// What dubbo-go's packages started in their init is none of ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

var errRefused = errors.New("refused")

// network records dials and answers them.
type network struct {
	mu    sync.Mutex
	start time.Time
	dials map[string][]time.Duration // since start
	up    map[string]bool
	took  time.Duration
	most  int
	busy  int
}

func newNetwork() *network {
	return &network{start: time.Now(), dials: map[string][]time.Duration{}, up: map[string]bool{}}
}

func (n *network) dial(ctx context.Context, addr string) error {
	n.mu.Lock()
	n.dials[addr] = append(n.dials[addr], time.Since(n.start))
	n.busy++
	n.most = max(n.most, n.busy)
	up, took := n.up[addr], n.took
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.busy--
		n.mu.Unlock()
	}()
	if took > 0 {
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if up {
		return nil
	}
	return errRefused
}

func (n *network) set(addr string, up bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up[addr] = up
}

func (n *network) of(addr string) []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]time.Duration(nil), n.dials[addr]...)
}

func newTable() *instance.Table {
	t := instance.New(instance.DefaultSettings())
	t.SetJitter(func() float64 { return 1 })
	return t
}

func fail(t *instance.Table, addr string, c attempt.Class) {
	e := t.Obtain(addr, time.Now())
	for range 5 {
		e.Begin(time.Now())
		if e.End(c, 0, time.Now()) {
			return
		}
	}
}

func start(t *testing.T, p *Prober) {
	t.Helper()
	p.Start()
	t.Cleanup(p.Stop)
}

func TestRefusedInstanceComesBackByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, n := newTable(), newNetwork()
		p := &Prober{Table: table, Dial: n.dial}
		p.Start()
		defer p.Stop()
		fail(table, "a:1", attempt.NotExecuted)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		assert.Equal(t, instance.Unreachable, table.Lookup("a:1").Verdict(time.Now()))
		dials := n.of("a:1")
		require.GreaterOrEqual(t, len(dials), 3, "it is dialled again and again")
		assert.LessOrEqual(t, dials[0], time.Second)
		for i := 2; i < len(dials); i++ {
			assert.GreaterOrEqual(t, dials[i]-dials[i-1], dials[i-1]-dials[i-2], "ever more seldom")
		}
		n.set("a:1", true)
		time.Sleep(10 * time.Second) // the longest time between two dials
		synctest.Wait()
		assert.Equal(t, instance.Usable, table.Lookup("a:1").Verdict(time.Now()))
		done := len(n.of("a:1"))
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Len(t, n.of("a:1"), done, "and then it is left alone")
	})
}

func TestDialsComeAtMostOnceAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, n := newTable(), newNetwork()
		p := &Prober{Table: table, Dial: n.dial}
		p.Start()
		defer p.Stop()
		fail(table, "a:1", attempt.NotExecuted)
		time.Sleep(10 * time.Minute)
		before := len(n.of("a:1"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.InDelta(t, 60, len(n.of("a:1"))-before, 1)
	})
}

func TestEjectedInstanceIsMadeReadyForATrial(t *testing.T) {
	for _, class := range []attempt.Class{attempt.Transport, attempt.Timeout} {
		synctest.Test(t, func(t *testing.T) {
			table, n := newTable(), newNetwork()
			n.set("a:1", true)
			p := &Prober{Table: table, Dial: n.dial}
			p.Start()
			defer p.Stop()
			fail(table, "a:1", class)
			synctest.Wait()
			assert.Len(t, n.of("a:1"), 1, "at once")
			assert.Equal(t, instance.Ejected, table.Lookup("a:1").Verdict(time.Now()), "a dial restores no ejected one")
			time.Sleep(time.Second)
			assert.Equal(t, instance.Trial, table.Lookup("a:1").Verdict(time.Now()))
			synctest.Wait()
			assert.Len(t, n.of("a:1"), 1)
		})
	}
}

func TestEjectedInstanceThatDiedBecomesUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, n := newTable(), newNetwork()
		p := &Prober{Table: table, Dial: n.dial}
		p.Start()
		defer p.Stop()
		fail(table, "a:1", attempt.Transport)
		synctest.Wait()
		assert.Equal(t, instance.Unreachable, table.Lookup("a:1").Verdict(time.Now()), "no live request has to find out")
	})
}

func TestWhatWasEjectedBeforeTheStartIsDialled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, n := newTable(), newNetwork()
		fail(table, "a:1", attempt.NotExecuted)
		n.set("a:1", true)
		p := &Prober{Table: table, Dial: n.dial}
		p.Start()
		p.Start()
		defer p.Stop()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, instance.Usable, table.Lookup("a:1").Verdict(time.Now()))
	})
}

func TestDialsRunInParallelButNotWithoutBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, n := newTable(), newNetwork()
		n.took = time.Hour // longer than the bound of a dial
		p := &Prober{Table: table, Dial: n.dial}
		p.Start()
		defer p.Stop()
		for i := range 3 * parallel {
			fail(table, fmt.Sprint("a:", i), attempt.Transport)
		}
		time.Sleep(3 * timeout)
		synctest.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		assert.Equal(t, parallel, n.most)
		assert.Len(t, n.dials, 3*parallel, "everyone had a turn")
	})
}

// A dial that began before an answer restored the instance must not undo that.
func TestLateDialChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, n := newTable(), newNetwork()
		n.took = time.Second
		p := &Prober{Table: table, Dial: n.dial}
		p.Start()
		defer p.Stop()
		fail(table, "a:1", attempt.Transport)
		synctest.Wait()
		time.Sleep(time.Second / 2)
		e := table.Lookup("a:1")
		e.Begin(time.Now())
		time.Sleep(time.Millisecond)
		e.End(attempt.Answered, time.Millisecond, time.Now())
		require.Equal(t, instance.Usable, e.Verdict(time.Now()))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, instance.Usable, e.Verdict(time.Now()))
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		new(Prober).Stop() // one that never ran

		table, n := newTable(), newNetwork()
		n.took = time.Hour
		p := &Prober{Table: table, Dial: n.dial}
		p.Start()
		fail(table, "a:1", attempt.Transport)
		synctest.Wait()
		require.Len(t, n.of("a:1"), 1)
		began := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(p.Stop)
		}
		wg.Wait()
		assert.Zero(t, time.Since(began), "dials are cut off")
		p.Start()
		fail(table, "a:2", attempt.Transport)
		time.Sleep(time.Hour)
		assert.Empty(t, n.of("a:2"))
	})
}

// Over real sockets: a listener that goes and comes.
func TestRealListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	s := instance.DefaultSettings()
	s.Base = 20 * time.Millisecond
	table := instance.New(s)
	changes := make(chan instance.Verdict, 16)
	defer table.OnChange(func(string) { changes <- table.Lookup(addr).Verdict(time.Now()) })()
	var dials atomic.Int64
	p := &Prober{Table: table, Dial: func(ctx context.Context, addr string) error {
		dials.Add(1)
		return dial(ctx, addr)
	}}
	start(t, p)
	require.NoError(t, l.Close())
	fail(table, addr, attempt.NotExecuted)
	assert.Equal(t, instance.Unreachable, <-changes)
	l, err = net.Listen("tcp", addr)
	require.NoError(t, err)
	defer l.Close()
	assert.Equal(t, instance.Usable, <-changes)
	assert.NotZero(t, dials.Load())
}

func TestProberOfTheProcessStartsWithTheFirstReference(t *testing.T) {
	url, err := common.NewURL("tri://127.0.0.1:20000/shop.Backend")
	require.NoError(t, err)
	url.SetParam(constant.SideKey, constant.SideConsumer)
	process = Prober{} // as at the start of a process, also when the test runs again
	for range 2 {
		for _, p := range extension.GetConfigPostProcessors() {
			p.PostProcessReferenceConfig(url)
		}
		require.True(t, process.started)
	}
	Stop()
	Stop()
}

// The kernel accepts connections for a process that is being killed, and then resets them.
func TestConnectionThatIsEndedAtOnceIsNoSuccess(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closing, kept := make(chan bool, 2), make(chan net.Conn, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, acceptErr := l.Accept()
			if acceptErr != nil {
				return
			}
			if <-closing {
				_ = conn.Close()
				continue
			}
			kept <- conn
		}
	}()
	closing <- true
	require.ErrorContains(t, dial(context.Background(), l.Addr().String()), "ended at once")
	closing <- false
	require.NoError(t, dial(context.Background(), l.Addr().String()))
	require.NoError(t, (<-kept).Close())
	require.NoError(t, l.Close())
	<-done
}
