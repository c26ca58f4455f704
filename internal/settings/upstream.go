// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/global"
)

import (
	"github.com/dubbogo/graceful/config"
)

// upstreamKey is a key of dubbo.shutdown that has a counterpart here.
type upstreamKey struct {
	name  string // below dubbo.shutdown
	ours  string
	value func(*global.ShutdownConfig) string
	apply func(*config.Settings, time.Duration)
}

// upstreamKeys: what each key of dubbo-go's own shutdown means in our phases.
//
//   - timeout bounds the whole shutdown, as ours does. dubbo-go raises it to 60 s at least, we do not.
//   - step-timeout bounds the wait for inbound and then for outbound requests.
//   - consumer-update-wait-time is a fixed wait after the unregister in which requests are still served: our least wait.
//   - offline-request-window-timeout is how long no request may have come, so that the callers count as gone.
//   - notify-timeout bounds the time in which consumers learn of the closing: our announcing and quiescing.
//   - closing-invoker-expire-time is how long a consumer believes that an instance is closing.
//   - reject-handler and internal-signal have no counterpart among the settings: the coordinator reads the
//     last from Shutdown.
var upstreamKeys = []upstreamKey{
	{"timeout", "shutdown.timeout",
		func(c *global.ShutdownConfig) string { return c.Timeout },
		func(s *config.Settings, d time.Duration) { s.Shutdown.Timeout = d }},
	{"step-timeout", "drain.inbound-timeout",
		func(c *global.ShutdownConfig) string { return c.StepTimeout },
		func(s *config.Settings, d time.Duration) { s.Drain.InboundTimeout = d }},
	{"step-timeout", "drain.outbound-timeout",
		func(c *global.ShutdownConfig) string { return c.StepTimeout },
		func(s *config.Settings, d time.Duration) { s.Drain.OutboundTimeout = d }},
	{"consumer-update-wait-time", "drain.min-wait",
		func(c *global.ShutdownConfig) string { return c.ConsumerUpdateWaitTime },
		func(s *config.Settings, d time.Duration) { s.Drain.MinWait = d }},
	{"offline-request-window-timeout", "drain.quiet",
		func(c *global.ShutdownConfig) string { return c.OfflineRequestWindowTimeout },
		func(s *config.Settings, d time.Duration) { s.Drain.Quiet = d }},
	{"notify-timeout", "drain.timeout",
		func(c *global.ShutdownConfig) string { return c.NotifyTimeout },
		func(s *config.Settings, d time.Duration) { s.Drain.Timeout = d }},
	{"closing-invoker-expire-time", "blacklist.notice-time",
		func(c *global.ShutdownConfig) string { return c.ClosingInvokerExpireTime },
		func(s *config.Settings, d time.Duration) { s.Blacklist.NoticeTime = d }},
}

// withUpstream gives the keys of dubbo.shutdown their meaning where they differ from dubbo-go's defaults and the key of
// ours is not set. A value that equals the default is taken for a default, because by now nobody can tell the difference.
// One that dubbo-go itself cannot read (it logs that) changes nothing. notes say what was taken over and what was not.
func withUpstream(s config.Settings, shutdown *global.ShutdownConfig) (_ config.Settings, notes []string) {
	if shutdown == nil {
		return s, nil
	}
	defaults := global.DefaultShutdownConfig()
	for _, k := range upstreamKeys {
		d, err := time.ParseDuration(k.value(shutdown))
		if err != nil || s.IsSet(k.ours) {
			continue
		}
		if standard, err := time.ParseDuration(k.value(defaults)); err == nil && d == standard {
			continue
		}
		// A grace period of ours says more about the budget than dubbo-go's key, which knows nothing of the platform.
		if k.ours == "shutdown.timeout" && s.IsSet("shutdown.grace-period") {
			continue
		}
		changed := s
		k.apply(&changed, d)
		if err := changed.Validate(); err != nil {
			notes = append(notes, fmt.Sprintf("dubbo.shutdown.%s is ignored, err=%v", k.name, err))
			continue
		}
		s = changed
		notes = append(notes, fmt.Sprintf("dubbo.shutdown.%s=%s counts as graceful.%s", k.name, config.Short(d), k.ours))
	}
	return s, notes
}
