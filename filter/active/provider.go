// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

import (
	"github.com/dubbogo/graceful/internal/drain"
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/wire"
)

// Header names as they come out of an http.Header.
var (
	headerStatus = http.CanonicalHeaderKey(wire.HeaderStatus)
	// goAway makes dubbo-go's HTTP/2 server send GOAWAY and close the connection once it is idle, and an HTTP/1 server close it.
	goAway = http.Header{"Connection": {"close"}}
)

// dubboVersion is the attachment without which the dubbo protocol sends no attachments back.
const dubboVersion = "dubbo"

const protocolGRPC = "grpc"

// providerFilter is pgraceful.
type providerFilter struct {
	places places[served]
}

var provider = new(providerFilter)

// served is one exported service, as a place in its filter chain.
type served struct {
	counts   bool // it is the outermost of our places, and the service is one of the application
	protocol string
	to       []string // ";to=<ip:port>" for every address that this process publishes for it
}

func newServed(url *common.URL, outermost bool) *served {
	s := &served{counts: outermost && !internal(url.Service()), protocol: url.Protocol}
	// Consumers address what they read in the registry, which these two variables can replace.
	ip, port := url.Ip, url.Port
	if v := os.Getenv(constant.DubboIpToRegistryKey); v != "" {
		ip = v
	}
	if v := os.Getenv(constant.DubboPortToRegistryKey); v != "" {
		port = v
	}
	if ip == "" || ip == "0.0.0.0" || ip == "::" {
		ip = common.GetLocalIp()
	}
	for _, addr := range []string{url.Location, ip + ":" + port, net.JoinHostPort(ip, port)} {
		if to := callerTo + addr; !slices.Contains(s.to, to) {
			s.to = append(s.to, to)
		}
	}
	return s
}

const callerTo = ";to="

// Invoke implements filter.Filter.
func (f *providerFilter) Invoke(ctx context.Context, invoker base.Invoker, inv base.Invocation) result.Result {
	s := f.places.get(invoker, newServed)
	if !s.counts {
		return invoker.Invoke(ctx, inv)
	}
	header, _ := inv.GetAttachment(wire.HeaderCaller)
	addr := s.addressed(ctx, header, inv)
	caller := drain.KnownCallers().Seen(header, addr, clock())

	inbound := drain.Inbound()
	if !inbound.Enter() {
		return s.reject(ctx, inv, caller, addr)
	}
	defer inbound.Leave() // a panic ends a request too
	res := invoker.Invoke(ctx, inv)
	s.clean(ctx, res)
	// Looked at after the handler: a stream may have begun long before the drain.
	if state := self.Current(); state.Response != "" {
		res = s.mark(ctx, inv, res, caller, state)
		if inbound.Rejecting() {
			s.closeConnection(ctx, inv)
		}
	}
	return res
}

// OnResponse implements filter.Filter. Invoke has done everything.
func (f *providerFilter) OnResponse(_ context.Context, res result.Result, _ base.Invoker, _ base.Invocation) result.Result {
	return res
}

// unaddressed is no address: a caller that means another instance is compared with it.
const unaddressed = "-"

// addressed returns the address that the caller meant, if it is one of this process, else [unaddressed].
func (s *served) addressed(ctx context.Context, header string, inv base.Invocation) string {
	for _, to := range s.to {
		if strings.HasSuffix(header, to) {
			return header[len(header)-len(to)+len(callerTo):]
		}
	}
	if header == "" {
		return unaddressed
	}
	// A direct URL may name any address of this host: the one that the connection came to decides.
	i := strings.LastIndex(header, callerTo)
	if i < 0 {
		return unaddressed
	}
	to := header[i+len(callerTo):]
	if local, ok := ctx.Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		if want, err := netip.ParseAddrPort(to); err == nil && same(want, local.AddrPort()) {
			return to
		}
	} else if local, ok := inv.GetAttachment(constant.LocalAddr); ok && local == to {
		return to
	}
	return unaddressed
}

func same(a, b netip.AddrPort) bool {
	return a.Port() == b.Port() && a.Addr().Unmap() == b.Addr().Unmap()
}

// reject answers a request that came too late. It says so in a way that the consumer can tell from an error of the handler.
func (s *served) reject(ctx context.Context, inv base.Invocation, caller *drain.CallerEntry, addr string) result.Result {
	state := self.Current()
	text := wire.RejectMessageTo(state.Start, addr)
	var err error
	switch s.protocol {
	case constant.TriProtocol:
		err = triple_protocol.NewError(triple_protocol.CodeUnavailable, errors.New(text))
	case protocolGRPC:
		err = status.Error(codes.Unavailable, text)
	default:
		err = errors.New(text)
	}
	var res result.Result = &result.RPCResult{Err: err}
	if v, ok := inv.GetAttachment(dubboVersion); ok && s.protocol != constant.TriProtocol {
		res.AddAttachment(dubboVersion, v)
	}
	if state.Response != "" {
		res = s.mark(ctx, inv, res, caller, state)
	}
	s.closeConnection(ctx, inv)
	return res
}

// serverStream is what the argument of a streaming handler offers, unless only its client streams.
type serverStream interface {
	ResponseHeader() http.Header
	ResponseTrailer() http.Header
}

func streamOf(inv base.Invocation) (serverStream, bool) {
	args := inv.Arguments()
	if len(args) == 0 {
		return nil, false
	}
	s, ok := args[len(args)-1].(serverStream)
	return s, ok
}

// mark puts this process's mark into a response.
func (s *served) mark(ctx context.Context, inv base.Invocation, res result.Result, caller *drain.CallerEntry, state *self.State) result.Result {
	if res == nil {
		res = new(result.RPCResult)
	}
	readable := true
	if s.protocol == constant.TriProtocol {
		if stream, ok := streamOf(inv); ok {
			stream.ResponseTrailer()[headerStatus] = []string{state.Response}
		} else if _, ok := triple_protocol.FromIncomingContext(ctx); ok {
			// The context of the handler carries what becomes trailers, of errors as well.
			triple_protocol.AppendToOutgoingContext(ctx, headerStatus, state.Response)
		} else { // generated by the old protoc plugin
			res.AddAttachment(wire.HeaderStatus, state.Response)
		}
	} else {
		res.AddAttachment(wire.HeaderStatus, state.Response)
		readable = res.Error() == nil
	}
	if readable {
		caller.Acked(time.Now())
	}
	return res
}

// closeConnection has the connection closed in good order once what is in flight on it is over, so that the caller's next request
// finds none that dies under it.
func (s *served) closeConnection(ctx context.Context, inv base.Invocation) {
	if s.protocol != constant.TriProtocol {
		return
	}
	if stream, ok := streamOf(inv); ok {
		for k, v := range goAway {
			stream.ResponseHeader()[k] = v
		}
		return
	}
	// Not possible for a stream that only the client sends; its caller gets the next one's.
	_ = triple_protocol.SetHeader(ctx, goAway)
}

// clean takes the marks of others out of what a handler hands up.
func (s *served) clean(ctx context.Context, res result.Result) {
	if s.protocol == constant.TriProtocol {
		if out := triple_protocol.ExtractFromOutgoingContext(ctx); len(out) > 0 {
			delete(out, headerStatus)
		}
	}
	if res == nil {
		return
	}
	delete(attachmentsOf(res), wire.HeaderStatus)
	if err := res.Error(); err != nil {
		if cleaned, ok := stripError(err); ok {
			res.SetError(cleaned)
		}
	}
}

// attachmentsOf reads the attachments of a result without making a map for one that has none.
func attachmentsOf(res result.Result) map[string]any {
	if r, ok := res.(*result.RPCResult); ok {
		return r.Attrs
	}
	return res.Attachments()
}
