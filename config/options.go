// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"
)

// Option changes one setting. There is one for each key, for applications that are configured in code; what the key
// means and what is allowed stands at the field of Settings and in the README's table.
type Option func(*Settings)

// Apply lays options over the settings and remembers which keys they gave a value.
func (s *Settings) Apply(opts ...Option) {
	for _, opt := range opts {
		before := *s
		opt(s)
		// An Option that the caller wrote himself does not tell which field it changes.
		for i, k := range keys {
			if value(k.field(&before)) != value(k.field(s)) {
				s.set |= 1 << i
			}
		}
	}
}

// IsSet reports whether the key (without the prefix) was given a value, also if that is the default.
func (s *Settings) IsSet(name string) bool {
	i, ok := byName[name]
	return ok && s.set&(1<<i) != 0
}

func option(name string, change func(*Settings)) Option {
	bit := uint64(1) << byName[name]
	return func(s *Settings) {
		change(s)
		s.set |= bit
	}
}

// WithLoadbalance is graceful.loadbalance.
func WithLoadbalance(name string) Option {
	return option("loadbalance", func(s *Settings) { s.Loadbalance = name })
}

// WithRetryEnabled is graceful.retry.enabled.
func WithRetryEnabled(on bool) Option {
	return option("retry.enabled", func(s *Settings) { s.Retry.Enabled = on })
}

// WithHealthCheckInterval is graceful.health.check.interval.
func WithHealthCheckInterval(d time.Duration) Option {
	return option("health.check.interval", func(s *Settings) { s.HealthCheck.Interval = d })
}

// WithDrainTimeout is graceful.drain.timeout.
func WithDrainTimeout(d time.Duration) Option {
	return option("drain.timeout", func(s *Settings) { s.Drain.Timeout = d })
}

// WithDrainQuiet is graceful.drain.quiet.
func WithDrainQuiet(d time.Duration) Option {
	return option("drain.quiet", func(s *Settings) { s.Drain.Quiet = d })
}

// WithDrainMinWait is graceful.drain.min-wait.
func WithDrainMinWait(d time.Duration) Option {
	return option("drain.min-wait", func(s *Settings) { s.Drain.MinWait = d })
}

// WithDrainSettleTimeout is graceful.drain.settle-timeout.
func WithDrainSettleTimeout(d time.Duration) Option {
	return option("drain.settle-timeout", func(s *Settings) { s.Drain.SettleTimeout = d })
}

// WithDrainCallerWindow is graceful.drain.caller-window.
func WithDrainCallerWindow(d time.Duration) Option {
	return option("drain.caller-window", func(s *Settings) { s.Drain.CallerWindow = d })
}

// WithDrainInboundTimeout is graceful.drain.inbound-timeout.
func WithDrainInboundTimeout(d time.Duration) Option {
	return option("drain.inbound-timeout", func(s *Settings) { s.Drain.InboundTimeout = d })
}

// WithDrainOutboundTimeout is graceful.drain.outbound-timeout.
func WithDrainOutboundTimeout(d time.Duration) Option {
	return option("drain.outbound-timeout", func(s *Settings) { s.Drain.OutboundTimeout = d })
}

// WithDrainVanillaTag is graceful.drain.vanilla-tag.
func WithDrainVanillaTag(on bool) Option {
	return option("drain.vanilla-tag", func(s *Settings) { s.Drain.VanillaTag = on })
}

// WithWarmupWindow is graceful.warmup.window.
func WithWarmupWindow(d time.Duration) Option {
	return option("warmup.window", func(s *Settings) { s.Warmup.Window = d })
}

// WithWarmupCurve is graceful.warmup.curve.
func WithWarmupCurve(exponent float64) Option {
	return option("warmup.curve", func(s *Settings) { s.Warmup.Curve = exponent })
}

// WithWarmupFloor is graceful.warmup.floor.
func WithWarmupFloor(share float64) Option {
	return option("warmup.floor", func(s *Settings) { s.Warmup.Floor = share })
}

// WithWarmupRequests is graceful.warmup.requests.
func WithWarmupRequests(n int) Option {
	return option("warmup.requests", func(s *Settings) { s.Warmup.Requests = n })
}

// WithWarmupPolicy is graceful.warmup.policy.
func WithWarmupPolicy(policy string) Option {
	return option("warmup.policy", func(s *Settings) { s.Warmup.Policy = policy })
}

// WithBlacklistConnectErrors is graceful.blacklist.connect-errors.
func WithBlacklistConnectErrors(n int) Option {
	return option("blacklist.connect-errors", func(s *Settings) { s.Blacklist.ConnectErrors = n })
}

// WithBlacklistTransportErrors is graceful.blacklist.transport-errors.
func WithBlacklistTransportErrors(n int) Option {
	return option("blacklist.transport-errors", func(s *Settings) { s.Blacklist.TransportErrors = n })
}

// WithBlacklistTimeoutErrors is graceful.blacklist.timeout-errors.
func WithBlacklistTimeoutErrors(n int) Option {
	return option("blacklist.timeout-errors", func(s *Settings) { s.Blacklist.TimeoutErrors = n })
}

// WithBlacklistBase is graceful.blacklist.base.
func WithBlacklistBase(d time.Duration) Option {
	return option("blacklist.base", func(s *Settings) { s.Blacklist.Base = d })
}

// WithBlacklistMax is graceful.blacklist.max.
func WithBlacklistMax(d time.Duration) Option {
	return option("blacklist.max", func(s *Settings) { s.Blacklist.Max = d })
}

// WithBlacklistMaxPercent is graceful.blacklist.max-percent.
func WithBlacklistMaxPercent(percent int) Option {
	return option("blacklist.max-percent", func(s *Settings) { s.Blacklist.MaxPercent = percent })
}

// WithBlacklistPanicPercent is graceful.blacklist.panic-percent.
func WithBlacklistPanicPercent(percent int) Option {
	return option("blacklist.panic-percent", func(s *Settings) { s.Blacklist.PanicPercent = percent })
}

// WithBlacklistNoticeTime is graceful.blacklist.notice-time.
func WithBlacklistNoticeTime(d time.Duration) Option {
	return option("blacklist.notice-time", func(s *Settings) { s.Blacklist.NoticeTime = d })
}

// WithBlacklistLoadbalance is graceful.blacklist.loadbalance.
func WithBlacklistLoadbalance(name string) Option {
	return option("blacklist.loadbalance", func(s *Settings) { s.Blacklist.Loadbalance = name })
}

// WithRegisterDelay is graceful.register.delay.
func WithRegisterDelay(d time.Duration) Option {
	return option("register.delay", func(s *Settings) { s.Register.Delay = d })
}

// WithRegisterTimeout is graceful.register.timeout.
func WithRegisterTimeout(d time.Duration) Option {
	return option("register.timeout", func(s *Settings) { s.Register.Timeout = d })
}

// WithRegisterOnTimeout is graceful.register.on-timeout.
func WithRegisterOnTimeout(what string) Option {
	return option("register.on-timeout", func(s *Settings) { s.Register.OnTimeout = what })
}

// WithShutdownLinger is graceful.shutdown.linger.
func WithShutdownLinger(d time.Duration) Option {
	return option("shutdown.linger", func(s *Settings) { s.Shutdown.Linger = d })
}

// WithShutdownExitCode is graceful.shutdown.exit-code.
func WithShutdownExitCode(code int) Option {
	return option("shutdown.exit-code", func(s *Settings) { s.Shutdown.ExitCode = code })
}

// WithShutdownTimeout is graceful.shutdown.timeout.
func WithShutdownTimeout(d time.Duration) Option {
	return option("shutdown.timeout", func(s *Settings) { s.Shutdown.Timeout = d })
}

// WithShutdownGracePeriod is graceful.shutdown.grace-period.
func WithShutdownGracePeriod(d time.Duration) Option {
	return option("shutdown.grace-period", func(s *Settings) { s.Shutdown.GracePeriod = d })
}

// WithShutdownCallbackTimeout is graceful.shutdown.callback-timeout.
func WithShutdownCallbackTimeout(d time.Duration) Option {
	return option("shutdown.callback-timeout", func(s *Settings) { s.Shutdown.CallbackTimeout = d })
}

// WithRegistryHoldTimeout is graceful.registry.hold-timeout.
func WithRegistryHoldTimeout(d time.Duration) Option {
	return option("registry.hold-timeout", func(s *Settings) { s.Registry.HoldTimeout = d })
}
