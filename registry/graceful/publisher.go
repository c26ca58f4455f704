// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/registry"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

// level says what one record stands for: one exported interface, or the whole instance.
type level uint8

const (
	interfaceLevel level = iota
	serviceLevel
)

func (l level) String() string {
	if l == serviceLevel {
		return "service"
	}
	return "interface"
}

// record is one provider record of this process. On interface level it has a url, on service level an instance; the other
// one is nil. Neither is ever changed by a publisher: the marks are added to a copy.
type record struct {
	url      *common.URL
	instance registry.ServiceInstance
	// tag is a value for dubbo.tag, set only while this instance drains and `drain.vanilla-tag` is on. A publisher whose record
	// cannot carry a tag without becoming another record ignores it.
	tag string
}

// address is ip:port, the key of an instance everywhere.
func (r record) address() string {
	if r.instance != nil {
		return net.JoinHostPort(r.instance.GetHost(), strconv.Itoa(r.instance.GetPort()))
	}
	ip := r.url.Ip
	if ip == "" {
		ip = common.GetLocalIp()
	}
	return net.JoinHostPort(ip, r.url.Port)
}

// service is the name under which the record is listed: interface[:version[:group]] style service key, or the application's name.
func (r record) service() string {
	if r.instance != nil {
		return r.instance.GetServiceName()
	}
	return r.url.ServiceKey()
}

// key tells records apart: the same service at the same address over the same protocol is the same record, whatever its parameters.
func (r record) key() string {
	if r.instance != nil {
		return r.service() + "@" + r.address()
	}
	return r.url.Protocol + "://" + r.address() + "/" + r.service()
}

// metadata is a fresh map with the record's own parameters or metadata and the marks of m, for registries that carry the marks there.
func (r record) metadata(m wire.Mark) map[string]string {
	out := make(map[string]string)
	if r.instance != nil {
		maps.Copy(out, r.instance.GetMetadata())
	} else {
		r.url.RangeParams(func(key, value string) bool {
			if value != "" && !strings.HasPrefix(key, ".") {
				out[key] = value
			}
			return true
		})
		if len(r.url.Methods) > 0 {
			out[constant.MethodsKey] = strings.Join(r.url.Methods, ",")
		}
	}
	m.PutInto(out)
	if r.tag != "" {
		out[constant.Tagkey] = r.tag
	}
	return out
}

// publisher is the only thing in this package that knows how one kind of registry keeps the provider records of one level.
// Its constructor has no effects: the connection is opened by the first Put, and stays the publisher's own until Close.
// Put, Remove and Shows may be called at the same time from several goroutines.
type publisher interface {
	// Put makes the registry hold every record of recs with the mark m, as an upsert: at no moment is a record missing or listed
	// twice. Idempotent; records are written in parallel with a bound. It returns the joined errors of the records that failed,
	// and an error (never a panic, never a wait beyond ctx) while the registry is down.
	Put(ctx context.Context, recs []record, m wire.Mark) error
	// Remove deletes the records, and returns nil only when the registry has confirmed that they are gone. Idempotent.
	Remove(ctx context.Context, recs []record) error
	// Shows reads back: nil if the registry itself lists every record with the mark m at this moment, else an error that names
	// the first one it does not (errNotShown). The caller repeats it.
	Shows(ctx context.Context, recs []record, m wire.Mark) error
	// Watch has f called whenever the connection came back, so records may be lost or old: the decorator then puts all of
	// them again with the current mark. f does not block. Called at most once, before the first Put.
	Watch(f func())
	// Close releases the connection; records that are still there are left to the registry's expiry. Idempotent.
	Close() error
}

// errNotShown: the registry does not (yet) list a record as it was published.
var errNotShown = errors.New("registry does not show the record yet")

// newPublisherFunc builds a publisher without touching the network. u is the delegate's registry URL: protocol and the parameter
// `registry` name the delegate, Location the address(es), registry.group, registry.namespace, timeouts as dubbo-go writes them.
type newPublisherFunc func(l level, u *common.URL) publisher

// publishers has one constructor per delegate; each publisher file adds its own entry in an init.
var publishers = map[string]newPublisherFunc{}

// knownDelegates lists the delegates that can be named, for error messages.
func knownDelegates() string {
	return strings.Join(slices.Sorted(maps.Keys(publishers)), ", ")
}

func newPublisher(delegate string, l level, u *common.URL) (publisher, error) {
	build, ok := publishers[delegate]
	if !ok {
		return nil, fmt.Errorf("%w %q: allowed are %s", ErrDelegate, delegate, knownDelegates())
	}
	return build(l, u), nil
}

// ErrDelegate is returned for a registry whose graceful.delegate is missing or unknown.
var ErrDelegate = errors.New("graceful.delegate")
