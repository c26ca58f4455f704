// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3"
	"dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/global"
	upstream "dubbo.apache.org/dubbo-go/v3/graceful_shutdown"
	_ "dubbo.apache.org/dubbo-go/v3/imports"
	"dubbo.apache.org/dubbo-go/v3/metrics/probe"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"
	"dubbo.apache.org/dubbo-go/v3/server"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

import (
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/bootstrap"
	"github.com/dubbogo/graceful/internal/settings"
)

// role says what a child process is.
type role struct {
	Port     int
	Dir      string
	Load     bool   // dubbo.Load, else dubbo.NewInstance
	Own      bool   // internal-signal: false, main takes the signals and calls BeforeShutdown
	Context  bool   // ServeContext
	Consumer string // address of a provider: this process is a consumer only, and sends one request of Work
	Work     string
	Slow     bool // the export of the service does not end
	Budget   time.Duration
	Callback time.Duration // callback-timeout
	ExitCode int
	Hang     bool // a callback that does not return
	Panic    bool // a callback that panics
}

// say writes a line that the test reads.
var say = func() func(format string, args ...any) {
	out := os.NewFile(3, "marks")
	var mu sync.Mutex
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"\n", args...)
	}
}()

// Handler is the service of the children; dubbo-go wants the type exported.
type Handler struct{}

func (*Handler) Reference() string { return "Handler" }

// Call does what it is told: nothing, or to take some time.
func (*Handler) Call(_ context.Context, what string) (string, error) {
	say("begin %s", what)
	if d, err := time.ParseDuration(what); err == nil {
		time.Sleep(d)
	}
	say("end %s", what)
	return "did " + what, nil
}

const service = "test.Handler"

func info() *common.ServiceInfo {
	h := new(Handler)
	return &common.ServiceInfo{
		InterfaceName: service, ServiceType: h,
		Methods: []common.MethodInfo{{
			Name: "Call", Type: constant.CallUnary,
			ReqInitFunc: func() any { return new(wrapperspb.StringValue) },
			MethodFunc: func(ctx context.Context, args []any, _ any) (any, error) {
				res, err := h.Call(ctx, args[0].(*wrapperspb.StringValue).GetValue())
				if err != nil {
					return nil, err
				}
				return triple_protocol.NewResponse(wrapperspb.String(res)), nil
			},
		}},
	}
}

func (r role) play() int {
	Subscribe(func(e Event) {
		switch e := e.(type) {
		case PhaseReached:
			say("phase %s", e.Phase)
		case RunStarted:
			say("budget %v", e.Budget)
		}
	})
	extension.AddCustomShutdownCallback(func() { say("callback a") })
	if r.Panic {
		extension.AddCustomShutdownCallback(func() { panic("boom") })
	}
	if r.Hang {
		extension.AddCustomShutdownCallback(func() { select {} })
	}
	opts := []config.Option{config.WithShutdownExitCode(max(1, r.ExitCode))}
	if r.Budget > 0 {
		opts = append(opts, config.WithShutdownTimeout(r.Budget))
	}
	if r.Callback > 0 {
		opts = append(opts, config.WithShutdownCallbackTimeout(r.Callback))
	}
	if err := settings.Configure(opts...); err != nil {
		return fail(err)
	}
	if r.Slow {
		bootstrap.OnService(func(*common.URL) {
			say("exporting")
			select {}
		})
	}
	go r.obey()
	defer extension.AddCustomShutdownCallback(func() { say("late callback") }) // after a shutdown: it must not run
	switch {
	case r.Consumer != "":
		return r.consume()
	case r.Load:
		return r.load()
	default:
		return r.instance()
	}
}

func fail(err error) int {
	say("fail %v", err)
	return 91
}

// saying are the commands whose result main waits for.
var saying sync.WaitGroup

// obey does what comes on standard input.
func (r role) obey() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch cmd := in.Text(); cmd {
		case "shutdown":
			saying.Go(func() { say("shutdown %v", Shutdown(context.Background())) })
		case "upstream":
			saying.Go(func() { say("upstream %v", upstream.Shutdown(context.Background())) })
		case "offline":
			say("offline %v ready=%v", Offline(context.Background()), probe.CheckReadiness(context.Background()))
		case "online":
			say("online %v ready=%v", Online(context.Background()), probe.CheckReadiness(context.Background()))
		case "callbacks":
			all := extension.GetAllCustomShutdownCallbacks()
			ours := customCallbacks()
			say("callbacks all=%d ours=%d", all.Len(), len(ours))
		case "cancel":
			cancelServe()
		}
	}
}

var serveCtx, cancelServe = context.WithCancel(context.Background())

func (r role) instance() int {
	cfg := global.DefaultShutdownConfig()
	if r.Own {
		off := false
		cfg.InternalSignal = &off
	}
	ins, err := dubbo.NewInstance(
		dubbo.WithName("child"),
		dubbo.WithProtocol(protocol.WithTriple(), protocol.WithIp("127.0.0.1"), protocol.WithPort(r.Port)),
		dubbo.WithShutdown(upstream.SetShutdownConfig(cfg)),
	)
	if err != nil {
		return fail(err)
	}
	srv, err := ins.NewServer()
	if err != nil {
		return fail(err)
	}
	if err := srv.Register(new(Handler), info()); err != nil {
		return fail(err)
	}
	switch {
	case r.Own:
		return r.own(srv)
	case r.Context:
		say("serve %v", srv.ServeContext(serveCtx))
		say("wait %v", Wait(context.Background()))
	default:
		say("serve %v", srv.Serve())
	}
	saying.Wait()
	return 42 // nobody comes here on a signal
}

// own is a main with more to stop than dubbo-go.
func (r role) own(srv *server.Server) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fail(err)
	}
	web := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	var servers sync.WaitGroup
	servers.Go(func() { say("web %v", web.Serve(l)) })
	servers.Go(func() { say("serve %v", srv.Serve()) })
	<-signals
	err = BeforeShutdown()
	say("before cut=%v err=%v", errors.Is(err, ErrCutOff), err != nil)
	again, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(r.Port))
	say("port free=%v", err == nil)
	if err == nil {
		_ = again.Close()
	}
	_ = web.Shutdown(context.Background())
	servers.Wait()
	return 43
}

func (r role) load() int {
	path := filepath.Join(r.Dir, "dubbogo.yml")
	yml := `
dubbo:
  application: {name: child}
  protocols:
    tri: {name: tri, ip: 127.0.0.1, port: "` + strconv.Itoa(r.Port) + `"}
  provider:
    services:
      Handler: {interface: ` + service + `}
`
	if r.Own {
		yml += "  shutdown: {internal-signal: false}\n"
	}
	if err := os.WriteFile(path, []byte(yml), 0o600); err != nil {
		return fail(err)
	}
	dubbo.SetProviderServiceWithInfo(new(Handler), info())
	if err := dubbo.Load(dubbo.WithPath(path)); err != nil {
		return fail(err)
	}
	if err := Wait(context.Background()); err != nil {
		return fail(err)
	}
	say("wait over")
	saying.Wait()
	return 42
}

func (r role) consume() int {
	cli, err := client.NewClient()
	if err != nil {
		return fail(err)
	}
	conn, err := cli.DialWithInfo(service, &client.ClientInfo{InterfaceName: service, MethodNames: []string{"Call"}}, client.WithURL(r.Consumer), client.WithProtocolTriple(), client.WithRequestTimeout(20*time.Second))
	if err != nil {
		return fail(err)
	}
	res := new(wrapperspb.StringValue)
	err = conn.CallUnary(context.Background(), []any{wrapperspb.String(r.Work)}, res, "Call")
	say("answer %s %v", strings.ReplaceAll(res.GetValue(), " ", "-"), err)
	select {}
}
