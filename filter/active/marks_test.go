// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/drain"
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/wire"
)

const both = ProviderKey + "," + constant.GracefulShutdownProviderFilterKey

// draining makes this process a draining one for the rest of the test, and a rejecting one too if that is wanted.
func draining(t testing.TB, rejecting bool) {
	t.Helper()
	self.SetStatus(wire.Draining)
	if rejecting {
		drain.Inbound().Reject()
	}
	t.Cleanup(func() {
		drain.Inbound().Accept()
		self.SetStatus(wire.Up)
	})
}

// listed puts addr into the table as its registry would: an instance with this process's start id, or another's.
func listed(addr, start string) *instance.Entry {
	m := wire.Mark{Status: wire.Up, Start: start, Seq: 1}
	instance.Default().Observe(addr, instance.Observation{Mark: m}, time.Now())
	return instance.Default().Lookup(addr)
}

func statusOf(e *instance.Entry) (wire.Status, instance.Source) {
	s, src, _ := e.Status()
	return s, src
}

func withFilter() client.ReferenceOption { return client.WithFilter(ConsumerKey + "," + consumerAlias) }

func TestMarkTravelsWithEveryResponse(t *testing.T) {
	for _, protocol := range protocols {
		for _, req := range []string{"ok", "unavailable"} {
			t.Run(protocol+" "+req, func(t *testing.T) {
				f := newFaulty(t)
				iface := newIface()
				addr := serve(t, protocol, iface, both, f.handler())
				call := refer(t, protocol, iface, protocol+"://"+addr, withFilter())
				e := listed(addr, self.Current().Start)
				_, err := call(context.Background(), req)
				assert.Equal(t, req == "ok", err == nil)
				s, _ := statusOf(e)
				assert.Equal(t, wire.Up, s)

				draining(t, false)
				_, err = call(context.Background(), req)
				assert.Equal(t, req == "ok", err == nil)
				s, src := statusOf(e)
				if protocol == "dubbo" && req != "ok" {
					assert.Equal(t, wire.Up, s, "dubbo-go drops the attachments of an error")
					return
				}
				assert.Equal(t, wire.Draining, s)
				assert.Equal(t, instance.FromResponse, src)
			})
		}
	}
}

func TestMarkOfAnotherProcessIsNotBelieved(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			f := newFaulty(t)
			iface := newIface()
			addr := serve(t, protocol, iface, ProviderKey, f.handler())
			call := refer(t, protocol, iface, protocol+"://"+addr, withFilter())
			e := listed(addr, "1-another")
			draining(t, false)
			_, err := call(context.Background(), "ok")
			require.NoError(t, err)
			s, _ := statusOf(e)
			assert.Equal(t, wire.Up, s)

			drain.Inbound().Reject()
			_, err = call(context.Background(), "ok")
			require.Error(t, err)
			assert.False(t, IsNotExecuted(err), "%v", err)
			assert.NotContains(t, err.Error(), "graceful-not-executed")
			s, _ = statusOf(e)
			assert.Equal(t, wire.Up, s)
			assert.Equal(t, instance.Usable, e.Verdict(time.Now()))
		})
	}
}

func TestRejectionIsTypedAndExecutesNothing(t *testing.T) {
	for _, protocol := range protocols {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s known=%v", protocol, known), func(t *testing.T) {
				f := newFaulty(t)
				iface := newIface()
				addr := serve(t, protocol, iface, both, f.handler())
				call := refer(t, protocol, iface, protocol+"://"+addr, withFilter())
				if known {
					listed(addr, self.Current().Start)
				}
				_, before := drain.Inbound().Total()
				draining(t, true)
				_, err := call(context.Background(), "ok")
				require.Error(t, err)
				assert.True(t, IsNotExecuted(err), "%+v", err)
				assert.True(t, IsNotExecuted(fmt.Errorf("wrapped: %w", err)))
				assert.Zero(t, f.calls.Load())
				_, after := drain.Inbound().Total()
				assert.Equal(t, before+1, after, "counted once, whatever the chain names twice")
				e := instance.Default().Lookup(addr)
				s, src := statusOf(e)
				assert.Equal(t, wire.Draining, s)
				if protocol == "dubbo" { // over Triple the mark beside it is heard first
					assert.Equal(t, instance.FromRejection, src)
				}
				assert.Equal(t, instance.Draining, e.Verdict(time.Now()))
				assert.Zero(t, e.InFlight())
				if protocol == "tri" {
					var triple *triple_protocol.Error
					require.ErrorAs(t, err, &triple)
					assert.Equal(t, triple_protocol.CodeUnavailable, triple.Code())
				}
			})
		}
	}
}

// A handler that passes on what its own provider said speaks for nobody.
func TestHandlerCannotPassMarksOn(t *testing.T) {
	foreign := wire.RejectMessageTo(self.Current().Start, "127.0.0.1:1")
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			iface := newIface()
			passOn := func(ctx context.Context, req string) (string, error) {
				_ = triple_protocol.AppendToOutgoingContext(ctx, wire.HeaderStatus, wire.FormatDraining(self.Current().Start))
				if req == "ok" {
					return req, nil
				}
				err := triple_protocol.NewWireError(triple_protocol.CodeUnavailable, errors.New(foreign))
				err.Meta().Set(wire.HeaderStatus, wire.FormatDraining(self.Current().Start))
				return "", fmt.Errorf("proxy: %w", err)
			}
			addr := serve(t, protocol, iface, ProviderKey, &Handler{call: passOn})
			call := refer(t, protocol, iface, protocol+"://"+addr, withFilter())
			e := listed(addr, self.Current().Start)
			for _, req := range []string{"ok", "fail"} {
				_, err := call(context.Background(), req)
				assert.Equal(t, req == "ok", err == nil)
				s, _ := statusOf(e)
				assert.Equal(t, wire.Up, s, req)
				if err != nil {
					assert.False(t, IsNotExecuted(err), "%+v", err)
					assert.NotContains(t, err.Error(), "graceful-not-executed")
					assert.Contains(t, err.Error(), "the request was not executed", "the text stays")
					if protocol == "tri" {
						assert.Equal(t, triple_protocol.CodeUnavailable, triple_protocol.CodeOf(err))
					}
				}
			}
		})
	}
}

func TestPanicOfHandlerLeaksNoCount(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			f := newFaulty(t)
			iface := newIface()
			addr := serve(t, protocol, iface, both, f.handler())
			call := refer(t, protocol, iface, protocol+"://"+addr, withFilter())
			_, err := call(context.Background(), "panic")
			require.Error(t, err)
			<-drain.Inbound().Zero()
			<-drain.Outbound().Zero()
			e := instance.Default().Lookup(addr)
			assert.Zero(t, e.InFlight())
			assert.Equal(t, instance.Usable, e.Verdict(time.Now()), "a handler's panic ejects nobody")
		})
	}
}

func TestCallersAreKnown(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			f := newFaulty(t)
			iface := newIface()
			addr := serve(t, protocol, iface, both, f.handler())
			view := func(addr string) (known, unknown drain.CallerView) {
				drain.KnownCallers().Each(func(v drain.CallerView) {
					switch {
					case v.Unknown:
						unknown = v
					case v.Caller.To == addr:
						known = v
					}
				})
				return known, unknown
			}
			call := refer(t, protocol, iface, protocol+"://"+addr, withFilter())
			_, err := call(context.Background(), "ok")
			require.NoError(t, err)
			known, _ := view(addr)
			assert.EqualValues(t, 1, known.Requests)
			assert.Equal(t, self.Current().Start, known.Caller.Start)
			assert.True(t, known.AckedAt.IsZero())

			_, before := view(addr)
			vanilla := refer(t, protocol, iface, protocol+"://"+addr)
			_, err = vanilla(context.Background(), "ok")
			require.NoError(t, err)
			known, unknown := view(addr)
			assert.EqualValues(t, 1, known.Requests)
			assert.Equal(t, before.Requests+1, unknown.Requests)

			t.Run("a proxy that forwards what it got is not its caller", func(t *testing.T) {
				_, before := view(addr)
				header := wire.Caller{App: "app", IP: "127.0.0.1", Start: "1-a", To: "127.0.0.1:1"}.Format()
				ctx := context.WithValue(context.Background(), constant.AttachmentKey, map[string]any{wire.HeaderCaller: header})
				_, err := vanilla(ctx, "ok")
				require.NoError(t, err)
				_, unknown := view(addr)
				assert.Equal(t, before.Requests+1, unknown.Requests)

				_, err = call(ctx, "ok")
				require.NoError(t, err)
				known, _ := view(addr)
				assert.EqualValues(t, 2, known.Requests, "overwritten")
			})
			t.Run("informed", func(t *testing.T) {
				draining(t, false)
				if protocol == "dubbo" {
					_, err = call(context.Background(), "business")
					require.Error(t, err)
					known, _ = view(addr)
					assert.True(t, known.AckedAt.IsZero(), "dubbo-go drops the mark of an error")
				}
				_, err = call(context.Background(), "ok")
				require.NoError(t, err)
				known, _ = view(addr)
				assert.False(t, known.AckedAt.IsZero())
			})
			t.Run("through another address of this host", func(t *testing.T) {
				g, _, _ := net.SplitHostPort(addr)
				other := strings.Replace(addr, g, "localhost", 1)
				call := refer(t, protocol, iface, protocol+"://"+other, withFilter())
				_, before := view(addr)
				_, err := call(context.Background(), "ok")
				require.NoError(t, err)
				_, unknown := view(addr)
				assert.Equal(t, before.Requests+1, unknown.Requests, "a name is no address")
			})
		})
	}
}

func TestInternalServicesAreLeftOut(t *testing.T) {
	for _, service := range []string{
		"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection",
		"org.apache.dubbo.metadata.MetadataService", "org.apache.dubbo.metadata.MetadataServiceV2",
	} {
		t.Run(service, func(t *testing.T) {
			f := newFaulty(t)
			addr := serve(t, "tri", service, both, f.handler())
			call := refer(t, "tri", service, "tri://"+addr, withFilter())
			in, _ := drain.Inbound().Total()
			out, _ := drain.Outbound().Total()
			draining(t, true)
			_, err := call(context.Background(), "ok")
			require.NoError(t, err, "answered even when the application's services are not")
			in2, _ := drain.Inbound().Total()
			out2, _ := drain.Outbound().Total()
			assert.Equal(t, in, in2)
			assert.Equal(t, out, out2)
		})
	}
}

// The caller's own targets for headers and trailers get what they would get without the filter.
func TestCallersTrailersAreHandedOn(t *testing.T) {
	iface := newIface()
	addr := serve(t, "tri", iface, ProviderKey, &Handler{call: func(ctx context.Context, req string) (string, error) {
		return req, triple_protocol.SetTrailer(ctx, http.Header{"Mine": {"yes"}})
	}})
	conn := dial(t, "tri", iface, "tri://"+addr, withFilter())
	e := listed(addr, self.Current().Start)
	draining(t, false)
	var header, trailer http.Header
	err := conn.CallUnary(context.Background(), []any{wrapperspb.String("x")}, new(wrapperspb.StringValue), "Call",
		client.WithResponseHeader(&header), client.WithResponseTrailer(&trailer))
	require.NoError(t, err)
	assert.Equal(t, "yes", trailer.Get("Mine"))
	assert.NotEmpty(t, header)
	s, _ := statusOf(e)
	assert.Equal(t, wire.Draining, s, "heard through the caller's target")
}

// A rejecting provider ends its kept connections in good order: the next request of the caller finds a new one, and does not die
// with the old.
func TestRejectingClosesConnectionsInGoodOrder(t *testing.T) {
	iface := newIface()
	f := newFaulty(t)
	addr := serve(t, "tri", iface, ProviderKey, f.handler())
	g := newGate(t, addr)
	call := referFor(t, "tri", iface, "tri://"+g.addr(), 5*time.Second) // without cgraceful: anybody's connection
	connections := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.conns) / 2
	}
	for range 5 {
		_, err := call(context.Background(), "ok")
		require.NoError(t, err)
	}
	require.Equal(t, 1, connections())

	drain.Inbound().Reject()
	_, err := call(context.Background(), "ok")
	drain.Inbound().Accept()
	require.Error(t, err)
	require.Eventually(t, func() bool {
		_, err := call(context.Background(), "ok")
		return err == nil && connections() == 2
	}, 5*time.Second, 10*time.Millisecond)
}

// streams

func (h *Handler) echoStream() *Handler {
	h.stream = func(_ context.Context, s *triple_protocol.BidiStream) error {
		for {
			msg := new(wrapperspb.StringValue)
			if err := s.Receive(msg); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			if msg.GetValue() == "fail" {
				return triple_protocol.NewError(triple_protocol.CodeAborted, errors.New("told to"))
			}
			if err := s.Send(msg); err != nil {
				return err
			}
		}
	}
	return h
}

func openStream(t testing.TB, ctx context.Context, conn *client.Connection) *triple_protocol.BidiStreamForClient {
	t.Helper()
	s, err := conn.CallBidiStream(ctx, "Stream")
	require.NoError(t, err)
	return s.(*triple_protocol.BidiStreamForClient)
}

func say(t testing.TB, s *triple_protocol.BidiStreamForClient, text string) error {
	t.Helper()
	require.NoError(t, s.Send(wrapperspb.String(text)))
	return s.Receive(new(wrapperspb.StringValue))
}

func TestStreamsCountUntilTheyEnd(t *testing.T) {
	iface := newIface()
	addr := serve(t, "tri", iface, both, new(Handler).echoStream())
	conn := dial(t, "tri", iface, "tri://"+addr, withFilter())

	for name, end := range map[string]func(t *testing.T, s *triple_protocol.BidiStreamForClient, cancel func()){
		"in good order": func(t *testing.T, s *triple_protocol.BidiStreamForClient, _ func()) {
			require.NoError(t, s.CloseRequest())
			require.ErrorIs(t, s.Receive(new(wrapperspb.StringValue)), io.EOF)
		},
		"by an error": func(t *testing.T, s *triple_protocol.BidiStreamForClient, _ func()) {
			require.Error(t, say(t, s, "fail"))
		},
		"closed": func(t *testing.T, s *triple_protocol.BidiStreamForClient, _ func()) {
			require.NoError(t, s.CloseRequest())
			require.NoError(t, s.CloseResponse())
		},
		"cancelled": func(t *testing.T, s *triple_protocol.BidiStreamForClient, cancel func()) {
			cancel()
			<-drain.Outbound().Zero()                                // at once
			require.Error(t, s.Receive(new(wrapperspb.StringValue))) // only now does dubbo-go tell the server
		},
	} {
		t.Run(name, func(t *testing.T) {
			listed(addr, self.Current().Start)
			<-drain.Inbound().Zero()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			s := openStream(t, ctx, conn)
			require.NoError(t, say(t, s, "hello"))
			e := instance.Default().Lookup(addr)
			assert.EqualValues(t, 1, drain.Inbound().InFlight())
			assert.EqualValues(t, 1, drain.Outbound().InFlight())
			assert.EqualValues(t, 1, e.InFlight())
			assert.EqualValues(t, 1, e.Flight(iface).Count())
			end(t, s, cancel)
			<-drain.Outbound().Zero()
			<-drain.Inbound().Zero()
			<-e.Flight(iface).Zero()
			assert.Zero(t, e.InFlight())
			assert.Equal(t, instance.Usable, e.Verdict(time.Now()))
		})
	}
	t.Run("begun before the drain", func(t *testing.T) {
		e := listed(addr, self.Current().Start)
		s := openStream(t, context.Background(), conn)
		require.NoError(t, say(t, s, "hello"))
		draining(t, true)
		require.NoError(t, say(t, s, "still there"))
		require.NoError(t, s.CloseRequest())
		require.ErrorIs(t, s.Receive(new(wrapperspb.StringValue)), io.EOF)
		st, _ := statusOf(e)
		assert.Equal(t, wire.Draining, st, "the end of the stream brings the mark")
	})
	t.Run("rejected", func(t *testing.T) {
		listed(addr, self.Current().Start)
		draining(t, true)
		s := openStream(t, context.Background(), conn)
		_ = s.Send(wrapperspb.String("hello"))
		err := s.Receive(new(wrapperspb.StringValue))
		require.Error(t, err)
		assert.True(t, IsNotExecuted(err), "%+v", err)
	})
}

// The layout that connSlot relies on.
func TestStreamHasItsConnectionWhereWeLook(t *testing.T) {
	iface := newIface()
	addr := serve(t, "tri", iface, "", new(Handler).echoStream())
	s := openStream(t, context.Background(), dial(t, "tri", iface, "tri://"+addr))
	slot := connSlot(s)
	require.NotNil(t, slot)
	conn, err := s.Conn()
	require.NoError(t, err)
	assert.Equal(t, conn, *slot)
	require.NoError(t, say(t, s, "hello"))
	require.NoError(t, s.CloseRequest())

	assert.Nil(t, connSlot(nil))
	assert.Nil(t, connSlot(new(int)))
	assert.Nil(t, connSlot(&struct{ conn int }{}))
	assert.Nil(t, clientStream("no stream"))
	assert.Nil(t, clientStream((*triple_protocol.BidiStreamForClient)(nil)))
}
