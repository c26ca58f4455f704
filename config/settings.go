// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"
)

// Settings is everything that can be set under dubbo.custom.config-map.graceful in dubbogo.yml, or with the Options of
// this package. Default returns the values that hold where nothing is set.
type Settings struct {
	// Loadbalance is the load balancer of every reference that names none itself.
	// Default "": dubbo-go's own default stays, because importing a module must not change how traffic is spread.
	Loadbalance string

	Retry       Retry
	HealthCheck HealthCheck
	Drain       Drain
	Warmup      Warmup
	Blacklist   Blacklist
	Register    Register
	Shutdown    Shutdown
	Registry    Registry

	// set has one bit for each key (its index in the table of keys) that an Option or Decode gave a value.
	set uint64
}

// Retry sets the transparent retry of requests that were certainly not executed.
type Retry struct {
	// Enabled switches it. Default true: a request that no handler saw can be sent again without any risk.
	Enabled bool
}

// HealthCheck sets the background dials that a consumer makes to instances it has ejected.
type HealthCheck struct {
	// Interval between two dials to one instance.
	// Default 10s: one packet each ten seconds is no load, and a restart is seen soon enough when the registry is silent.
	Interval time.Duration
}

// Drain sets how a leaving provider waits for its callers and for the work in flight.
type Drain struct {
	// Timeout bounds the wait until every known caller that has this module has moved and the registry shows DRAINING.
	// Default 3s: registries push within 0.6 s, and a caller sees the mark with its next response; five times that is ample.
	Timeout time.Duration

	// Quiet is how long no request may have come from a caller for it to count as moved.
	// Default 200ms: longer than the push of ZooKeeper and etcd takes, short enough for an exit within half a second.
	Quiet time.Duration

	// MinWait is the least time between the unregister and the first rejection, whatever the callers do.
	// Default 0: the waits are driven by what callers do, a fixed sleep only adds to them.
	MinWait time.Duration

	// SettleTimeout bounds the wait for callers without this module after the unregister.
	// Default 8s: Dubbo Java delays removals from ZooKeeper by up to 5 s.
	SettleTimeout time.Duration

	// CallerWindow is how far back a request makes its sender a caller that is waited for.
	// Default 60s: longer than the usual pause of a caller with little traffic, and than a minute's cron job.
	CallerWindow time.Duration

	// InboundTimeout bounds the wait for requests that are being served.
	// Default 0, the rest of the budget: a request that was accepted is worth all the time that is left.
	InboundTimeout time.Duration

	// OutboundTimeout bounds the wait for the requests that this process has sent itself.
	// Default 3s: dubbo-go's default request timeout. Background jobs never stop, so it cannot be the whole budget.
	OutboundTimeout time.Duration

	// VanillaTag lets a draining provider publish dubbo.tag, which moves consumers without this module before the unregister.
	// Default false: when all instances are tagged such a consumer's list is empty, so it has to be wanted.
	VanillaTag bool
}

// Warmup sets the weight of an instance that has just started.
type Warmup struct {
	// Window is how long an instance takes to its full weight.
	// Default 2m: caches, pools and the code paths of most services are warm by then; Dubbo Java uses 10 minutes for its JIT.
	Window time.Duration

	// Curve is the exponent of the weight's growth: 1 is linear, above 1 starts slower, below 1 faster.
	// Default 1: the only shape that needs no knowledge of the application.
	Curve float64

	// Floor is the least share of the full weight, so that a new instance gets any traffic at all.
	// Default 0.1: enough to warm up with, little enough to harm nobody.
	Floor float64

	// Requests that an instance must have served as well before it is warm, at the latest at twice the window.
	// Default 100: time alone warms nothing.
	Requests int

	// Policy chooses between the instances by their weights.
	// Default "random": weighted random has no state that could herd callers onto a new instance.
	Policy string
}

// Blacklist sets how a consumer ejects instances that fail. A number of errors of 0 switches ejections for that class off.
type Blacklist struct {
	// ConnectErrors is how many connections in a row must be refused. Default 1: nothing listens there, the next would be refused too.
	ConnectErrors int

	// TransportErrors is how many connections in a row must break under a request.
	// Default 1: a live process does not reset connections, and the half-open trial brings it back within seconds.
	TransportErrors int

	// TimeoutErrors is how many requests in a row must time out. Default 5: one slow request is no slow instance.
	TimeoutErrors int

	// Base is the length of the first ejection. Default 1s: a restart takes about that long.
	Base time.Duration

	// Max is the longest ejection. Default 60s: a healed instance serves again within a minute.
	Max time.Duration

	// MaxPercent of the candidates may be left out for broken connections and timeouts; if it were more, none is. One of two always may.
	// Default 50: the other half can take over twice its load, less could not.
	MaxPercent int

	// PanicPercent of the list must be usable, or ejections are ignored.
	// Default 20: when so few are left the judgement is more likely wrong than the instances.
	PanicPercent int

	// NoticeTime is how long an instance that announced its leaving is left out if nothing more is heard of it.
	// Default 2m: longer than any drain, shorter than a forgotten mark may keep capacity away.
	NoticeTime time.Duration

	// Loadbalance chooses among the instances that are left.
	// Default "warmup": an instance that comes back deserves its small share first.
	Loadbalance string
}

// Register sets when a provider enters the registries.
type Register struct {
	// Delay between ready and registered. Default 0: readiness is checked, not guessed.
	Delay time.Duration

	// Timeout bounds the wait for listeners, references and readiness checks.
	// Default 10s: longer than connections take to come up, short enough for a start that waits for itself to be noticed.
	Timeout time.Duration

	// OnTimeout is what happens then: "register" with a warning, or "stop" the start.
	// Default "register": two services that need each other would else never start.
	OnTimeout string
}

// Shutdown sets the frame of the whole shutdown.
type Shutdown struct {
	// Linger is how long after the last request the connections stay open.
	// Default 100ms: a filter returns before its response is written.
	Linger time.Duration

	// ExitCode of the process when requests being served were cut off. Default 1: an orchestrator should see that.
	ExitCode int

	// Timeout is the one budget of all phases. Default 0: 60 s, or the grace period less 5 s where there is one.
	Timeout time.Duration

	// GracePeriod is how long the platform waits between SIGTERM and SIGKILL (terminationGracePeriodSeconds).
	// Default 0: 30 s in Kubernetes, which is its default, and none elsewhere.
	GracePeriod time.Duration

	// CallbackTimeout bounds each shutdown callback. Default 5s: closing pools takes less; one that hangs must not hold the exit.
	CallbackTimeout time.Duration
}

// Registry sets the consumer side of the registry decorator.
type Registry struct {
	// HoldTimeout is how long the removal of an instance is held back while requests to it are in flight.
	// Default 30s: as long as the longest calls usually take.
	HoldTimeout time.Duration
}
