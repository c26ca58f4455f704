// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

import (
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/dubbo/hessian2"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"

	"github.com/apache/dubbo-go-hessian2/java_exception"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

import (
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/wire"
)

// IsNotExecuted tells whether the request that ended with err was certainly not executed: its connection was refused or never
// stood, or the instance turned it away because it drains. Such a request can be sent again without any risk. It holds for the
// errors that a reference with cgraceful returns for requests of one message; the handler of a stream that the client sends may
// have been called and have got nothing.
func IsNotExecuted(err error) bool {
	if err == nil {
		return false
	}
	if _, ok := rejection(err); ok {
		return true
	}
	return classify(context.Background(), err, "") == attempt.NotExecuted
}

// rejection returns the text of a rejection. Only what came over the wire can be one.
func rejection(err error) (text string, ok bool) {
	var triple *triple_protocol.Error
	var generic *hessian2.GenericException
	switch {
	case errors.As(err, &triple):
		if !triple_protocol.IsWireError(triple) || triple.Code() != triple_protocol.CodeUnavailable {
			return "", false
		}
		text = triple.Message()
	case errors.As(err, &generic):
		text = generic.ExceptionMessage
	default:
		s, isStatus := grpcStatus(err)
		if !isStatus || s.Code() != codes.Unavailable {
			return "", false
		}
		text = s.Message()
	}
	_, ok = wire.ParseReject(text)
	return text, ok
}

// classify tells what became of the attempt on addr that ended with err. A rejection is an answer here: whether to believe it
// is decided by who sent it.
//
// What an instance said of itself never counts against it, whatever it is: errors are told apart by where they were made, never by
// their code alone, as a handler may return any code. The texts below belong to errors that dubbo-go or its libraries make on this
// side and give no type; a test pins each with a real connection.
func classify(ctx context.Context, err error, addr string) attempt.Class {
	if err == nil {
		return attempt.Answered
	}
	var triple *triple_protocol.Error
	if errors.As(err, &triple) {
		return classifyTriple(ctx, triple)
	}
	var (
		generic   *hessian2.GenericException
		throwable java_exception.Throwabler
	)
	if errors.As(err, &generic) || errors.As(err, &throwable) {
		return attempt.Answered
	}
	if s, ok := grpcStatus(err); ok {
		return classifyGRPC(ctx, s, addr)
	}
	return classifyLocal(ctx, err)
}

func classifyTriple(ctx context.Context, err *triple_protocol.Error) attempt.Class {
	if triple_protocol.IsWireError(err) {
		if err.Code() == triple_protocol.CodeDeadlineExceeded && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			// The deadline travels with the request: both sides notice, and the instance was a little faster.
			return attempt.Timeout
		}
		return attempt.Answered
	}
	return classifyLocal(ctx, err)
}

// grpcStatus is status.FromError without the text of what wraps it.
func grpcStatus(err error) (*status.Status, bool) {
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) {
		return nil, false
	}
	return s.GRPCStatus(), true
}

// classifyGRPC knows an error that grpc-go made from one that it received by the address in it.
func classifyGRPC(ctx context.Context, s *status.Status, addr string) attempt.Class {
	switch s.Code() {
	case codes.Canceled:
		if ctx.Err() != nil {
			return ofContext(ctx.Err())
		}
	case codes.DeadlineExceeded:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return attempt.Timeout
		}
	case codes.Unavailable:
		switch m := s.Message(); {
		case addr == "":
		case strings.Contains(m, "Error while dialing: dial tcp "+addr+":"):
			return attempt.NotExecuted
		case strings.HasPrefix(m, "error reading from server: read tcp ") && strings.Contains(m, "->"+addr+":"):
			return attempt.Transport
		}
	}
	return attempt.Answered
}

// classifyLocal is for errors that were made on this side.
func classifyLocal(ctx context.Context, err error) attempt.Class {
	if errors.Is(ctx.Err(), context.Canceled) || errors.Is(err, context.Canceled) {
		return attempt.Canceled
	}
	if unconnected(err) {
		return attempt.NotExecuted
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return attempt.Timeout
	}
	text := root(err).Error()
	switch text {
	case "maybe the client read timeout or fail to decode tcp stream in Writer.Write": // dubbo: also where the connection broke meanwhile
		return attempt.Timeout
	case "http2: client connection lost", "http2: client connection force closed via ClientConn.Close":
		return attempt.Transport
	}
	if strings.HasPrefix(text, "http2: server sent GOAWAY and closed the connection") {
		return attempt.Transport
	}
	var op *net.OpError
	switch {
	case errors.As(err, &op), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return attempt.Transport
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		if strings.Contains(err.Error(), "unmarshal") {
			return attempt.Answered // the answer was complete, and not what was expected
		}
		return attempt.Transport
	}
	// A stream that the peer reset (it lives, and its handler panicked for instance), and requests that cannot be encoded, that are
	// too large, or that name no such method.
	return attempt.Answered
}

// unconnected tells whether no connection could take the request.
func unconnected(err error) bool {
	if gone(err) {
		return true
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	if errors.Is(err, io.ErrClosedPipe) {
		// HTTP/2: the connection was closing when the request came. golang.org/x/net closes the body, of which it has read nothing, and
		// then tries another connection with it: that instance saw headers, and a reset.
		return true
	}
	text := root(err).Error()
	switch text {
	case "session not exist", "session Already Closed", "client closed", // getty, before it writes
		"http2: client conn could not be established", // closed before its first request
		"http2: client conn is closed":                // before all of the message was written
		return true
	}
	for _, prefix := range []string{
		"failed to create client connection to ", "Failed to connect server ", // getty
	} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	// HTTP/2: the server said that it has not looked at the stream, and net/http would have sent it again if it still had the body.
	const cannot = "http2: Transport: cannot retry err ["
	if i := strings.Index(text, cannot); i >= 0 {
		text = text[i+len(cannot):]
		return strings.HasPrefix(text, "http2: Transport received Server's graceful shutdown GOAWAY]") ||
			strings.HasPrefix(text, "http2: client conn not usable]") ||
			strings.HasPrefix(text, "stream error: ") && strings.Contains(text, "; REFUSED_STREAM")
	}
	return text == "http2: Transport received Server's graceful shutdown GOAWAY" || text == "http2: client conn not usable" ||
		strings.HasPrefix(text, "stream error: stream ID ") && strings.Contains(text, "; REFUSED_STREAM; received from peer")
}

// gone tells whether the invoker was destroyed, or its client closed, by this process: the instance has nothing to do with it.
func gone(err error) bool {
	return errors.Is(err, base.ErrDestroyedInvoker) || errors.Is(err, base.ErrClientClosed) || root(err).Error() == "client have been closed"
}

func ofContext(err error) attempt.Class {
	if errors.Is(err, context.DeadlineExceeded) {
		return attempt.Timeout
	}
	return attempt.Canceled
}

// root returns the innermost error.
func root(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
