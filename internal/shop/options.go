// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// Environment of a child process.
const (
	// EnvOptions holds the Options as JSON.
	EnvOptions = "SHOP_OPTIONS"
	// EnvEvents holds the number of the inherited file that events are written to. Without it
	// they go to standard output.
	EnvEvents = "SHOP_EVENTS_FD"
)

// Role says what a process does.
type Role string

// The three roles.
const (
	Provider Role = "provider"
	Proxy    Role = "proxy"
	Client   Role = "client"
)

// Application names. On service level they are the names that instances are found by.
const (
	ProviderApp = "shop-provider"
	ProxyApp    = "shop-proxy"
	ClientApp   = "shop-client"
)

// App is the application name of a role.
func (r Role) App() string { return "shop-" + string(r) }

// Level says what is registered.
type Level string

// The three values of dubbo.registries.*.registry-type.
const (
	LevelInterface Level = "interface"
	LevelService   Level = "service"
	LevelAll       Level = "all"
)

// Registry is one entry of dubbo.registries.
type Registry struct {
	Protocol string            `json:"protocol"`
	Address  string            `json:"address"`
	Level    Level             `json:"level"`
	Params   map[string]string `json:"params,omitempty"`
	Group    string            `json:"group,omitempty"`
	Timeout  time.Duration     `json:"timeout,omitempty"`
}

// Fault makes a provider's handler fail on purpose.
type Fault struct {
	// Mode is "" (none), "error" (a business error), "unavailable" (Triple's code Unavailable, as
	// a handler whose database is down would answer) or "panic".
	Mode string `json:"mode,omitempty"`
	// Every n-th request fails; 0 means each.
	Every int `json:"every,omitempty"`
}

// Options describe one process. The zero value of a field means dubbo-go's own default.
type Options struct {
	Role Role   `json:"role"`
	Name string `json:"name"`
	// Dir is where the process may write: ledger, generated dubbogo.yml, caches.
	Dir string `json:"dir"`
	// Protocol is "tri" or "dubbo".
	Protocol string `json:"protocol"`
	// Port to listen on, on 127.0.0.1; 0 lets the process choose a free one.
	Port int `json:"port,omitempty"`
	// MetadataPort is the port of the metadata service over the dubbo protocol; 0 lets the process
	// choose one. dubbo-go 3.3.2 would bind the same port twice, once for all addresses and once
	// for 127.0.0.1, and panic. Triple shares the port.
	MetadataPort int `json:"metadata_port,omitempty"`

	// Registries by id; none means that Direct is used.
	Registries map[string]Registry `json:"registries,omitempty"`
	// Direct holds the URLs that the process calls instead of asking a registry, separated by ";".
	Direct string `json:"direct,omitempty"`

	// HandlerTime is how long a provider works on a request.
	HandlerTime time.Duration `json:"handler_time,omitempty"`
	// ResponseBytes is the size of the payload in a provider's answer.
	ResponseBytes int   `json:"response_bytes,omitempty"`
	Fault         Fault `json:"fault"`
	// NoLedger leaves out the marks, for measurements at high rates.
	NoLedger bool `json:"no_ledger,omitempty"`

	// Cluster strategy, retries and load balancer of the process's own reference. Retries is
	// always handed on, since 0 is a choice and not an absence.
	Cluster        string        `json:"cluster,omitempty"`
	Retries        int           `json:"retries"`
	Loadbalance    string        `json:"loadbalance,omitempty"`
	RequestTimeout time.Duration `json:"request_timeout,omitempty"`
	// ConsumerFilter and ProviderFilter are the values of the filter keys.
	ConsumerFilter string `json:"consumer_filter,omitempty"`
	ProviderFilter string `json:"provider_filter,omitempty"`

	// InternalSignal is dubbo.shutdown.internal-signal; nil leaves the key out. With false the
	// process takes SIGTERM itself and calls Hooks.BeforeShutdown.
	InternalSignal *bool `json:"internal_signal,omitempty"`
	// Shutdown holds further keys of dubbo.shutdown, as written in dubbogo.yml: timeout,
	// step-timeout, consumer-update-wait-time, offline-request-window-timeout, notify-timeout.
	Shutdown map[string]string `json:"shutdown,omitempty"`
	// Custom is dubbo.custom.config-map: {"graceful": {...}}.
	Custom map[string]any `json:"custom,omitempty"`

	// UseLoad starts through dubbo.Load with a generated dubbogo.yml, else dubbo.NewInstance.
	UseLoad bool `json:"use_load,omitempty"`
	// WebPort is a port of 127.0.0.1 for a web server of the app's own, 0 for none.
	WebPort  int    `json:"web_port,omitempty"`
	LogLevel string `json:"log_level,omitempty"`
}

// Addr is the address that the process listens on.
func (o *Options) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port))
}

// Encode is the value of EnvOptions.
func (o *Options) Encode() (string, error) {
	b, err := json.Marshal(o)
	return string(b), err
}

// OptionsFromEnv reads what the parent process put into EnvOptions.
func OptionsFromEnv() (*Options, error) {
	v, ok := os.LookupEnv(EnvOptions)
	if !ok {
		return nil, fmt.Errorf("%s is not set: this program is started by internal/rollout", EnvOptions)
	}
	o := new(Options)
	if err := json.Unmarshal([]byte(v), o); err != nil {
		return nil, fmt.Errorf("%s: %w", EnvOptions, err)
	}
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("%s: %w", EnvOptions, err)
	}
	return o, nil
}

func (o *Options) complete() error {
	switch o.Role {
	case Provider, Proxy, Client:
	default:
		return fmt.Errorf("role %q: want provider, proxy or client", o.Role)
	}
	if o.Name == "" {
		o.Name = string(o.Role)
	}
	switch o.Protocol {
	case "":
		o.Protocol = "tri"
	case "tri", "dubbo":
	default:
		return fmt.Errorf("protocol %q: want tri or dubbo", o.Protocol)
	}
	if o.Cluster == "" {
		o.Cluster = "failfast"
	}
	if o.Role == Client {
		return nil
	}
	var err error
	if o.Port == 0 {
		o.Port, err = freePort()
	}
	if err == nil && o.MetadataPort == 0 && o.Protocol == "dubbo" {
		o.MetadataPort, err = freePort()
	}
	return err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}
