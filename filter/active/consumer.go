// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"

	"github.com/dubbogo/gost/log/logger"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/drain"
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/wire"
)

// headerClosing is dubbo-go's own closing mark as a trailer.
var headerClosing = http.CanonicalHeaderKey(constant.GracefulShutdownClosingKey)

// consumerFilter is cgraceful.
type consumerFilter struct {
	places places[target]
	table  *instance.Table
}

var consumer = &consumerFilter{table: instance.Default()}

// target is one instance as one reference sees it.
type target struct {
	counts   bool
	gone     bool   // the invoker was destroyed before its first request
	addr     string // "ip:port", the key in the instance table
	service  string
	caller   any // what this process says of itself to this instance; a string, kept as what SetAttachment takes
	trailers bool
}

func newTarget(url *common.URL, outermost bool) *target {
	t := &target{
		counts:  outermost && attempted(url) && !internal(url.Service()),
		gone:    nowhere(url),
		addr:    url.Location,
		service: url.ServiceKey(),
		caller: wire.Caller{
			App: url.GetParam(constant.ApplicationKey, ""), IP: common.GetLocalIp(),
			Start: self.Current().Start, To: url.Location,
		}.Format(),
	}
	_, forking := forked.Load(url.Service())
	t.trailers = url.Protocol == constant.TriProtocol && !forking && url.GetParam(constant.ClusterKey, "") != constant.ClusterKeyForking
	return t
}

// forked has the interface of every reference with a forking cluster.
var forked sync.Map

func noteForking(url *common.URL) {
	if url.GetParam(constant.ClusterKey, "") == constant.ClusterKeyForking {
		forked.Store(url.Service(), true)
	}
}

// Invoke implements filter.Filter.
func (f *consumerFilter) Invoke(ctx context.Context, invoker base.Invoker, inv base.Invocation) result.Result {
	t := f.places.get(invoker, newTarget)
	if !t.counts {
		res := invoker.Invoke(ctx, inv)
		if t.gone && res.Error() != nil && gone(res.Error()) {
			record(inv, "", attempt.NotExecuted)
		}
		return res
	}
	if logOf(inv).Refuse(t.addr) {
		return &result.RPCResult{Err: errTried}
	}
	inv.SetAttachment(wire.HeaderCaller, t.caller)

	c := call{f: f, t: t, began: clock()}
	c.begin()
	defer func() {
		if !c.over { // a panic
			c.end(attempt.Canceled, c.began)
		}
	}()
	var own, given *http.Header
	if t.trailers {
		if given = trailerTarget(inv); given == nil {
			own = trailers.Get().(*http.Header)
			inv.SetAttribute(constant.ResponseTrailerKey, own)
			given = own
		}
	}

	res := invoker.Invoke(ctx, inv)

	if given != nil {
		// A caller's target may still hold what an earlier attempt left there; an error brings its trailers itself.
		if h := *given; len(h) > 0 && res != nil && res.Error() == nil {
			c.hearTrailer(h)
		}
		if own != nil {
			inv.SetAttribute(constant.ResponseTrailerKey, nil)
			*own = nil
			trailers.Put(own)
		}
	}
	if res == nil {
		c.end(attempt.Canceled, c.began)
		return res
	}
	err := res.Error()
	if err == nil {
		if stream := clientStream(res.Result()); stream != nil {
			c.stream(ctx, stream)
			return res
		}
		c.hearAttachments(attachmentsOf(res))
		c.end(attempt.Answered, clock())
		return res
	}
	c.hearAttachments(attachmentsOf(res))
	f.failed(ctx, &c, inv, res, err)
	return res
}

// OnResponse implements filter.Filter. Invoke has done everything.
func (f *consumerFilter) OnResponse(_ context.Context, res result.Result, _ base.Invoker, _ base.Invocation) result.Result {
	return res
}

// trailers holds targets for the trailers of calls whose caller did not ask for them.
var trailers = sync.Pool{New: func() any { return new(http.Header) }}

// trailerTarget returns where the caller wants the trailers of the response, nil if it does not.
func trailerTarget(inv base.Invocation) *http.Header {
	v, _ := inv.GetAttribute(constant.ResponseTrailerKey)
	h, _ := v.(*http.Header)
	return h
}

// call is one attempt while it is under way.
type call struct {
	f       *consumerFilter
	t       *target
	e       *instance.Entry
	flight  *instance.Flight
	began   time.Time
	counted bool
	over    bool
}

func (c *call) begin() {
	if c.e = c.f.table.Lookup(c.t.addr); c.e == nil {
		c.e = c.f.table.Obtain(c.t.addr, c.began)
	}
	c.flight = c.e.Flight(c.t.service)
	c.e.Begin(c.began)
	c.flight.Begin()
	c.counted = drain.Outbound().Enter()
}

func (c *call) end(class attempt.Class, now time.Time) {
	c.over = true
	changed := c.e.End(class, now.Sub(c.began), now)
	c.flight.EndAt(now)
	if c.counted {
		drain.Outbound().LeaveAt(now)
	}
	if changed {
		logger.Infof("[Graceful][Instance] address=%s class=%s verdict=%s", c.t.addr, class, c.e.Verdict(now))
	}
}

// stream ends the call when the stream does.
func (c *call) stream(ctx context.Context, stream any) {
	s := *c
	c.over = true
	watch(ctx, stream, func(conn triple_protocol.StreamingClientConn, err error) {
		if conn != nil && err == nil {
			s.hearTrailer(conn.ResponseTrailer())
		}
		s.finish(ctx, err)
	})
}

// finish ends a call by its error and tells its class, and whether its error holds a rejection that is not to be believed.
func (c *call) finish(ctx context.Context, err error) (class attempt.Class, foreign bool) {
	now := time.Now()
	if err == nil {
		c.end(attempt.Answered, now)
		return attempt.Answered, false
	}
	c.hearError(err)
	if text, ok := rejection(err); ok {
		if !c.believes(text) {
			c.end(attempt.Answered, now)
			return attempt.Answered, true
		}
		start, _ := wire.ParseReject(text)
		c.f.markDraining(c.t.addr, start, instance.FromRejection, now)
		c.end(attempt.NotExecuted, now)
		return attempt.NotExecuted, false
	}
	class = classify(ctx, err, c.t.addr)
	if class == attempt.NotExecuted && gone(err) {
		c.end(attempt.Canceled, now) // our own invoker; the instance is not to blame
		return class, false
	}
	c.end(class, now)
	return class, false
}

// failed ends an attempt that returned an error.
func (f *consumerFilter) failed(ctx context.Context, c *call, inv base.Invocation, res result.Result, err error) {
	class, foreign := c.finish(ctx, err)
	if foreign {
		if cleaned, ok := stripError(err); ok {
			res.SetError(cleaned)
		}
	}
	addr := c.t.addr
	if class == attempt.NotExecuted && gone(err) {
		addr = "" // the next attempt may go to the same instance, through the invoker that took this one's place
	}
	record(inv, addr, class)
}

// errTried ends an attempt of a retry for which nobody is left. The retry does not return it.
var errTried = errors.New("graceful: every instance was tried")

func logOf(inv base.Invocation) *attempt.Log {
	v, _ := inv.GetAttribute(attempt.Key)
	log, _ := v.(*attempt.Log)
	return log
}

// record notes an attempt on the invocation. Only failures are noted: a call that succeeded is never sent again, so most calls
// need no log.
func record(inv base.Invocation, addr string, class attempt.Class) {
	log := logOf(inv)
	if log == nil {
		log = new(attempt.Log)
		inv.SetAttribute(attempt.Key, log)
	}
	log.Add(addr, class)
}

// believes tells whether a rejection speaks for the instance that this attempt went to. A proxy without this module passes on what
// its own provider said.
func (c *call) believes(text string) bool {
	start, _ := wire.ParseReject(text)
	known := c.e.StartID()
	if to, ok := wire.ParseRejectTo(text); ok {
		return to == c.t.addr && (known == "" || known == start)
	}
	return known == start
}

// hearTrailer reads the marks out of trailers, and out of the metadata of a Triple error.
func (c *call) hearTrailer(h http.Header) {
	for _, v := range h[headerStatus] {
		c.hear(v)
	}
	if v := h[headerClosing]; len(v) > 0 {
		c.hearClosing(v[0])
	}
}

func (c *call) hearError(err error) {
	var triple *triple_protocol.Error
	if errors.As(err, &triple) && triple_protocol.IsWireError(triple) {
		c.hearTrailer(triple.Meta())
	}
}

// hearAttachments reads the marks out of a response over the dubbo protocol.
func (c *call) hearAttachments(attachments map[string]any) {
	if len(attachments) == 0 {
		return
	}
	if v, ok := attachments[wire.HeaderStatus]; ok {
		switch v := v.(type) {
		case string:
			c.hear(v)
		case []string:
			for _, s := range v {
				c.hear(s)
			}
		}
	}
	if v, ok := attachments[constant.GracefulShutdownClosingKey].(string); ok {
		c.hearClosing(v)
	}
}

// hear takes in the mark of a response.
func (c *call) hear(v string) {
	start, ok := wire.ParseDraining(v)
	if !ok {
		return
	}
	now := time.Now()
	if c.e.StartID() == start && c.e.Hidden(now) {
		return // known: every response says it
	}
	c.f.markDraining(c.t.addr, start, instance.FromResponse, now)
}

// hearClosing takes in dubbo-go's own closing mark, which names nobody. An instance with this module never sends it.
func (c *call) hearClosing(v string) {
	if now := time.Now(); v == "true" && c.e.StartID() == "" && !c.e.Hidden(now) {
		c.f.markDraining(c.t.addr, "", instance.FromClosing, now)
	}
}

func (f *consumerFilter) markDraining(addr, start string, src instance.Source, now time.Time) {
	if f.table.MarkDraining(addr, start, src, now) {
		logger.Infof("[Graceful][Instance] address=%s status=DRAINING source=%s", addr, src)
	}
}
