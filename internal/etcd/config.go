// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
)

const (
	// TTLKey is the registry parameter for the time to live of the lease: so long do the records of a killed process stay.
	TTLKey = "etcd.lease-ttl"
	// DefaultTTL is a third of upstream's 30 s, which a killed provider should not stay listed for. It must be well above the
	// pauses of a healthy server (a leader election takes 1-2 s), since a lease that is lost in vain takes every record with it.
	DefaultTTL = 10 * time.Second
	minTTL     = 2 * time.Second // etcd raises anything shorter to its own minimum of 1.5 election timeouts
	maxTTL     = 10 * time.Minute
)

// ErrConfig is returned for a registry URL that no store can be built from.
var ErrConfig = errors.New("etcd registry address")

// Config says how to reach etcd. It is comparable: equal configs share a store.
type Config struct {
	Endpoints string // comma separated host:port
	Username  string
	Password  string
	// Timeout bounds each operation whose context has no deadline of its own.
	Timeout time.Duration
	TTL     time.Duration
}

// ConfigOf reads the registry URL as dubbo-go writes it: Location has the addresses, registry.timeout the timeout.
func ConfigOf(u *common.URL) (Config, error) {
	cfg := Config{
		Username: u.Username,
		Password: u.Password,
		Timeout:  u.GetParamDuration(constant.RegistryTimeoutKey, constant.DefaultRegTimeout),
		TTL:      DefaultTTL,
	}
	var endpoints []string
	for e := range strings.SplitSeq(u.Location, constant.CommaSeparator) {
		if e = strings.TrimSpace(e); e != "" {
			endpoints = append(endpoints, e)
		}
	}
	if len(endpoints) == 0 {
		return Config{}, fmt.Errorf("%w %q: want host:port[,host:port...]", ErrConfig, u.Location)
	}
	cfg.Endpoints = strings.Join(endpoints, constant.CommaSeparator)
	if cfg.Timeout <= 0 {
		return Config{}, fmt.Errorf("%w: %s=%q: want a duration above 0, such as 5s", ErrConfig, constant.RegistryTimeoutKey,
			u.GetParam(constant.RegistryTimeoutKey, ""))
	}
	if v := u.GetParam(TTLKey, ""); v != "" {
		ttl, err := time.ParseDuration(v)
		if err != nil || ttl < minTTL || ttl > maxTTL {
			return Config{}, fmt.Errorf("%w: %s=%q: want a duration from %s to %s, such as 10s", ErrConfig, TTLKey, v, minTTL, maxTTL)
		}
		cfg.TTL = ttl
	}
	return cfg, nil
}
