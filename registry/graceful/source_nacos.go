// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"maps"
	"math"
	"net/url"
	"strconv"
	"time"
)

import (
	"github.com/dubbogo/gost/log/logger"

	"github.com/nacos-group/nacos-sdk-go/v2/model"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/registry"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

func init() {
	interfaceSources[constant.NacosKey] = func(r *interfaceRegistry, ref *common.URL) source {
		return &nacosSource{
			url: r.node.url, service: nacosService{group: nacosGroup(r.node.url), name: nacosInterfaceName(ref)},
			parse: func(in model.Instance) (item, bool) { return nacosInterfaceItem(ref, in) },
		}
	}
	serviceSources[constant.NacosKey] = func(d *serviceDiscovery, name string) source {
		group := nacosGroup(d.url)
		return &nacosSource{
			url: d.url, service: nacosService{group: group, name: name},
			parse: func(in model.Instance) (item, bool) { return nacosServiceItem(group, name, in), true },
		}
	}
}

// nacosSource makes lists out of what Nacos pushes. dubbo-go's own subscription ends for good when the server does not answer
// one question, which it asks each 5 s, and can never be ended.
type nacosSource struct {
	url     *common.URL
	service nacosService
	parse   func(model.Instance) (item, bool)
}

func (s *nacosSource) follow(ctx context.Context, emit func([]item)) {
	c := openNacos(s.url)
	defer c.release()
	wake := make(chan struct{}, 1)
	for pause := firstRetry; ctx.Err() == nil; pause = min(2*pause, maxRetry) {
		f, err := c.follow(ctx, s.service, wake)
		if err == nil {
			s.listen(ctx, f, wake, emit)
			f.leave(wake)
			return
		}
		if ctx.Err() != nil {
			return
		}
		logger.Warnf("[Graceful][Nacos] cannot follow service=%s, trying again in %s: %v", s.service, pause, err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (s *nacosSource) listen(ctx context.Context, f *nacosFollow, wake <-chan struct{}, emit func([]item)) {
	for {
		emit(s.items(f.list()))
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
	}
}

func (s *nacosSource) items(list []model.Instance) []item {
	items := make([]item, 0, len(list))
	for _, in := range list {
		if it, ok := s.parse(in); ok {
			if started, known := wire.StartTime(it.mark.Start); known {
				it.order = started.UnixMilli()
			} else {
				it.order = it.timestamp
			}
			items = append(items, it)
		}
	}
	return items
}

// query has the SDK ask the server, whatever it knows.
func (s *nacosSource) query(ctx context.Context) ([]item, error) {
	c := openNacos(s.url)
	defer c.release()
	f, err := c.follow(ctx, s.service, nil)
	if err != nil {
		return nil, err
	}
	defer f.leave(nil)
	if err = c.do(ctx, f.renew); err != nil {
		return nil, err
	}
	return s.items(f.list()), nil
}

// nacosInterfaceItem reads an instance of interface level that the reference ref asks for.
func nacosInterfaceItem(ref *common.URL, in model.Instance) (item, bool) {
	if !in.Enable || !in.Healthy {
		return item{}, false // as dubbo-go has it
	}
	protocolName, path := in.Metadata[constant.NacosProtocolKey], in.Metadata[constant.NacosPathKey]
	if path == "" && in.Metadata[constant.InterfaceKey] != "" {
		path = "/" + in.Metadata[constant.InterfaceKey]
	}
	if protocolName == "" || path == "" {
		logger.Warnf("[Graceful][Nacos] instance=%s:%d of service=%s has no protocol or no path", in.Ip, in.Port, in.ServiceName)
		return item{}, false
	}
	params := make(url.Values, len(in.Metadata))
	for k, v := range in.Metadata {
		params.Set(k, v)
	}
	return interfaceItem(ref, common.NewURLWithOptions(
		common.WithIp(in.Ip), common.WithPort(strconv.FormatUint(in.Port, 10)), common.WithProtocol(protocolName),
		common.WithParams(params), common.WithPath(path),
	), wire.Mark{})
}

// nacosServiceItem reads an instance of service level.
func nacosServiceItem(group, name string, in model.Instance) item {
	metadata := maps.Clone(in.Metadata)
	id := metadata[nacosIDKey]
	delete(metadata, nacosIDKey)
	return serviceItem(&registry.DefaultServiceInstance{
		ID: id, ServiceName: name, Host: in.Ip, Port: int(in.Port), Weight: int64(math.Round(in.Weight)), Enable: in.Enable,
		Healthy: true, Metadata: metadata, GroupName: group, Tag: metadata[constant.Tagkey],
	})
}
