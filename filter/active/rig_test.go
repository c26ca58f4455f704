// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

import (
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failfast"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failover"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/loadbalance/random"
	_ "dubbo.apache.org/dubbo-go/v3/protocol/dubbo"
	_ "dubbo.apache.org/dubbo-go/v3/protocol/triple"
	_ "dubbo.apache.org/dubbo-go/v3/proxy/proxy_factory"

	"dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/protocol/protocolwrapper"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"

	"github.com/stretchr/testify/require"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Handler serves both protocols: dubbo-go finds Call by reflection for dubbo, and through the info for Triple.
type Handler struct {
	call   func(ctx context.Context, req string) (string, error)
	stream func(ctx context.Context, s *triple_protocol.BidiStream) error
}

func (h *Handler) Reference() string { return "Handler" }

func (h *Handler) Call(ctx context.Context, req string) (string, error) { return h.call(ctx, req) }

func (h *Handler) info(iface string) *common.ServiceInfo {
	return &common.ServiceInfo{
		InterfaceName: iface,
		ServiceType:   h,
		Methods: []common.MethodInfo{{
			Name:        "Call",
			Type:        constant.CallUnary,
			ReqInitFunc: func() any { return new(wrapperspb.StringValue) },
			MethodFunc: func(ctx context.Context, args []any, _ any) (any, error) {
				res, err := h.call(ctx, args[0].(*wrapperspb.StringValue).GetValue())
				if err != nil {
					return nil, err
				}
				return triple_protocol.NewResponse(wrapperspb.String(res)), nil
			},
		}, {
			Name:           "Stream",
			Type:           constant.CallBidiStream,
			StreamInitFunc: func(base any) any { return base },
			MethodFunc: func(ctx context.Context, args []any, _ any) (any, error) {
				return nil, h.stream(ctx, args[0].(*triple_protocol.BidiStream))
			},
		}},
	}
}

// freePort returns a loopback port that nothing listens on.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// serve exports h under iface on a free port, with the given filters, and returns its address.
// It stays until the process ends: dubbo-go stops servers all together or not at all.
func serve(t testing.TB, protocol, iface, filters string, h *Handler) string {
	t.Helper()
	port := freePort(t)
	url := common.NewURLWithOptions(
		common.WithProtocol(protocol), common.WithIp("127.0.0.1"), common.WithPort(port), common.WithPath(iface),
		common.WithInterface(iface), common.WithMethods([]string{"Call", "Stream"}),
		common.WithParamsValue(constant.ServiceFilterKey, filters),
	)
	url.SetAttribute(constant.RpcServiceKey, h)
	if protocol == "tri" {
		url.SetAttribute(constant.ServiceInfoKey, h.info(iface))
	} else {
		_, err := common.ServiceMap.Register(iface, protocol, "", "", h)
		require.NoError(t, err)
	}
	invoker := extension.GetProxyFactory("default").GetInvoker(url)
	require.NotNil(t, extension.GetProtocol(protocolwrapper.FILTER).Export(invoker))
	addr := "127.0.0.1:" + port
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		return c.Close() == nil
	}, 5*time.Second, 5*time.Millisecond)
	return addr
}

// refer returns a function that calls iface at the given URLs.
func refer(t testing.TB, protocol, iface, urls string, opts ...client.ReferenceOption) func(ctx context.Context, req string) (string, error) {
	return referFor(t, protocol, iface, urls, 0, opts...)
}

// referFor is refer with a timeout for each call. dubbo-go replaces the timeout of a reference by that of the consumer, and over Triple
// that of a call too; over dubbo only that of a call counts.
func referFor(t testing.TB, protocol, iface, urls string, timeout time.Duration, opts ...client.ReferenceOption) func(ctx context.Context, req string) (string, error) {
	conn := dialFor(t, protocol, iface, urls, timeout, opts...)
	var limit []client.CallOption
	if timeout > 0 {
		limit = append(limit, client.WithCallRequestTimeout(timeout))
	}
	if protocol == "tri" {
		return func(ctx context.Context, req string) (string, error) {
			resp := new(wrapperspb.StringValue)
			err := conn.CallUnary(ctx, []any{wrapperspb.String(req)}, resp, "Call", limit...)
			return resp.GetValue(), err
		}
	}
	return func(ctx context.Context, req string) (string, error) {
		var resp string
		err := conn.CallUnary(ctx, []any{req}, &resp, "Call", limit...)
		return resp, err
	}
}

func dial(t testing.TB, protocol, iface, urls string, opts ...client.ReferenceOption) *client.Connection {
	return dialFor(t, protocol, iface, urls, 0, opts...)
}

func dialFor(t testing.TB, protocol, iface, urls string, timeout time.Duration, opts ...client.ReferenceOption) *client.Connection {
	t.Helper()
	cliOpts := []client.ClientOption{client.WithClientClusterFailFast(), client.WithClientNoCheck()}
	if timeout > 0 {
		cliOpts = append(cliOpts, client.WithClientRequestTimeout(timeout))
	}
	cli, err := client.NewClient(cliOpts...)
	require.NoError(t, err)
	opts = append([]client.ReferenceOption{client.WithURL(urls), client.WithProtocol(protocol), client.WithRetries(0)}, opts...)
	if protocol == "dubbo" {
		opts = append(opts, client.WithSerialization(constant.Hessian2Serialization))
	}
	info := &client.ClientInfo{InterfaceName: iface, MethodNames: []string{"Call", "Stream"}}
	if protocol != "tri" {
		info = nil
	}
	conn, err := cli.DialWithInfo(iface, info, opts...)
	require.NoError(t, err)
	return conn
}

// gate is a TCP relay before a server that can break connections in the ways that instances do.
type gate struct {
	net.Listener
	target string
	mu     sync.Mutex
	conns  []*net.TCPConn
}

func newGate(t testing.TB, target string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g := &gate{Listener: l, target: target}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			g.mu.Lock()
			g.conns = append(g.conns, in.(*net.TCPConn), out.(*net.TCPConn))
			g.mu.Unlock()
			wg.Go(func() { _, _ = io.Copy(out, in); out.Close() })
			wg.Go(func() { _, _ = io.Copy(in, out); in.Close() })
		}
	})
	t.Cleanup(func() {
		g.breakAll(false)
		wg.Wait()
	})
	return g
}

// breakAll closes the listener and every connection, with a reset or in good order.
func (g *gate) breakAll(reset bool) {
	g.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		if reset {
			_ = c.SetLinger(0)
		}
		c.Close()
	}
}

func (g *gate) addr() string { return g.Addr().String() }
