// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"encoding/json"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

import (
	gxset "github.com/dubbogo/gost/container/set"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/registry"
)

import (
	"github.com/dubbogo/graceful/internal/settings"
	"github.com/dubbogo/graceful/internal/wire"
)

// interfaceItem makes an item of a provider URL that the reference ref asks for; false if it asks for something else. The
// marks are those of the URL's parameters, or the given ones where the registry keeps them beside the URL.
func interfaceItem(ref, u *common.URL, beside wire.Mark) (item, bool) {
	if !asksFor(ref, u) {
		return item{}, false
	}
	mark, _ := wire.MarkFrom(func(key string) string { return u.GetParam(key, "") })
	if beside.Status != wire.Unknown || beside.Start != "" {
		if beside.Warmup == "" {
			beside.Warmup = mark.Warmup
		}
		mark = beside
	}
	u = withoutMarks(ref, u)
	address := net.JoinHostPort(u.Ip, u.Port)
	return item{
		key:       u.Protocol + "://" + address + "/" + u.ServiceKey(),
		addresses: []string{address},
		services:  flightKeys(u.ServiceKey(), u.Service()),
		mark:      mark,
		timestamp: unixMilli(u.GetParam(constant.TimestampKey, "")),
		release:   u.GetParam(constant.ReleaseKey, ""),
		url:       u,
		content:   u.String(),
	}, true
}

// asksFor tells whether a reference takes this provider. dubbo-go looks at the protocol only where it gets a single event,
// not where it gets a list.
func asksFor(ref, u *common.URL) bool {
	if ref.Protocol != "" && u.Protocol != ref.Protocol {
		return false
	}
	if u.ServiceKey() == ref.ServiceKey() {
		return true
	}
	name, group, version := common.ParseServiceKey(ref.ServiceKey())
	return common.IsAnyCondition(name, group, version, u)
}

// withoutMarks is the URL as it is handed on: a change of a mark must not look like another provider. Every provider
// publishes a load balancer, mostly without anybody having asked for it, and dubbo-go lets it win over the reference's:
// it is taken out where the reference or our own setting names one.
func withoutMarks(ref, u *common.URL) *common.URL {
	out := gxset.NewSet()
	u.RangeParams(func(key, value string) bool {
		if wire.IsMark(key, value) {
			out.Add(key)
		}
		return true
	})
	if ref.GetParam(constant.LoadbalanceKey, "") != "" || settings.Get().Loadbalance != "" {
		out.Add(constant.LoadbalanceKey)
	}
	if u.GetParam(constant.Tagkey, "") == drainTag {
		out.Add(constant.Tagkey) // it is for consumers that do not know the mark
	}
	if out.Empty() {
		return u
	}
	return u.CloneExceptParams(out)
}

// serviceItem makes an item of an instance. The instance is not changed: registries hand out what they keep themselves.
func serviceItem(in registry.ServiceInstance) item {
	metadata := in.GetMetadata()
	mark, _ := wire.MarkFrom(func(key string) string { return metadata[key] })
	address := net.JoinHostPort(in.GetHost(), strconv.Itoa(in.GetPort()))
	addresses := []string{address}
	for _, e := range endpoints(metadata[constant.ServiceInstanceEndpoints]) {
		if a := net.JoinHostPort(in.GetHost(), strconv.Itoa(e.Port)); e.Port > 0 && !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	plain := make(map[string]string, len(metadata))
	for k, v := range metadata {
		if !wire.IsMark(k, v) && !(k == constant.Tagkey && v == drainTag) {
			plain[k] = v
		}
	}
	copied := copyInstance(in, plain)
	if copied.Tag == drainTag {
		copied.Tag = "" // it is for consumers that do not know the mark
	}
	return item{
		key:       in.GetServiceName() + "@" + address,
		addresses: addresses,
		mark:      mark,
		timestamp: unixMilli(metadata[constant.TimestampKey]),
		release:   metadata[constant.ReleaseKey],
		instance:  copied,
		content:   describe(copied) + "\n" + mark.Start,
	}
}

// copyInstance is an instance of our own with that metadata.
func copyInstance(in registry.ServiceInstance, metadata map[string]string) *registry.DefaultServiceInstance {
	out := &registry.DefaultServiceInstance{
		ID: in.GetID(), ServiceName: in.GetServiceName(), Host: in.GetHost(), Port: in.GetPort(),
		Enable: in.IsEnable(), Healthy: in.IsHealthy(), Weight: in.GetWeight(), Tag: in.GetTag(),
		Metadata: metadata, ServiceMetadata: in.GetServiceMetadata(),
	}
	if d, ok := in.(*registry.DefaultServiceInstance); ok {
		out.Weight, out.GroupName, out.Address = d.Weight, d.GroupName, d.Address
	}
	return out
}

// describe writes down everything of an instance that a consumer can see.
func describe(in *registry.DefaultServiceInstance) string {
	var b strings.Builder
	b.WriteString(in.ID)
	for _, s := range []string{in.ServiceName, in.Host, strconv.Itoa(in.Port), strconv.FormatInt(in.Weight, 10), in.Tag, in.GroupName, strconv.FormatBool(in.Enable), strconv.FormatBool(in.Healthy)} {
		b.WriteByte('\n')
		b.WriteString(s)
	}
	for _, k := range slices.Sorted(maps.Keys(in.Metadata)) {
		b.WriteByte('\n')
		b.WriteString(k)
		b.WriteByte('=')
		b.WriteString(in.Metadata[k])
	}
	return b.String()
}

func endpoints(raw string) []registry.Endpoint {
	if raw == "" {
		return nil
	}
	var out []registry.Endpoint
	if err := json.Unmarshal([]byte(raw), &out); err != nil {
		return nil // dubbo-go logs it when it reads them
	}
	return out
}

// unixMilli reads a timestamp parameter: seconds from dubbo-go, milliseconds from Java. 0 if there is none.
func unixMilli(value string) int64 {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n <= 0 {
		return 0
	}
	const firstMilli = 100_000_000_000 // as seconds the year 5138, as milliseconds 1973
	if n < firstMilli {
		return n * 1000
	}
	return n
}
