// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package draining

import (
	"strings"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/cluster/directory"
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/graceful_shutdown"
	"dubbo.apache.org/dubbo-go/v3/registry"

	"github.com/dubbogo/gost/log/logger"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
)

type newDirectory = func(*common.URL, registry.Registry) (directory.Directory, error)

// quiet makes directories that closing events do not reach. A directory registers for them in its constructor, and then loads its
// first list in the same constructor; the first event can come as soon as there is an invoker. The moment between the two is
// when it asks its registry for that list.
func quiet(build newDirectory) newDirectory {
	return func(url *common.URL, reg registry.Registry) (directory.Directory, error) {
		return build(url, &takeover{Registry: reg, serviceKey: serviceKey(url)})
	}
}

// serviceKey is the key under which the directory of this URL registers.
func serviceKey(url *common.URL) string {
	if url == nil {
		return ""
	}
	if key := url.ServiceKey(); key != "" || url.SubURL == nil {
		return key
	}
	return url.SubURL.ServiceKey()
}

// takeover is the registry that a directory sees.
type takeover struct {
	registry.Registry
	serviceKey string
}

// LoadSubscribeInstances implements registry.Registry.
func (t *takeover) LoadSubscribeInstances(url *common.URL, listener registry.NotifyListener) error {
	if dir, ok := listener.(directory.ClosingInstanceRemover); ok {
		events := graceful_shutdown.DefaultClosingDirectoryRegistry()
		events.Unregister(t.serviceKey, dir)
		events.Register(t.serviceKey, closing)
	}
	return t.Registry.LoadSubscribeInstances(url, listener)
}

// marker takes closing events in the place of the directories.
type marker struct {
	table *instance.Table
}

// closing is one for all services: dubbo-go tells removers apart by their address.
var closing = &marker{table: instance.Default()}

// RemoveClosingInstance implements directory.ClosingInstanceRemover: it removes nothing, and marks the instance as leaving.
func (m *marker) RemoveClosingInstance(instanceKey string) bool {
	addr, ok := addressOf(instanceKey)
	if !ok || m.table.Lookup(addr) == nil {
		return false
	}
	if m.table.MarkDraining(addr, "", instance.FromClosing, time.Now()) {
		logger.Infof("[Graceful][Instance] address=%s status=DRAINING source=%s", addr, instance.FromClosing)
	}
	return true
}

// addressOf reads "ip:port" out of "protocol://user:password@ip:port/?interface=...", the key that dubbo-go gives an invoker.
func addressOf(instanceKey string) (string, bool) {
	_, rest, ok := strings.Cut(instanceKey, "://")
	if !ok {
		return "", false
	}
	rest, _, ok = strings.Cut(rest, "/?")
	if !ok {
		return "", false
	}
	addr := rest[strings.LastIndexByte(rest, '@')+1:]
	return addr, addr != "" && addr != ":"
}
