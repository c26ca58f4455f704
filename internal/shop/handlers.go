// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"
)

import (
	"github.com/dubbogo/graceful/internal/shop/shoppb"
)

// ErrFault is the business error of [Fault].
var ErrFault = errors.New("shop: out of stock")

// caller sends orders to one service, over whichever protocol.
type caller interface {
	order(ctx context.Context, id string) (*shoppb.OrderReply, error)
}

type tripleCaller struct{ c *shoppb.Client }

func (t tripleCaller) order(ctx context.Context, id string) (*shoppb.OrderReply, error) {
	return t.c.Order(ctx, &shoppb.OrderRequest{Id: id})
}

type dubboCaller struct {
	conn *client.Connection
	opts []client.CallOption
}

func (d dubboCaller) order(ctx context.Context, id string) (*shoppb.OrderReply, error) {
	if in, ok := ctx.Value(constant.AttachmentKey).(map[string]any); ok {
		// What came in with a request goes out with the calls of its handler, the timeout too: as a number without a
		// unit, which the dubbo protocol cannot read and takes for 3 s.
		out := maps.Clone(in)
		delete(out, constant.TimeoutKey)
		ctx = context.WithValue(ctx, constant.AttachmentKey, out)
	}
	reply := new(DubboReply)
	if err := d.conn.CallUnary(ctx, []any{&DubboRequest{ID: id}}, reply, shoppb.MethodOrder, d.opts...); err != nil {
		return nil, err
	}
	return &shoppb.OrderReply{
		Id: reply.ID, ServedBy: reply.ServedBy, Via: reply.Via, Attempts: reply.Attempts, Payload: reply.Payload,
	}, nil
}

// work is what the handler of a role does with a request.
type work func(ctx context.Context, id string) (*shoppb.OrderReply, error)

// provide is the provider's handler: it takes its time, then answers.
func provide(o *Options, ledger *Ledger) work {
	var (
		payload = make([]byte, o.ResponseBytes)
		served  atomic.Uint64
	)
	return func(_ context.Context, id string) (*shoppb.OrderReply, error) {
		ledger.Start(id)
		defer ledger.End(id) // a panic is an end too
		// The work goes on whether or not the caller still waits, as most handlers do.
		warm := strings.HasPrefix(id, WarmPrefix)
		if !warm {
			time.Sleep(o.HandlerTime)
		}
		n := served.Add(1)
		if f := o.Fault; f.Mode != "" && !warm && (f.Every <= 1 || n%uint64(f.Every) == 0) {
			switch f.Mode {
			case "panic":
				panic("shop: the handler panics because it was told to")
			case "unavailable":
				return nil, triple_protocol.NewError(triple_protocol.CodeUnavailable, errors.New("shop: database is down"))
			default:
				return nil, ErrFault
			}
		}
		return &shoppb.OrderReply{Id: id, ServedBy: o.Name, Payload: payload}, nil
	}
}

// forward is the proxy's handler: it asks a provider, once, and hands on what it hears.
func forward(o *Options, ledger *Ledger, backend caller) work {
	return func(ctx context.Context, id string) (*shoppb.OrderReply, error) {
		ledger.Start(id)
		defer ledger.End(id)
		t := &track{each: func(addr string) { ledger.Try(id, addr) }}
		reply, err := backend.order(withTrack(ctx, t), id)
		if err != nil {
			return nil, err
		}
		reply.Via = o.Name
		reply.Attempts = int32(len(t.tried()))
		return reply, nil
	}
}

// TripleHandler serves a role over Triple; dubbo-go insists on an exported type. name is its key in
// dubbogo.yml.
type TripleHandler struct {
	name string
	do   work
}

// Reference is read by dubbo-go.
func (h *TripleHandler) Reference() string { return h.name }

// Order implements shoppb.Handler.
func (h *TripleHandler) Order(ctx context.Context, req *shoppb.OrderRequest) (*shoppb.OrderReply, error) {
	return h.do(ctx, req.GetId())
}

// DubboHandler serves a role over the dubbo protocol; dubbo-go finds Order by reflection.
type DubboHandler struct {
	name string
	do   work
}

// Reference is read by dubbo-go.
func (h *DubboHandler) Reference() string { return h.name }

// Order serves one request.
func (h *DubboHandler) Order(ctx context.Context, req *DubboRequest) (*DubboReply, error) {
	r, err := h.do(ctx, req.ID)
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	return &DubboReply{ID: r.GetId(), ServedBy: r.GetServedBy(), Via: r.GetVia(), Attempts: r.GetAttempts(), Payload: r.GetPayload()}, nil
}
