// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"sync"
)

import (
	"github.com/nacos-group/nacos-sdk-go/v2/vo"

	"golang.org/x/sync/errgroup"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	// The metadata report that comes with the registry.
	_ "dubbo.apache.org/dubbo-go/v3/metadata/report/nacos"
	// What is decorated.
	_ "dubbo.apache.org/dubbo-go/v3/registry/nacos"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

func init() {
	publishers[constant.NacosKey] = func(l level, u *common.URL) publisher {
		return &nacosPublisher{level: l, url: u}
	}
}

// nacosIDKey is where dubbo-go keeps the id of an instance.
const nacosIDKey = "id"

// nacosPublisher keeps each record as an instance whose metadata carries the marks. A change of them is one more registration
// of the whole publication, which Nacos takes as an update of what is there.
type nacosPublisher struct {
	level level
	url   *common.URL

	mu      sync.Mutex
	conn    *nacosConn
	watch   func()
	unwatch func()
	closed  bool
}

func (p *nacosPublisher) connection() (*nacosConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errNacosClosed
	}
	if p.conn == nil {
		p.conn = openNacos(p.url)
		if p.watch != nil {
			p.unwatch = p.conn.onReconnect(p.watch)
		}
	}
	return p.conn, nil
}

// service is the name that dubbo-go lists the record under.
func (p *nacosPublisher) service(r record) nacosService {
	if p.level == serviceLevel {
		return nacosService{group: nacosGroup(p.url), name: r.instance.GetServiceName()}
	}
	return nacosService{group: nacosGroup(p.url), name: nacosInterfaceName(r.url)}
}

// nacosInterfaceName is providers:<interface>:<version>:<group>.
func nacosInterfaceName(u *common.URL) string { return common.GetSubscribeName(u) }

// param is the record as dubbo-go's own registry would register it, with the marks.
func (p *nacosPublisher) param(r record, m wire.Mark) (vo.RegisterInstanceParam, error) {
	host, portText, err := net.SplitHostPort(r.address())
	if err != nil {
		return vo.RegisterInstanceParam{}, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return vo.RegisterInstanceParam{}, err
	}
	service, metadata := p.service(r), r.metadata(m)
	var weight float64
	if p.level == serviceLevel {
		metadata[nacosIDKey] = r.instance.GetID()
		weight = float64(r.instance.GetWeight())
		if own, parseErr := strconv.ParseFloat(p.url.GetParam(constant.RegistryKey+"."+constant.WeightKey, ""), 64); parseErr == nil {
			weight = math.Trunc(own)
		}
	} else {
		metadata[constant.NacosCategoryKey] = common.DubboNodes[common.PROVIDER]
		metadata[constant.NacosProtocolKey] = r.url.Protocol
		metadata[constant.NacosPathKey] = r.url.Path
		if own, parseErr := strconv.ParseFloat(r.url.GetParam(constant.WeightKey, ""), 64); parseErr == nil {
			weight = own
		}
	}
	if !(weight > constant.MinNacosWeight) {
		weight = constant.DefaultNacosWeight
	}
	return vo.RegisterInstanceParam{
		Ip: host, Port: port, Metadata: metadata, Weight: min(weight, constant.MaxNacosWeight),
		Enable: true, Healthy: true, Ephemeral: true, ServiceName: service.name, GroupName: service.group,
	}, nil
}

// each runs f for every service name once, a bounded number at a time, with the records listed under it.
func (p *nacosPublisher) each(recs []record, f func(c *nacosConn, s nacosService, recs []record) error) error {
	c, err := p.connection()
	if err != nil {
		return err
	}
	var order []nacosService
	byName := make(map[nacosService][]record)
	for _, r := range recs {
		s := p.service(r)
		if _, known := byName[s]; !known {
			order = append(order, s)
		}
		byName[s] = append(byName[s], r)
	}
	var (
		group errgroup.Group
		errs  = make([]error, len(order))
	)
	group.SetLimit(parallel)
	for i, s := range order {
		group.Go(func() error {
			errs[i] = f(c, s, byName[s])
			return nil
		})
	}
	_ = group.Wait() // the functions return nil, errs has what they met
	return errors.Join(errs...)
}

func (p *nacosPublisher) Put(ctx context.Context, recs []record, m wire.Mark) error {
	return p.each(recs, func(c *nacosConn, s nacosService, recs []record) error {
		publication := c.publication(s)
		for _, r := range recs {
			param, err := p.param(r, m)
			if err != nil {
				return fmt.Errorf("%s at %s: %w", r.service(), r.address(), err)
			}
			publication.set(nacosEntry{owner: p, address: r.address()}, param)
		}
		if publication.isWritten() {
			// A change: begin to listen before it is made, so that Shows sees it when consumers do, which for Nacos is half a second
			// later. The first record of a process is not waited for, and a provider need not hear of all others while it serves.
			if _, err := publication.observe(ctx); err != nil {
				return err
			}
		}
		return publication.write(ctx)
	})
}

func (p *nacosPublisher) Remove(ctx context.Context, recs []record) error {
	return p.each(recs, func(c *nacosConn, s nacosService, recs []record) error {
		publication := c.publication(s)
		for _, r := range recs {
			publication.unset(nacosEntry{owner: p, address: r.address()})
		}
		return publication.write(ctx)
	})
}

func (p *nacosPublisher) Shows(ctx context.Context, recs []record, m wire.Mark) error {
	return p.each(recs, func(c *nacosConn, s nacosService, recs []record) error {
		f, err := c.publication(s).observe(ctx)
		if err != nil {
			return err
		}
		for _, r := range recs {
			shown, last := 0, ""
			for _, in := range f.list() {
				if net.JoinHostPort(in.Ip, strconv.FormatUint(in.Port, 10)) != r.address() {
					continue
				}
				mark, _ := wire.MarkFrom(func(key string) string { return in.Metadata[key] })
				if last = mark.Encode(); mark.Start == m.Start && mark.Status == m.Status && mark.Seq == m.Seq {
					shown++
				}
			}
			if shown != 1 {
				return fmt.Errorf("%s at %s: %w: listed %d times as it is, last seen as %q", r.service(), r.address(), errNotShown, shown, last)
			}
		}
		return nil
	})
}

// Watch has f called when the server had been away. The SDK registers again by itself, once, and drops what fails then.
func (p *nacosPublisher) Watch(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = f
}

// Close gives the connection back. Records that are still there stay until it ends, at the latest with the process.
func (p *nacosPublisher) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	conn, unwatch := p.conn, p.unwatch
	p.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	if conn != nil {
		conn.release()
	}
	return nil
}
