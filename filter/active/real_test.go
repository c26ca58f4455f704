// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/internal/attempt"
)

var protocols = []string{"tri", "dubbo"}

// ifaces makes each test's interface its own: dubbo-go keeps exporters of a whole process in one map.
var ifaces atomic.Int64

func newIface() string {
	return "graceful.test.Service" + string(rune('A'+ifaces.Add(1)%26)) + time.Now().Format("150405.000000000")
}

// faulty answers as the request says.
type faulty struct {
	entered chan struct{}
	release chan struct{}
	calls   atomic.Int64
}

func newFaulty(t testing.TB) *faulty {
	f := &faulty{entered: make(chan struct{}, 100), release: make(chan struct{})}
	t.Cleanup(func() { close(f.release) })
	return f
}

func (f *faulty) handler() *Handler {
	return &Handler{call: func(ctx context.Context, req string) (string, error) {
		n := f.calls.Add(1)
		switch req {
		case "block once":
			if n == 1 {
				f.entered <- struct{}{}
				<-f.release
			}
		case "unavailable":
			return "", triple_protocol.NewError(triple_protocol.CodeUnavailable, errors.New("database is down"))
		case "deadline":
			return "", triple_protocol.NewError(triple_protocol.CodeDeadlineExceeded, errors.New("database is slow"))
		case "business":
			return "", errors.New("out of stock")
		case "panic":
			panic("told to")
		case "block":
			f.entered <- struct{}{}
			<-f.release
		}
		return "ok", nil
	}}
}

// TestWhatErrorsAre provokes each kind of failure over real connections and pins what arrives. When a later dubbo-go changes one
// of these errors, this is what notices.
func TestWhatErrorsAre(t *testing.T) {
	const timeout = 300 * time.Millisecond
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			f := newFaulty(t)
			iface := newIface()
			addr := serve(t, protocol, iface, "", f.handler())
			call := referFor(t, protocol, iface, protocol+"://"+addr, timeout)
			bg := context.Background()
			_, err := call(bg, "x")
			require.NoError(t, err)

			class := func(t *testing.T, ctx context.Context, err error, want attempt.Class) {
				t.Helper()
				require.Error(t, err)
				assert.Equal(t, want, classify(ctx, err, addr), "%T %+v", err, err)
				assert.Equal(t, want == attempt.NotExecuted, IsNotExecuted(err))
			}
			t.Run("errors of the handler", func(t *testing.T) {
				for _, what := range []string{"unavailable", "deadline", "business", "panic"} {
					_, err := call(bg, what)
					class(t, bg, err, attempt.Answered)
				}
			})
			t.Run("deadline of the reference", func(t *testing.T) {
				_, err := call(bg, "block")
				class(t, bg, err, attempt.Timeout)
				<-f.entered
			})
			t.Run("deadline of the caller", func(t *testing.T) {
				ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
				defer cancel()
				_, err := call(ctx, "block")
				class(t, ctx, err, attempt.Timeout)
				<-f.entered
			})
			t.Run("caller gives up", func(t *testing.T) {
				ctx, cancel := context.WithCancel(bg)
				go func() {
					<-f.entered
					cancel()
				}()
				_, err := call(ctx, "block")
				class(t, ctx, err, attempt.Canceled)
			})
			if protocol == "dubbo" {
				// In a child, as dubbo-getty's sessions race with themselves when a connection breaks: CloseConn against Send.
				t.Run("connections that break", func(t *testing.T) {
					results := startChild(t, protocol, newIface(), "breaks").results
					assert.Equal(t, []string{
						"timeout", "not-executed", // dubbo-go waits on: nothing tells the call that its connection is gone
						"timeout", "not-executed",
					}, results)
				})
				return
			}
			for _, reset := range []bool{false, true} {
				t.Run(fmt.Sprintf("connection breaks under the call, reset=%v", reset), func(t *testing.T) {
					under, after := breakUnderCall(t, protocol, iface, addr, f, reset)
					class(t, bg, under, attempt.Transport)
					class(t, bg, after, attempt.NotExecuted)
				})
			}
			t.Run("accepted and closed", func(t *testing.T) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				var wg sync.WaitGroup
				wg.Go(func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						c.Close()
					}
				})
				defer wg.Wait()
				defer l.Close()
				call := referFor(t, protocol, iface, protocol+"://"+l.Addr().String(), timeout)
				_, err = call(bg, "x")
				require.Error(t, err)
				assert.Contains(t, []attempt.Class{attempt.Transport, attempt.NotExecuted}, classify(bg, err, addr), "%+v", err)
			})
			t.Run("refused", func(t *testing.T) { // over dubbo a reference to a closed port does not even come up
				call := referFor(t, protocol, iface, protocol+"://127.0.0.1:"+freePort(t), timeout)
				_, err := call(bg, "x")
				class(t, bg, err, attempt.NotExecuted)
			})
		})
	}
}

// breakUnderCall calls through a relay that breaks the connection while the handler works, and calls once more.
func breakUnderCall(t testing.TB, protocol, iface, addr string, f *faulty, reset bool) (under, after error) {
	g := newGate(t, addr)
	call := referFor(t, protocol, iface, protocol+"://"+g.addr(), 300*time.Millisecond)
	_, err := call(context.Background(), "x")
	require.NoError(t, err)
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		<-f.entered
		g.breakAll(reset)
	}()
	_, under = call(context.Background(), "block")
	<-broken
	_, after = call(context.Background(), "x")
	return under, after
}

func TestErrorsOfDestroyedInvokers(t *testing.T) {
	for _, err := range []error{base.ErrDestroyedInvoker, base.ErrClientClosed} {
		assert.Equal(t, attempt.NotExecuted, classify(context.Background(), err, ""))
		assert.True(t, gone(err))
	}
	assert.Equal(t, attempt.Answered, classify(context.Background(), base.ErrNoReply, ""))
	assert.Equal(t, attempt.Answered, classify(context.Background(), nil, ""))
	assert.False(t, IsNotExecuted(nil))
}
