// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"time"
)

// Prefix is what every key begins with in dubbogo.yml, under dubbo.custom.config-map.
const Prefix = "graceful"

// Key describes one setting for people: the README's table is made of these.
type Key struct {
	Name    string // without the prefix: drain.timeout
	Option  string // the API twin: WithDrainTimeout
	Type    string // duration, integer, number, switch, text
	Default string
	Allowed string
	Doc     string
}

// key is one line of the table below: the one place that the decoder, the validation, the hints in errors and the
// README read.
type key struct {
	name  string
	field func(*Settings) any // pointer to the field
	rule  rule
	zero  string // what the zero value means, where it is the default and does not speak for itself
	doc   string
}

var keys = []key{
	{"loadbalance", func(s *Settings) any { return &s.Loadbalance }, balancer(true), "dubbo-go's own",
		"load balancer of every reference that names none itself"},
	{"retry.enabled", func(s *Settings) any { return &s.Retry.Enabled }, boolean(), "",
		"send a request that was certainly not executed to another instance"},
	{"health.check.interval", func(s *Settings) any { return &s.HealthCheck.Interval }, duration(100 * time.Millisecond), "",
		"pause between two background dials to an ejected instance"},

	{"drain.timeout", func(s *Settings) any { return &s.Drain.Timeout }, duration(0), "",
		"longest wait for the known callers to move away, before the unregister"},
	{"drain.quiet", func(s *Settings) any { return &s.Drain.Quiet }, duration(10 * time.Millisecond), "",
		"a caller that sent no request for so long has moved"},
	{"drain.min-wait", func(s *Settings) any { return &s.Drain.MinWait }, duration(0), "",
		"least time between the unregister and the first rejection"},
	{"drain.settle-timeout", func(s *Settings) any { return &s.Drain.SettleTimeout }, duration(0), "",
		"longest wait for callers without this module, after the unregister"},
	{"drain.caller-window", func(s *Settings) any { return &s.Drain.CallerWindow }, duration(time.Second), "",
		"a request not older than this makes its sender a caller that is waited for"},
	{"drain.inbound-timeout", func(s *Settings) any { return &s.Drain.InboundTimeout }, duration(0), "the rest of the budget",
		"longest wait for requests that are being served"},
	{"drain.outbound-timeout", func(s *Settings) any { return &s.Drain.OutboundTimeout }, duration(0), "",
		"longest wait for the process's own requests downstream"},
	{"drain.vanilla-tag", func(s *Settings) any { return &s.Drain.VanillaTag }, boolean(), "",
		"publish `dubbo.tag` while draining, to move consumers without this module early"},

	{"warmup.window", func(s *Settings) any { return &s.Warmup.Window }, duration(time.Second), "",
		"time in which a new instance reaches its full weight"},
	{"warmup.curve", func(s *Settings) any { return &s.Warmup.Curve }, above(0, 10), "",
		"exponent of the growth: 1 is linear, more starts slower"},
	{"warmup.floor", func(s *Settings) any { return &s.Warmup.Floor }, above(0, 1), "",
		"least share of the full weight"},
	{"warmup.requests", func(s *Settings) any { return &s.Warmup.Requests }, whole(0, 1_000_000), "",
		"requests that must have been served too, at the latest at twice the window"},
	{"warmup.policy", func(s *Settings) any { return &s.Warmup.Policy }, oneOf("random"), "",
		"how an instance is chosen by weight"},

	{"blacklist.connect-errors", func(s *Settings) any { return &s.Blacklist.ConnectErrors }, whole(0, 1000), "",
		"refused connections in a row that eject an instance; 0: none does"},
	{"blacklist.transport-errors", func(s *Settings) any { return &s.Blacklist.TransportErrors }, whole(0, 1000), "",
		"broken connections in a row that eject an instance; 0: none does"},
	{"blacklist.timeout-errors", func(s *Settings) any { return &s.Blacklist.TimeoutErrors }, whole(0, 1000), "",
		"timeouts in a row that eject an instance; 0: none does"},
	{"blacklist.base", func(s *Settings) any { return &s.Blacklist.Base }, duration(10 * time.Millisecond), "",
		"length of the first ejection, doubled each time"},
	{"blacklist.max", func(s *Settings) any { return &s.Blacklist.Max }, duration(10 * time.Millisecond), "",
		"longest ejection"},
	{"blacklist.max-percent", func(s *Settings) any { return &s.Blacklist.MaxPercent }, whole(0, 100), "",
		"largest share of the candidates that is left out for broken connections or timeouts"},
	{"blacklist.panic-percent", func(s *Settings) any { return &s.Blacklist.PanicPercent }, whole(0, 100), "",
		"with a smaller share usable, ejections are ignored"},
	{"blacklist.notice-time", func(s *Settings) any { return &s.Blacklist.NoticeTime }, duration(time.Second), "",
		"how long an announced leaving is believed without further news"},
	{"blacklist.loadbalance", func(s *Settings) any { return &s.Blacklist.Loadbalance }, balancer(false, "blacklist"), "",
		"load balancer that chooses among the instances that are left"},

	{"register.delay", func(s *Settings) any { return &s.Register.Delay }, duration(0), "",
		"extra wait between ready and registered"},
	{"register.timeout", func(s *Settings) any { return &s.Register.Timeout }, duration(0), "",
		"longest wait for listeners, references and readiness checks"},
	{"register.on-timeout", func(s *Settings) any { return &s.Register.OnTimeout }, oneOf("register", "stop"), "",
		"what happens then: register with a warning, or stop the start"},

	{"shutdown.linger", func(s *Settings) any { return &s.Shutdown.Linger }, duration(0), "",
		"how long connections stay open after the last request ended"},
	{"shutdown.exit-code", func(s *Settings) any { return &s.Shutdown.ExitCode }, whole(0, 125), "",
		"exit code when requests being served were cut off"},
	{"shutdown.timeout", func(s *Settings) any { return &s.Shutdown.Timeout }, duration(0), "60s, or `grace-period` less 5s",
		"the one budget of all phases"},
	{"shutdown.grace-period", func(s *Settings) any { return &s.Shutdown.GracePeriod }, zeroOrAbove(exitReserve), "30s in Kubernetes",
		"time between the platform's SIGTERM and its SIGKILL"},
	{"shutdown.callback-timeout", func(s *Settings) any { return &s.Shutdown.CallbackTimeout }, duration(0), "",
		"longest wait for one shutdown callback"},

	{"registry.hold-timeout", func(s *Settings) any { return &s.Registry.HoldTimeout }, duration(0), "",
		"longest time that a removal is held back while requests to the instance are in flight"},
}

var byName = func() map[string]int {
	if len(keys) > 64 {
		panic("config: Settings.set has one bit for each key")
	}
	m := make(map[string]int, len(keys))
	for i, k := range keys {
		m[k.name] = i
	}
	return m
}()

// Keys returns the description of every key, in the order of the README.
func Keys() []Key {
	defaults := Default()
	out := make([]Key, 0, len(keys))
	for _, k := range keys {
		out = append(out, Key{
			Name:    k.name,
			Option:  optionName(k.name),
			Type:    typeName(k.field(&defaults)),
			Default: k.text(&defaults),
			Allowed: k.rule.allowed,
			Doc:     k.doc,
		})
	}
	return out
}

func (k key) text(s *Settings) string {
	v := value(k.field(s))
	if k.zero != "" && (v == "" || v == time.Duration(0)) {
		return k.zero
	}
	return format(v)
}

// optionName is the rule by which the functional options are named: WithDrainMinWait for drain.min-wait.
func optionName(name string) string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == '-' })
	for i, p := range parts {
		parts[i] = strings.ToUpper(p[:1]) + p[1:]
	}
	return "With" + strings.Join(parts, "")
}

func typeName(field any) string {
	switch field.(type) {
	case *time.Duration:
		return "duration"
	case *int:
		return "integer"
	case *float64:
		return "number"
	case *bool:
		return "switch"
	default:
		return "text"
	}
}

// value is what a pointer to a field points to.
func value(field any) any {
	switch f := field.(type) {
	case *time.Duration:
		return *f
	case *int:
		return *f
	case *float64:
		return *f
	case *bool:
		return *f
	case *string:
		return *f
	default:
		panic(fmt.Sprintf("config: a field of type %T has no decoder", field))
	}
}

func format(v any) string {
	switch v := v.(type) {
	case time.Duration:
		return Short(v)
	case string:
		if v == "" {
			return `""`
		}
		return v
	default:
		return fmt.Sprint(v)
	}
}

func fullName(name string) string { return Prefix + "." + name }
