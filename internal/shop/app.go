// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

import (
	"dubbo.apache.org/dubbo-go/v3"
	"dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/global"
	"dubbo.apache.org/dubbo-go/v3/graceful_shutdown"
	dubboLogger "dubbo.apache.org/dubbo-go/v3/logger"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/server"

	"gopkg.in/yaml.v3"
)

import (
	"github.com/dubbogo/graceful/internal/shop/shoppb"
)

// service is one of the two services, by what is different between them.
type service struct {
	key, name string // key is the entry in dubbogo.yml
	refer     func(*client.Client, ...client.ReferenceOption) (*shoppb.Client, error)
	register  func(*server.Server, shoppb.Handler, ...server.ServiceOption) error
}

var (
	backendService = service{"Backend", shoppb.BackendName, shoppb.NewBackend, shoppb.RegisterBackend}
	frontService   = service{"Front", shoppb.FrontName, shoppb.NewFront, shoppb.RegisterFront}
)

func (o *Options) serves() service {
	if o.Role == Proxy {
		return frontService
	}
	return backendService
}

// app is the dubbo-go application of a process, started one way or the other.
type app interface {
	refer(s service) (caller, error)
	// serve blocks for as long as the service lives.
	serve(do work) error
}

func newApp(o *Options, h Hooks) (app, error) {
	if o.UseLoad {
		return &loadApp{o: o, hooks: h}, nil
	}
	ins, err := dubbo.NewInstance(instanceOptions(o)...)
	if err != nil {
		return nil, err
	}
	if h.Prepare != nil {
		if err := h.Prepare(o, ins); err != nil {
			return nil, err
		}
	}
	return &instanceApp{o: o, ins: ins}, nil
}

// instanceApp uses dubbo.NewInstance.
type instanceApp struct {
	o   *Options
	ins *dubbo.Instance
}

func instanceOptions(o *Options) []dubbo.InstanceOption {
	opts := []dubbo.InstanceOption{
		dubbo.WithName(o.Role.App()),
		dubbo.WithLogger(dubboLogger.WithLevel(o.logLevel())),
		withShutdown(o),
	}
	for id, r := range o.Registries {
		ro := []registry.Option{
			registry.WithID(id), registry.WithRegistry(r.Protocol), registry.WithAddress(r.Address),
			registry.WithParams(r.params()), registry.WithGroup(r.Group),
		}
		switch r.Level {
		case LevelService:
			ro = append(ro, registry.WithRegisterService())
		case LevelAll:
			ro = append(ro, registry.WithRegisterServiceAndInterface())
		default:
			ro = append(ro, registry.WithRegisterInterface())
		}
		if r.Timeout > 0 {
			ro = append(ro, registry.WithTimeout(r.Timeout))
		}
		opts = append(opts, dubbo.WithRegistry(ro...))
	}
	if o.Role != Client {
		opts = append(opts, dubbo.WithProtocol(
			protocol.WithProtocol(o.Protocol), protocol.WithIp("127.0.0.1"), protocol.WithPort(o.Port)))
	}
	if o.MetadataPort != 0 {
		opts = append(opts, dubbo.WithMetadataServicePort(o.MetadataPort))
	}
	if len(o.Custom) > 0 {
		opts = append(opts, dubbo.WithCustom(o.Custom))
	}
	return opts
}

// withShutdown sets the keys of dubbo.shutdown that the options name and leaves the others alone.
func withShutdown(o *Options) dubbo.InstanceOption {
	cfg := global.DefaultShutdownConfig()
	if o.InternalSignal != nil {
		cfg.InternalSignal = o.InternalSignal
	}
	for k, v := range o.Shutdown {
		switch k {
		case "timeout":
			cfg.Timeout = v
		case "step-timeout":
			cfg.StepTimeout = v
		case "notify-timeout":
			cfg.NotifyTimeout = v
		case "consumer-update-wait-time":
			cfg.ConsumerUpdateWaitTime = v
		case "offline-request-window-timeout":
			cfg.OfflineRequestWindowTimeout = v
		}
	}
	return dubbo.WithShutdown(graceful_shutdown.SetShutdownConfig(cfg))
}

func (r Registry) params() map[string]string {
	if r.Params == nil {
		return map[string]string{}
	}
	return r.Params
}

func (o *Options) logLevel() string {
	if o.LogLevel == "" {
		return "info"
	}
	return o.LogLevel
}

func (o *Options) consumerFilter() string {
	if o.ConsumerFilter == "" {
		return attemptsFilter
	}
	return o.ConsumerFilter + "," + attemptsFilter
}

func (a *instanceApp) refer(s service) (caller, error) {
	cliOpts := []client.ClientOption{client.WithClientFilter(a.o.consumerFilter())}
	if a.o.RequestTimeout > 0 {
		// Not client.WithRequestTimeout: dubbo-go 3.3.2 lets the consumer's timeout, 3 s if nothing
		// is said, win over the reference's.
		cliOpts = append(cliOpts, client.WithClientRequestTimeout(a.o.RequestTimeout))
	}
	cli, err := a.ins.NewClient(cliOpts...)
	if err != nil {
		return nil, err
	}
	opts := []client.ReferenceOption{client.WithCluster(a.o.Cluster), client.WithRetries(a.o.Retries)}
	if a.o.Loadbalance != "" {
		opts = append(opts, client.WithLoadBalance(a.o.Loadbalance))
	}
	if a.o.Direct != "" {
		opts = append(opts, client.WithURL(a.o.Direct))
	}
	if a.o.Protocol == constant.DubboProtocol {
		opts = append(opts, client.WithProtocolDubbo(), client.WithSerialization(constant.Hessian2Serialization))
		conn, err := cli.Dial(s.name, opts...)
		if err != nil {
			return nil, err
		}
		d := dubboCaller{conn: conn}
		if a.o.RequestTimeout > 0 {
			// Over the dubbo protocol 3.3.2 heeds neither of the two: every call carries an empty
			// timeout of its own, which becomes 3 s.
			d.opts = append(d.opts, client.WithCallRequestTimeout(a.o.RequestTimeout))
		}
		return d, nil
	}
	c, err := s.refer(cli, opts...)
	if err != nil {
		return nil, err
	}
	return tripleCaller{c}, nil
}

func (a *instanceApp) serve(do work) error {
	var opts []server.ServerOption
	if a.o.ProviderFilter != "" {
		opts = append(opts, server.WithServerFilter(a.o.ProviderFilter))
	}
	srv, err := a.ins.NewServer(opts...)
	if err != nil {
		return err
	}
	s := a.o.serves()
	if a.o.Protocol == constant.DubboProtocol {
		err = srv.RegisterService(&DubboHandler{s.key, do}, server.WithInterface(s.name),
			server.WithSerialization(constant.Hessian2Serialization))
	} else {
		err = s.register(srv, &TripleHandler{s.key, do})
	}
	if err != nil {
		return err
	}
	return srv.Serve()
}

// loadApp uses dubbo.Load. dubbo.Load starts everything at once, so what is asked for is collected
// until the last piece is there.
type loadApp struct {
	o     *Options
	hooks Hooks
	back  shoppb.BackendConsumer
	front shoppb.FrontConsumer
}

func (a *loadApp) refer(s service) (caller, error) {
	if a.o.Protocol == constant.DubboProtocol {
		// loadConsumer of 3.3.2 gives such references msgpack and none of their settings.
		return nil, fmt.Errorf("dubbo.Load of dubbo-go 3.3.2 cannot set up a reference over the dubbo protocol without IDL")
	}
	if s.key == frontService.key {
		shoppb.SetFrontConsumer(&a.front)
		return tripleCaller{&a.front.Client}, a.load()
	}
	shoppb.SetBackendConsumer(&a.back)
	return tripleCaller{&a.back.Client}, nil // connected by the load in serve
}

func (a *loadApp) serve(do work) error {
	s := a.o.serves()
	switch {
	case a.o.Protocol == constant.DubboProtocol:
		dubbo.SetProviderService(&DubboHandler{s.key, do})
	case s.key == frontService.key:
		shoppb.SetFrontProvider(&TripleHandler{s.key, do})
	default:
		shoppb.SetBackendProvider(&TripleHandler{s.key, do})
	}
	if err := a.load(); err != nil {
		return err
	}
	select {} // dubbo.Load serves in the background and tells nobody when that ends
}

func (a *loadApp) load() error {
	if a.hooks.Prepare != nil {
		if err := a.hooks.Prepare(a.o, nil); err != nil {
			return err
		}
	}
	b, err := a.o.YAML()
	if err != nil {
		return err
	}
	// The name must have one dot only: dubbo-go takes what follows the first one for the format.
	path := filepath.Join(a.o.Dir, strings.ReplaceAll(a.o.Name, ".", "-")+"-dubbogo.yml")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return err
	}
	return dubbo.Load(dubbo.WithPath(path))
}

// YAML is the dubbogo.yml that says what the options say.
func (o *Options) YAML() ([]byte, error) {
	s := o.serves()
	application := map[string]any{"name": o.Role.App()}
	if o.MetadataPort != 0 {
		application["metadata-service-port"] = strconv.Itoa(o.MetadataPort)
	}
	d := map[string]any{
		"application": application,
		"logger":      map[string]any{"level": o.logLevel()},
	}
	if len(o.Registries) > 0 {
		regs := map[string]any{}
		for id, r := range o.Registries {
			e := map[string]any{"protocol": r.Protocol, "address": r.Address, "registry-type": string(r.Level)}
			if len(r.Params) > 0 {
				e["params"] = r.Params
			}
			if r.Group != "" {
				e["group"] = r.Group
			}
			if r.Timeout > 0 {
				e["timeout"] = r.Timeout.String()
			}
			regs[id] = e
		}
		d["registries"] = regs
	}
	if o.Role != Client {
		d["protocols"] = map[string]any{o.Protocol: map[string]any{
			"name": o.Protocol, "ip": "127.0.0.1", "port": strconv.Itoa(o.Port),
		}}
		provider := map[string]any{"services": map[string]any{s.key: map[string]any{"interface": s.name}}}
		if o.ProviderFilter != "" {
			provider["filter"] = o.ProviderFilter
		}
		d["provider"] = provider
	}
	if o.Role != Provider {
		r := backendService
		if o.Role == Client {
			r = frontService
		}
		ref := map[string]any{
			"interface": r.name, "protocol": o.Protocol, "cluster": o.Cluster, "retries": strconv.Itoa(o.Retries),
		}
		if o.Loadbalance != "" {
			ref["loadbalance"] = o.Loadbalance
		}
		if o.Direct != "" {
			ref["url"] = o.Direct
		}
		consumer := map[string]any{"filter": o.consumerFilter(), "references": map[string]any{r.key: ref}}
		if o.RequestTimeout > 0 {
			consumer["request-timeout"] = o.RequestTimeout.String()
		}
		d["consumer"] = consumer
	}
	sd := map[string]any{}
	for k, v := range o.Shutdown {
		sd[k] = v
	}
	if o.InternalSignal != nil {
		sd["internal-signal"] = *o.InternalSignal
	}
	if len(sd) > 0 {
		d["shutdown"] = sd
	}
	if len(o.Custom) > 0 {
		d["custom"] = map[string]any{"config-map": o.Custom}
	}
	b, err := yaml.Marshal(map[string]any{"dubbo": d})
	if err != nil {
		return nil, err
	}
	return []byte(strings.TrimSpace(string(b)) + "\n"), nil
}
