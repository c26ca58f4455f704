// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/filter"
	// Its init registers pshutdown and cshutdown, and has to do so before ours does.
	_ "dubbo.apache.org/dubbo-go/v3/filter/graceful_shutdown"
	"dubbo.apache.org/dubbo-go/v3/global"
	upstream "dubbo.apache.org/dubbo-go/v3/graceful_shutdown"
	"dubbo.apache.org/dubbo-go/v3/metrics/probe"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/registry"
	registryprotocol "dubbo.apache.org/dubbo-go/v3/registry/protocol"
)

import (
	"github.com/dubbogo/graceful/filter/active"
	"github.com/dubbogo/graceful/internal/announce"
	"github.com/dubbogo/graceful/internal/bootstrap"
	"github.com/dubbogo/graceful/internal/drain"
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/settings"
)

// process is the coordinator of this process.
var process = newCoordinator(system{
	settings:   settings.Get,
	kubernetes: os.Getenv("KUBERNETES_SERVICE_HOST") != "",
	setStatus:  self.SetStatus,
	setReady:   probe.SetReady,
	publishers: announce.All,
	registries: plainRegistries{},
	callers:    drain.KnownCallers(),
	inbound:    drain.Inbound(),
	outbound:   drain.Outbound(),
	notify:     notifyHealth,
	destroy:    destroyProtocols,
	callbacks:  customCallbacks,
	release:    releaseServe,
	exit:       exitProcess,
})

// init takes the shutdown over from dubbo-go. It is more than a registration of extensions, which is all that an init should do,
// because dubbo-go's Init obeys its first caller only, and NewServer and NewClient call it: an application has no place that is
// surely earlier than these, except for the inits of what it imports.
//
// What is claimed, and why:
//   - Init, with internal-signal off and waits of zero: no second signal handler, and none of dubbo-go's own waits. It does nothing
//     at all while no pshutdown is registered, so the filters come first.
//   - the protocol "registry": dubbo-go's own Shutdown, which the application may call and which the end of ServeContext's context
//     calls, asks it to unregister before anything else, in the goroutine that does the whole shutdown. There it enters our phases.
//   - a shutdown callback, before those of anybody else: should another module have taken "registry" from us, dubbo-go's Shutdown
//     still comes through our phases, late.
func init() {
	alias(constant.GracefulShutdownProviderFilterKey, active.ProviderKey)
	alias(constant.GracefulShutdownConsumerFilterKey, active.ConsumerKey)

	off := false
	upstream.Init(upstream.SetShutdownConfig(&global.ShutdownConfig{
		Timeout: "60s", StepTimeout: "0s", NotifyTimeout: "1s", ConsumerUpdateWaitTime: "0s", OfflineRequestWindowTimeout: "0s",
		ClosingInvokerExpireTime: "30s", InternalSignal: &off,
	}))

	extension.SetProtocol(constant.RegistryProtocol, func() base.Protocol {
		return &registryProtocol{Protocol: registryprotocol.GetProtocol()}
	})
	extension.AddCustomShutdownCallback(lastResort)

	probe.RegisterReadiness("graceful", func(context.Context) error {
		if isClosed(process.draining(context.Background())) {
			return errNotReady
		}
		return nil
	})

	process.bus.subscribe(logEvent)
	bootstrap.OnFirst(takeSignals)
	bootstrap.OnService(rememberProtocol)
	bootstrap.OnReference(rememberProtocol)
}

var errNotReady = errors.New("this instance is draining")

// alias registers the filter ours under dubbo-go's name too, so that its default chains carry it.
func alias(name, ours string) {
	extension.SetFilter(name, func() filter.Filter {
		f, _ := extension.GetFilter(ours)
		return f
	})
}

// takeSignals runs at the first service or reference, when the settings are final.
func takeSignals() {
	total, why := budgetOf(settings.Get().Shutdown, process.sys.kubernetes)
	own := internalSignal(settings.Shutdown())
	infof("budget=%v (%s) internal-signal=%v", total, why, own)
	if own {
		process.listen(taken()...)
	}
}

// internalSignal: dubbo-go's default is to take the signals.
func internalSignal(cfg *global.ShutdownConfig) bool {
	return cfg == nil || cfg.InternalSignal == nil || *cfg.InternalSignal
}

// registryProtocol is dubbo-go's protocol "registry" with our way in.
type registryProtocol struct {
	base.Protocol
}

// GetRegistries makes it a registry.RegistryFactory, which dubbo-go's hook for "everything is exported" looks for.
func (p *registryProtocol) GetRegistries() []registry.Registry {
	if f, ok := p.Protocol.(registry.RegistryFactory); ok {
		return f.GetRegistries()
	}
	return nil
}

// UnregisterRegistries is where dubbo-go's Shutdown begins. All phases run before it comes back, and it does not come back: by
// then the protocols are destroyed and the callbacks have run, dubbo-go would do both again, and would wait 60 s for the callback
// of dubbo.Load, which never returns. Goexit ends its goroutine; what it has deferred closes Done without an error, and Serve
// returns nil.
func (p *registryProtocol) UnregisterRegistries() {
	r := process.leave(request{trigger: "dubbo-go", target: Callbacks})
	<-r.worked
	runtime.Goexit()
}

// lastResort is the first shutdown callback. It is reached only if UnregisterRegistries was not.
func lastResort() {
	r := process.leave(request{trigger: "dubbo-go callbacks", target: Callbacks, upstream: true})
	<-r.worked
}

// releaseServe makes Serve return.
func releaseServe(ctx context.Context) {
	if err := upstream.Shutdown(ctx); err != nil {
		warnf("dubbo-go=not-released, Serve may not return err=%v", err)
	}
}

// decorator is the name under which our registry decorator registers.
const decorator = "graceful"

// plainRegistries are the registries without our decorator.
type plainRegistries struct{}

func (plainRegistries) count() (n int) {
	f, ok := registryprotocol.GetProtocol().(registry.RegistryFactory)
	if !ok {
		return 0
	}
	for _, r := range f.GetRegistries() {
		if u := r.GetURL(); u != nil && u.Protocol != decorator && u.GetParam(constant.RegistryKey, "") != decorator {
			n++
		}
	}
	return n
}

// unregister also unregisters what our decorator has withdrawn already, which it ignores.
func (plainRegistries) unregister() {
	if u, ok := registryprotocol.GetProtocol().(base.RegistryUnregisterer); ok {
		u.UnregisterRegistries()
	}
}

// notifyHealth runs what protocols registered for the moment after the unregister: Triple and gRPC say NOT_SERVING there. The
// closing mark of the dubbo protocol is none of these, and never sent: a vanilla consumer that reads it cuts its calls in flight.
func notifyHealth(ctx context.Context) error {
	callbacks := extension.GracefulShutdownCallbacks()
	errs := make(chan error, len(callbacks))
	for name, f := range callbacks {
		go func() {
			err := bounded(ctx, f)
			if err != nil {
				err = fmt.Errorf("notify %s: %w", name, err)
			}
			errs <- err
		}()
	}
	var all []error
	for range callbacks {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// used are the protocols of the services and references of this process. dubbo-go keeps the same list, but to itself.
var used struct {
	sync.Mutex
	names []string
}

func rememberProtocol(url *common.URL) {
	used.Lock()
	defer used.Unlock()
	if url.Protocol != "" && !slices.Contains(used.names, url.Protocol) {
		used.names = append(used.names, url.Protocol)
	}
}

// destroyProtocols closes listeners and connections, all at the same time and bounded.
func destroyProtocols(ctx context.Context) (int, error) {
	used.Lock()
	names := slices.Clone(used.names)
	used.Unlock()
	errs := make(chan error, len(names))
	for _, name := range names {
		go func() {
			err := bounded(ctx, func(context.Context) error { extension.GetProtocol(name).Destroy(); return nil })
			if err != nil {
				err = fmt.Errorf("protocol %s: %w", name, err)
			}
			errs <- err
		}()
	}
	var all []error
	for range names {
		all = append(all, <-errs)
	}
	return len(names), errors.Join(all...)
}

// customCallbacks are the application's shutdown callbacks, and those of dubbo-go's own parts. Two are left out: ours, and that of
// dubbo.Load, which waits for a WaitGroup that is added to twice and so never returns. It would stop the watcher of the
// configuration file, which ends with the process anyway.
func customCallbacks() (out []callback) {
	all := extension.GetAllCustomShutdownCallbacks()
	for e := all.Front(); e != nil; e = e.Next() {
		f, ok := e.Value.(func())
		if !ok {
			continue
		}
		name := nameOf(f)
		if name == lastResortName || strings.HasPrefix(name, loaderPrefix) {
			continue
		}
		out = append(out, callback{name: name, f: f})
	}
	return out
}

// loaderPrefix begins the names of the functions inside dubbo.Load.
const loaderPrefix = "dubbo.apache.org/dubbo-go/v3.Load."

// lastResortName is the name of our own callback. A variable of nameOf(lastResort) would be an initialization cycle.
const lastResortName = "github.com/dubbogo/graceful/graceful_shutdown.lastResort"

func nameOf(f func()) string {
	fn := runtime.FuncForPC(reflect.ValueOf(f).Pointer())
	if fn == nil {
		return "?"
	}
	return fn.Name()
}

// exitProcess ends the process. For the signals whose own meaning is "show your state and die" it shows the state first: dubbo-go
// writes a heap dump to stdout, which we do only into a file, since on a pipe that nobody reads it would stop the exit for good.
func exitProcess(code int, sig os.Signal) {
	if slices.Contains(upstream.DumpHeapShutdownSignals, sig) {
		if info, err := os.Stdout.Stat(); err == nil && info.Mode().IsRegular() {
			debug.WriteHeapDump(os.Stdout.Fd())
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = bounded(ctx, func(context.Context) error {
			stacks := make([]byte, 1<<20)
			_, err := os.Stderr.Write(stacks[:runtime.Stack(stacks, true)])
			return err
		})
		cancel()
	}
	os.Exit(code)
}
