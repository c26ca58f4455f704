// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/client"
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
			call := refer(t, protocol, iface, protocol+"://"+addr, client.WithRequestTimeout(timeout))
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
			for _, reset := range []bool{false, true} {
				name := map[bool]string{false: "connection closed under the call", true: "connection reset under the call"}[reset]
				t.Run(name, func(t *testing.T) {
					g := newGate(t, addr)
					call := refer(t, protocol, iface, protocol+"://"+g.addr(), client.WithRequestTimeout(timeout))
					_, err := call(bg, "x")
					require.NoError(t, err)
					go func() {
						<-f.entered
						g.breakAll(reset)
					}()
					_, err = call(bg, "block")
					want := attempt.Transport
					if protocol == "dubbo" {
						want = attempt.Timeout // dubbo-go waits on: nothing tells the call that its connection is gone
					}
					class(t, bg, err, want)
					_, err = call(bg, "x")
					class(t, bg, err, attempt.NotExecuted)
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
				call := refer(t, protocol, iface, protocol+"://"+l.Addr().String(), client.WithRequestTimeout(timeout))
				_, err = call(bg, "x")
				require.Error(t, err)
				assert.Contains(t, []attempt.Class{attempt.Transport, attempt.NotExecuted}, classify(bg, err, addr), "%+v", err)
			})
			if protocol == "tri" { // over dubbo a reference to a closed port does not even come up
				t.Run("refused", func(t *testing.T) {
					call := refer(t, protocol, iface, protocol+"://127.0.0.1:"+freePort(t), client.WithRequestTimeout(timeout))
					_, err := call(bg, "x")
					class(t, bg, err, attempt.NotExecuted)
				})
			}
		})
	}
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
