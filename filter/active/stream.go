// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"context"
	"errors"
	"io"
	"reflect"
	"runtime"
	"sync/atomic"
	"unsafe"
)

import (
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"
)

// clientStream returns the stream that a Triple call has opened, nil for anything else.
func clientStream(res any) any {
	switch s := res.(type) {
	case *triple_protocol.ClientStreamForClient:
		if s != nil {
			return s
		}
	case *triple_protocol.ServerStreamForClient:
		if s != nil {
			return s
		}
	case *triple_protocol.BidiStreamForClient:
		if s != nil {
			return s
		}
	}
	return nil
}

var connType = reflect.TypeFor[triple_protocol.StreamingClientConn]()

// connSlot returns where a client stream keeps its connection. dubbo-go's generated code asserts the concrete type of a stream, so
// the stream itself cannot be wrapped; it has no hook for its end either. A test pins the layout; where a later version has
// another one the answer is nil, and [watch] falls back on what it can see from outside.
func connSlot(stream any) *triple_protocol.StreamingClientConn {
	v := reflect.ValueOf(stream)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return nil
	}
	f := v.Elem().FieldByName("conn")
	if !f.IsValid() || f.Type() != connType || f.IsNil() {
		return nil
	}
	return (*triple_protocol.StreamingClientConn)(unsafe.Pointer(f.UnsafeAddr()))
}

// streamEnd is called once, when a stream is over, with the error that ended it (nil: in good order, or given up).
type streamEnd struct {
	done atomic.Bool
	f    func(err error)
}

func (e *streamEnd) end(err error) {
	if e.done.CompareAndSwap(false, true) {
		e.f(err)
	}
}

// watch has f called when the stream is over: a receive ended, it was closed, its context ended, or nobody holds it any more.
func watch(ctx context.Context, stream any, f func(conn triple_protocol.StreamingClientConn, err error)) {
	slot := connSlot(stream)
	var conn triple_protocol.StreamingClientConn
	if slot != nil {
		conn = *slot
	}
	var (
		stop  func() bool
		armed = make(chan struct{}) // the context may have ended before AfterFunc has returned
	)
	e := &streamEnd{f: func(err error) {
		<-armed
		stop()
		f(conn, err)
	}}
	stop = context.AfterFunc(ctx, func() { e.end(ctx.Err()) })
	close(armed)
	if slot != nil {
		*slot = &watchedConn{StreamingClientConn: conn, e: e}
	}
	switch s := stream.(type) {
	case *triple_protocol.ClientStreamForClient:
		runtime.AddCleanup(s, func(e *streamEnd) { e.end(nil) }, e)
	case *triple_protocol.ServerStreamForClient:
		runtime.AddCleanup(s, func(e *streamEnd) { e.end(nil) }, e)
	case *triple_protocol.BidiStreamForClient:
		runtime.AddCleanup(s, func(e *streamEnd) { e.end(nil) }, e)
	}
}

// watchedConn is a stream's connection that tells when it is over.
type watchedConn struct {
	triple_protocol.StreamingClientConn
	e *streamEnd
}

// Receive ends the stream with its first error; io.EOF is the good end.
func (c *watchedConn) Receive(msg any) error {
	err := c.StreamingClientConn.Receive(msg)
	if err != nil {
		if errors.Is(err, io.EOF) {
			c.e.end(nil)
		} else {
			c.e.end(err)
		}
	}
	return err
}

// CloseResponse gives the stream up.
func (c *watchedConn) CloseResponse() error {
	err := c.StreamingClientConn.CloseResponse()
	c.e.end(nil)
	return err
}
