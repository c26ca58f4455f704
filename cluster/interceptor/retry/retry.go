// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package retry sends a request again that was certainly not executed: its connection was refused or never stood, or the instance
// turned it away because it drains. It goes to another instance, whatever the cluster strategy and retries of the reference, within
// the deadline of the caller and at most as often as there are instances. A reset or a timeout is never repeated here, as the
// request may have been executed.
//
// The interceptor stands above the cluster, which may hide attempts (failover) or errors (failsafe). So it does not look at the
// result but at what cgraceful recorded: only if EVERY attempt of the call was not executed is it sent again. Interceptors nest where
// clusters do, over groups and zones; the outermost acts. Broadcast, forking and failback mean more than one request, or send again
// themselves; they are left alone.
package retry

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/cluster/cluster"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"

	"github.com/dubbogo/gost/log/logger"
)

import (
	"github.com/dubbogo/graceful/internal/attempt"
	_ "github.com/dubbogo/graceful/internal/bootstrap" // loads the settings, also where nothing else is imported
	"github.com/dubbogo/graceful/internal/settings"
)

// Key names the interceptor.
const Key = "graceful-retry"

func init() {
	cluster.SetClusterInterceptor(Key, func() cluster.Interceptor { return interceptor{} })
}

var retried atomic.Uint64

// Retried returns how often requests were sent again.
func Retried() uint64 { return retried.Load() }

// above is the invocation attribute that tells an inner interceptor of one above it.
const above = "graceful.retry"

type interceptor struct{}

// Invoke implements cluster.Interceptor.
func (interceptor) Invoke(ctx context.Context, invoker base.Invoker, inv base.Invocation) result.Result {
	if !settings.Get().Retry.Enabled {
		return invoker.Invoke(ctx, inv)
	}
	if v, _ := inv.GetAttribute(above); v != nil {
		return invoker.Invoke(ctx, inv)
	}
	inv.SetAttribute(above, true)
	c := call{invoker: invoker, inv: inv, began: time.Now(), from: logOf(inv).Len()}
	res := c.again(ctx, invoker.Invoke(ctx, inv))
	inv.SetAttribute(above, nil) // whoever uses the invocation again makes another call
	return res
}

type call struct {
	invoker base.Invoker
	inv     base.Invocation
	began   time.Time
	from    int // attempts that the invocation had before
}

func logOf(inv base.Invocation) *attempt.Log {
	v, _ := inv.GetAttribute(attempt.Key)
	log, _ := v.(*attempt.Log)
	return log
}

// again returns the result of the call, which is res unless it can be had from another instance.
func (c *call) again(ctx context.Context, res result.Result) result.Result {
	log := logOf(c.inv)
	if !log.OnlyNotExecutedSince(c.from) {
		return res // nearly every call: it succeeded, and left no log at all
	}
	strategy := param(c.invoker.GetURL(), constant.ClusterKey)
	switch strategy {
	case constant.ClusterKeyBroadcast, constant.ClusterKeyForking, constant.ClusterKeyFailback:
		return res
	}
	limit := c.limit()
	ctx, cancel := c.bound(ctx, limit)
	defer cancel()
	defer log.EndRetry()
	log.BeginRetry(c.from)
	for n := 1; failed(res, strategy) && log.OnlyNotExecutedSince(c.from) && ctx.Err() == nil; n++ {
		if limit > 0 && time.Since(c.began) >= limit {
			return res
		}
		c.restoreTimeout(limit)
		had := log.Len()
		next := c.invoker.Invoke(ctx, c.inv)
		attempted := log.Len() > had
		if !attempted && (next == nil || next.Error() != nil || strategy == constant.ClusterKeyFailsafe && log.Refused()) {
			return res // nobody is left to be asked
		}
		retried.Add(1)
		logger.Debugf("[Graceful][Retry] service=%s method=%s retry=%d", c.invoker.GetURL().Service(), c.inv.MethodName(), n)
		res = next
		if !attempted || n >= log.Offered() {
			return res // it succeeded, which no log notes, or every instance had its turn
		}
	}
	return res
}

// failed tells whether the call has failed. Failsafe hides it; there the log, which knows of failures only, has the last word.
func failed(res result.Result, strategy string) bool {
	return res == nil || res.Error() != nil || strategy == constant.ClusterKeyFailsafe
}

// limit is the timeout of the call, 0 if it has none.
func (c *call) limit() time.Duration {
	v, _ := c.inv.GetAttachment(constant.TimeoutKey)
	if v == "" {
		v = param(c.invoker.GetURL(), constant.TimeoutKey)
	}
	if ms, err := strconv.ParseInt(v, 10, 64); err == nil { // written by the dubbo protocol during the first attempt
		return time.Duration(ms) * time.Millisecond
	}
	d, _ := time.ParseDuration(v)
	return d
}

// bound gives a call without a deadline the one that its timeout means: an attempt on an instance that does not even refuse takes
// the whole of it. A stream outlives its call, and gets none.
func (c *call) bound(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok || limit <= 0 {
		return ctx, func() {}
	}
	if v, ok := c.inv.GetAttribute(constant.CallTypeKey); ok && v != constant.CallUnary {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, c.began.Add(limit))
}

// restoreTimeout leaves the dubbo protocol what remains of the timeout: it replaces the attachment by a number that it does not
// understand in the next attempt, which would then have 3 s.
func (c *call) restoreTimeout(limit time.Duration) {
	v, ok := c.inv.GetAttachment(constant.TimeoutKey)
	if !ok || limit <= 0 {
		return
	}
	if _, err := strconv.ParseInt(v, 10, 64); err == nil {
		c.inv.SetAttachment(constant.TimeoutKey, (limit - time.Since(c.began)).String())
	}
}

// param reads a parameter of the reference, which a registry's URL carries inside.
func param(url *common.URL, key string) string {
	if url == nil {
		return ""
	}
	if url.SubURL != nil {
		return url.SubURL.GetParam(key, "")
	}
	return url.GetParam(key, "")
}
