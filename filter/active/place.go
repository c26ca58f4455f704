// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"sync"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
)

import (
	"github.com/dubbogo/graceful/internal/instant"
)

// places keeps what a filter needs to know of each invoker that it stands before, so that a request reads no URL. The key is the
// next invoker in the chain, which differs for each place in it even where the same filter stands there twice.
type places[T any] struct {
	known sync.Map // base.Invoker -> *T

	mu    sync.Mutex
	first map[*common.URL]base.Invoker // the outermost place of ours in the chain of that URL
	all   map[base.Invoker]*common.URL
	limit int // size at which the dead are looked for
}

// sweepFrom is the least number of places at which it is worth looking for invokers that were destroyed.
const sweepFrom = 256

func (p *places[T]) get(invoker base.Invoker, make func(url *common.URL, outermost bool) *T) *T {
	if v, ok := p.known.Load(invoker); ok {
		return v.(*T)
	}
	return p.add(invoker, make)
}

// add is called by the first request that comes this way. It passes the outermost place before the inner ones, hence whoever is
// first with a URL is the outermost.
func (p *places[T]) add(invoker base.Invoker, make func(*common.URL, bool) *T) *T {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v, ok := p.known.Load(invoker); ok {
		return v.(*T)
	}
	url := invoker.GetURL()
	if nowhere(url) {
		return make(url, true) // destroyed already, and nothing to remember
	}
	if p.first == nil {
		p.first, p.all, p.limit = map[*common.URL]base.Invoker{}, map[base.Invoker]*common.URL{}, sweepFrom
	}
	if len(p.all) >= p.limit {
		p.sweep()
	}
	if p.first[url] == nil {
		p.first[url] = invoker
	}
	p.all[invoker] = url
	t := make(url, p.first[url] == invoker)
	p.known.Store(invoker, t)
	return t
}

// sweep drops the invokers that were destroyed: dubbo-go takes their URL away.
func (p *places[T]) sweep() {
	for invoker, url := range p.all {
		if invoker.GetURL() != url {
			delete(p.all, invoker)
			delete(p.first, url)
			p.known.Delete(invoker)
		}
	}
	p.limit = max(sweepFrom, 2*len(p.all))
}

// clock is time.Now for a request: it reads the monotonic clock only, which costs two thirds.
func clock() time.Time { return instant.Now().Time() }

// internal tells whether a service is part of the framework. Such calls are no work of the application: a health watch that every
// Triple consumer holds open would keep a provider from ever being idle.
func internal(service string) bool {
	switch service {
	case constant.HealthCheckServiceInterface, // Triple, and grpc
		constant.ReflectionServiceInterface, "grpc.reflection.v1.ServerReflection",
		constant.MetadataServiceName, constant.MetadataServiceV2Name:
		return true
	default:
		return false
	}
}

// attempted tells whether requests through an invoker of this URL go to one instance. Others stand for a cluster, which attempts.
func attempted(url *common.URL) bool {
	return url != nil && !nowhere(url) && url.SubURL == nil &&
		url.Protocol != constant.RegistryProtocol && url.Protocol != constant.ServiceRegistryProtocol
}

// nowhere tells whether a URL has no address, as that of a destroyed invoker.
func nowhere(url *common.URL) bool { return url.Location == "" || url.Location == ":" }
