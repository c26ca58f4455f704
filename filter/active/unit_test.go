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
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/dubbo/hessian2"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/drain"
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/wire"
)

func unavailable(err error) error {
	return triple_protocol.NewError(triple_protocol.CodeUnavailable, err)
}

func fromWire(text string) *triple_protocol.Error {
	return triple_protocol.NewWireError(triple_protocol.CodeUnavailable, errors.New(text))
}

// Errors that a test cannot provoke at will, in the form in which golang.org/x/net, grpc-go and getty make them.
func TestClassify(t *testing.T) {
	const addr = "10.0.0.1:20000"
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	bg := context.Background()
	reset := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}
	const goaway = "http2: Transport: cannot retry err [http2: Transport received Server's graceful shutdown GOAWAY] after Request.Body was written; define Request.GetBody to avoid this error"
	const dialing = "connection error: desc = \"transport: Error while dialing: dial tcp %s: connect: connection refused\""

	for name, tc := range map[string]struct {
		ctx  context.Context
		err  error
		want attempt.Class
	}{
		"GOAWAY before the server looked at the stream": {bg, unavailable(&url.Error{Op: "Post", Err: errors.New(goaway)}), attempt.NotExecuted},
		"refused stream":                               {bg, unavailable(errors.New("stream error: stream ID 5; REFUSED_STREAM; received from peer")), attempt.NotExecuted},
		"refused stream, body sent":                    {bg, unavailable(errors.New("http2: Transport: cannot retry err [stream error: stream ID 5; REFUSED_STREAM] after Request.Body was written")), attempt.NotExecuted},
		"protocol error, body sent":                    {bg, unavailable(errors.New("http2: Transport: cannot retry err [stream error: stream ID 5; PROTOCOL_ERROR; received from peer] after Request.Body was written")), attempt.Answered},
		"GOAWAY with an error":                         {bg, unavailable(errors.New("http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=PROTOCOL_ERROR")), attempt.Transport},
		"connection was closing when the request came": {bg, unavailable(io.ErrClosedPipe), attempt.NotExecuted},
		"connection closed before its first request":   {bg, unavailable(errors.New("http2: client conn could not be established")), attempt.NotExecuted},
		"no route to host":                             {bg, unavailable(dial), attempt.NotExecuted},
		"no route, caller gone":                        {canceled, unavailable(dial), attempt.Canceled},
		"dial took all the time":                       {late, unavailable(&net.OpError{Op: "dial", Err: context.DeadlineExceeded}), attempt.NotExecuted},
		"reset":                                        {bg, unavailable(reset), attempt.Transport},
		"reset while writing":                          {bg, unavailable(&net.OpError{Op: "write", Err: syscall.EPIPE}), attempt.Transport},
		"end of file":                                  {bg, unavailable(io.ErrUnexpectedEOF), attempt.Transport},
		"connection lost":                              {bg, unavailable(errors.New("http2: client connection lost")), attempt.Transport},
		"answer cannot be decoded":                     {bg, triple_protocol.NewError(triple_protocol.CodeInvalidArgument, fmt.Errorf("unmarshal into *x: %w", io.ErrUnexpectedEOF)), attempt.Answered},
		"request is too large":                         {bg, triple_protocol.NewError(triple_protocol.CodeResourceExhausted, errors.New("message size 9 exceeds sendMaxBytes 8")), attempt.Answered},
		"the handler says refused":                     {bg, fromWire("dial tcp 10.0.0.2:1: connect: connection refused"), attempt.Answered},
		"the handler says GOAWAY":                      {bg, fromWire(goaway), attempt.Answered},
		"deadline at both ends":                        {late, triple_protocol.NewWireError(triple_protocol.CodeDeadlineExceeded, errors.New("late")), attempt.Timeout},
		"deadline of the handler":                      {bg, triple_protocol.NewWireError(triple_protocol.CodeDeadlineExceeded, errors.New("late")), attempt.Answered},

		"dubbo, exception":      {bg, &hessian2.GenericException{ExceptionClass: "java.lang.Throwable", ExceptionMessage: "session not exist"}, attempt.Answered},
		"dubbo, no session":     {bg, errors.New("session not exist"), attempt.NotExecuted},
		"dubbo, no connection":  {bg, errors.New("failed to create client connection to 10.0.0.1:20000 in 3s"), attempt.NotExecuted},
		"dubbo, cannot connect": {bg, errors.New("Failed to connect server 10.0.0.1:20000"), attempt.NotExecuted},
		"dubbo, client closed":  {bg, errors.New("client have been closed"), attempt.NotExecuted},

		"grpc, refused":                  {bg, status.Error(codes.Unavailable, fmt.Sprintf(dialing, addr)), attempt.NotExecuted},
		"grpc, the handler says refused": {bg, status.Error(codes.Unavailable, fmt.Sprintf(dialing, "10.0.0.2:1")), attempt.Answered},
		"grpc, reset":                    {bg, status.Error(codes.Unavailable, "error reading from server: read tcp 10.0.0.9:1->"+addr+": read: connection reset by peer"), attempt.Transport},
		"grpc, deadline":                 {late, status.Error(codes.DeadlineExceeded, "late"), attempt.Timeout},
		"grpc, caller gone":              {canceled, status.Error(codes.Canceled, "gone"), attempt.Canceled},
		"grpc, the handler was canceled": {bg, status.Error(codes.Canceled, "gone"), attempt.Answered},
		"grpc, business":                 {bg, status.Error(codes.NotFound, "no"), attempt.Answered},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, classify(tc.ctx, tc.err, addr))
			assert.Equal(t, tc.want, classify(tc.ctx, fmt.Errorf("wrapped: %w", tc.err), addr), "wrapped")
		})
	}
}

func TestStripErrorKeepsTheRest(t *testing.T) {
	marker := wire.RejectMessageTo("1-a", "10.0.0.1:1")
	detail, err := triple_protocol.NewErrorDetail(wrapperspb.String("d"))
	require.NoError(t, err)
	triple := fromWire("proxy: " + marker)
	triple.AddDetail(detail)
	triple.Meta().Set(wire.HeaderStatus, wire.FormatDraining("1-a"))
	triple.Meta().Set("Mine", "yes")

	got, ok := stripError(fmt.Errorf("wrapped: %w", triple))
	require.True(t, ok)
	var cleaned *triple_protocol.Error
	require.ErrorAs(t, got, &cleaned)
	assert.Equal(t, triple_protocol.CodeUnavailable, cleaned.Code())
	assert.True(t, triple_protocol.IsWireError(cleaned))
	assert.Equal(t, "proxy: instance is draining, the request was not executed to 10.0.0.1:1", cleaned.Message())
	assert.Len(t, cleaned.Details(), 1)
	assert.Equal(t, http.Header{"Mine": {"yes"}}, cleaned.Meta())
	assert.Contains(t, triple.Error(), "graceful-not-executed", "the handler's error is not touched: others may hold it")
	assert.Equal(t, wire.FormatDraining("1-a"), triple.Meta().Get(wire.HeaderStatus))

	got, ok = stripError(triple_protocol.NewError(triple_protocol.CodeAborted, errors.New(marker)))
	require.True(t, ok)
	assert.False(t, triple_protocol.IsWireError(got))
	assert.Equal(t, triple_protocol.CodeAborted, triple_protocol.CodeOf(got))

	got, ok = stripError(&hessian2.GenericException{ExceptionClass: "a.B", ExceptionMessage: marker})
	require.True(t, ok)
	var generic *hessian2.GenericException
	require.ErrorAs(t, got, &generic)
	assert.Equal(t, "a.B", generic.ExceptionClass)

	got, ok = stripError(status.Error(codes.Aborted, marker))
	require.True(t, ok)
	assert.Equal(t, codes.Aborted, status.Code(got))

	for _, err := range []error{errors.New("x"), fromWire("x"), status.Error(codes.Aborted, "x")} {
		got, ok := stripError(err)
		assert.False(t, ok)
		assert.Same(t, err, got)
	}
}

// stub is the end of a chain.
type stub struct {
	base.BaseInvoker
	f func(inv base.Invocation) result.Result
}

func (s *stub) Invoke(_ context.Context, inv base.Invocation) result.Result { return s.f(inv) }

func newStub(u *common.URL, f func(base.Invocation) result.Result) *stub {
	return &stub{BaseInvoker: *base.NewBaseInvoker(u), f: f}
}

// aURL is of an instance that no other test uses.
var ports atomic.Int64

func aURL(protocol string, opts ...common.Option) *common.URL {
	return common.NewURLWithOptions(append([]common.Option{
		common.WithProtocol(protocol), common.WithIp("10.2.0.1"), common.WithPort(fmt.Sprint(ports.Add(1))),
		common.WithPath("shop.Backend"), common.WithInterface("shop.Backend"),
	}, opts...)...)
}

func TestVanillaClosingMark(t *testing.T) {
	answer := func(base.Invocation) result.Result {
		return &result.RPCResult{Attrs: map[string]any{constant.GracefulShutdownClosingKey: "true"}}
	}
	u := aURL("dubbo")
	consumer.Invoke(context.Background(), newStub(u, answer), attemptOf())
	e := instance.Default().Lookup(u.Location)
	s, src := statusOf(e)
	assert.Equal(t, wire.Draining, s)
	assert.Equal(t, instance.FromClosing, src)

	t.Run("is not said by an instance with the module", func(t *testing.T) {
		u := aURL("dubbo")
		e := listed(u.Location, "1-a")
		consumer.Invoke(context.Background(), newStub(u, answer), attemptOf())
		s, _ := statusOf(e)
		assert.Equal(t, wire.Up, s)
	})
	t.Run("as a trailer", func(t *testing.T) {
		u := aURL("tri")
		consumer.Invoke(context.Background(), newStub(u, func(inv base.Invocation) result.Result {
			*trailerTarget(inv) = http.Header{"Closing": {"true"}}
			return new(result.RPCResult)
		}), attemptOf())
		s, _ := statusOf(instance.Default().Lookup(u.Location))
		assert.Equal(t, wire.Draining, s)
	})
}

// The target that a call gets for its trailers is taken back before another call gets it.
func TestTrailerTargetIsTakenBack(t *testing.T) {
	u := aURL("tri")
	inv := attemptOf()
	consumer.Invoke(context.Background(), newStub(u, func(inv base.Invocation) result.Result {
		require.NotNil(t, trailerTarget(inv))
		return &result.RPCResult{Err: errors.New("x")}
	}), inv)
	assert.Nil(t, trailerTarget(inv))

	var mine http.Header
	inv.SetAttribute(constant.ResponseTrailerKey, &mine)
	consumer.Invoke(context.Background(), newStub(u, func(inv base.Invocation) result.Result {
		require.Same(t, &mine, trailerTarget(inv))
		return new(result.RPCResult)
	}), inv)
	assert.Same(t, &mine, trailerTarget(inv))
}

func TestForkingSharesNoTarget(t *testing.T) {
	u := aURL("tri", common.WithInterface("shop.Forked"), common.WithPath("shop.Forked"))
	noteForking(common.NewURLWithOptions(common.WithInterface("shop.Forked"), common.WithParamsValue(constant.ClusterKey, constant.ClusterKeyForking)))
	invoker := newStub(u, func(inv base.Invocation) result.Result {
		assert.Nil(t, trailerTarget(inv))
		return &result.RPCResult{Err: errors.New("x")}
	})
	inv := attemptOf()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { consumer.Invoke(context.Background(), invoker, inv) })
	}
	wg.Wait()
	assert.Zero(t, instance.Default().Lookup(u.Location).InFlight())
}

func TestDestroyedInvokerIsNotTheInstancesFault(t *testing.T) {
	u := aURL("tri")
	inv := attemptOf()
	res := consumer.Invoke(context.Background(), newStub(u, func(base.Invocation) result.Result {
		return &result.RPCResult{Err: base.ErrDestroyedInvoker}
	}), inv)
	require.Error(t, res.Error())
	assert.Equal(t, instance.Usable, instance.Default().Lookup(u.Location).Verdict(time.Now()))
	assert.Equal(t, []attempt.Attempt{{Addr: "", Class: attempt.NotExecuted}}, logOf(inv).All())
}

func TestInvokerDestroyedBeforeItsFirstRequest(t *testing.T) {
	for range 2 {
		s := newStub(aURL("tri"), func(base.Invocation) result.Result { return &result.RPCResult{Err: base.ErrDestroyedInvoker} })
		s.Destroy()
		inv := attemptOf()
		require.Error(t, consumer.Invoke(context.Background(), s, inv).Error())
		assert.Equal(t, []attempt.Attempt{{Addr: "", Class: attempt.NotExecuted}}, logOf(inv).All())
		assert.Nil(t, instance.Default().Lookup(":"))
	}
}

func TestAttemptsAreRecorded(t *testing.T) {
	u := aURL("tri")
	inv := attemptOf()
	errs := []error{unavailable(io.ErrUnexpectedEOF), fromWire("database is down"), unavailable(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), nil}
	n := 0
	invoker := newStub(u, func(base.Invocation) result.Result {
		n++
		return &result.RPCResult{Err: errs[n-1]}
	})
	for range errs {
		consumer.Invoke(context.Background(), invoker, inv)
	}
	assert.Equal(t, []attempt.Attempt{
		{Addr: u.Location, Class: attempt.Transport}, {Addr: u.Location, Class: attempt.Answered}, {Addr: u.Location, Class: attempt.NotExecuted},
	}, logOf(inv).All(), "a success needs no record")

	t.Run("what a retry has tried is refused", func(t *testing.T) {
		logOf(inv).BeginRetry(0)
		defer logOf(inv).EndRetry()
		assert.ErrorIs(t, consumer.Invoke(context.Background(), invoker, inv).Error(), errTried)
		assert.Equal(t, len(errs), n)
	})
}

func TestPanicBelowTheConsumerLeaksNothing(t *testing.T) {
	u := aURL("tri")
	invoker := newStub(u, func(base.Invocation) result.Result { panic("told to") })
	before := drain.Outbound().InFlight()
	assert.PanicsWithValue(t, "told to", func() { consumer.Invoke(context.Background(), invoker, attemptOf()) })
	assert.Equal(t, before, drain.Outbound().InFlight())
	e := instance.Default().Lookup(u.Location)
	assert.Zero(t, e.InFlight())
	assert.Zero(t, e.Flight("shop.Backend").Count())
	assert.Equal(t, instance.Usable, e.Verdict(time.Now()))
}

// A registry's URL stands for a cluster: its place in a chain is no attempt.
func TestClustersAreNoInstances(t *testing.T) {
	u := aURL("zookeeper")
	u.SubURL = aURL("tri")
	before, _ := drain.Outbound().Total()
	inv := attemptOf()
	consumer.Invoke(context.Background(), newStub(u, func(base.Invocation) result.Result { return new(result.RPCResult) }), inv)
	after, _ := drain.Outbound().Total()
	assert.Equal(t, before, after)
	assert.Nil(t, instance.Default().Lookup(u.Location))
	_, ok := inv.GetAttachment(wire.HeaderCaller)
	assert.False(t, ok)
}

func TestAddressedWithWhatTheRegistryGot(t *testing.T) {
	t.Setenv(constant.DubboIpToRegistryKey, "192.0.2.1")
	t.Setenv(constant.DubboPortToRegistryKey, "80")
	s := newServed(aURL("tri"), true)
	inv := request()
	for to, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1:80", "192.0.2.1:81": unaddressed, "127.0.0.1:20000": "127.0.0.1:20000", "127.0.0.1:1": unaddressed,
	} {
		ctx := context.WithValue(context.Background(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP("::ffff:127.0.0.1"), Port: 20000})
		header := wire.Caller{App: "a", IP: "192.0.2.9", Start: "1-a", To: to}.Format()
		assert.Equal(t, want, s.addressed(ctx, header, inv), to)
	}
	assert.Equal(t, unaddressed, s.addressed(context.Background(), "", inv))
	assert.Equal(t, unaddressed, s.addressed(context.Background(), "nonsense", inv))

	inv = request()
	inv.SetAttachment(constant.LocalAddr, "127.0.0.1:20001")
	assert.Equal(t, "127.0.0.1:20001", newServed(aURL("dubbo"), true).addressed(context.Background(), "a@b/1-a;to=127.0.0.1:20001", inv))
}

func TestPlacesForgetDestroyedInvokers(t *testing.T) {
	var p places[int]
	count := func() (n int) {
		p.known.Range(func(any, any) bool { n++; return true })
		return n
	}
	one := func(*common.URL, bool) *int { return new(int) }
	live := newStub(aURL("tri"), nil)
	for range 10 * sweepFrom {
		s := newStub(aURL("tri"), nil)
		p.get(s, one)
		p.get(live, one)
		s.Destroy()
	}
	assert.LessOrEqual(t, count(), 2*sweepFrom)
	assert.LessOrEqual(t, len(p.first), 2*sweepFrom)
	_, ok := p.known.Load(base.Invoker(live))
	assert.True(t, ok)

	t.Run("the outermost is told once", func(t *testing.T) {
		u := aURL("tri")
		outer, inner := newStub(u, nil), newStub(u, nil)
		var told []bool
		note := func(_ *common.URL, outermost bool) *int {
			told = append(told, outermost)
			return new(int)
		}
		for range 3 {
			p.get(outer, note)
			p.get(inner, note)
		}
		assert.Equal(t, []bool{true, false}, told)
	})
}

// Whatever the moment at which a provider begins to reject and to close its connections, a request was either executed and
// answered, or is known not to have been executed.
func TestRejectionRace(t *testing.T) {
	iface := newIface()
	f := newFaulty(t)
	addr := serve(t, "tri", iface, both, f.handler())
	listed(addr, self.Current().Start)
	// golang.org/x/net tries again by itself, with pauses of seconds, where several connections close under one request.
	call := referFor(t, "tri", iface, "tri://"+addr, time.Minute, withFilter())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var (
		wg                 sync.WaitGroup
		answered           atomic.Int64
		isAnswer, isReject = make(chan struct{}), make(chan struct{})
	)
	tell := func(c chan struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				switch _, err := call(context.Background(), "ok"); {
				case err == nil:
					answered.Add(1)
					tell(isAnswer)
				case IsNotExecuted(err):
					tell(isReject)
				default:
					t.Errorf("%T %+v", err, err)
					cancel()
				}
			}
		})
	}
	for range 20 {
		select {
		case <-isAnswer:
			drain.Inbound().Reject()
		case <-ctx.Done():
		}
		select {
		case <-isReject:
			drain.Inbound().Accept()
		case <-ctx.Done():
		}
	}
	cancel()
	wg.Wait()
	assert.Equal(t, f.calls.Load(), answered.Load())
	drain.Inbound().Accept()
	<-drain.Inbound().Zero()
}
