// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
)

import (
	"github.com/dubbogo/go-zookeeper/zk"

	"golang.org/x/sync/errgroup"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/remoting/zookeeper/curator_discovery"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

// parallel bounds how many records are written at the same time.
const parallel = 16

func init() {
	publishers[constant.ZookeeperKey] = newZkPublisher
}

// zkPublisher keeps one ephemeral node per record, made by itself and WITH its data: dubbo-go's own registration has no
// data, and is deleted and made again by dubbo-go at every reconnect. Interface level: the node's name is the encoded
// URL as dubbo-go and Java write it, its data are the marks, which neither of them reads. Service level: the curator
// JSON that both read, with the marks among the metadata.
type zkPublisher struct {
	level level
	root  string

	conn     *zkConn
	mu       sync.Mutex
	unwatch  func()
	released bool
}

func newZkPublisher(l level, u *common.URL) publisher {
	return &zkPublisher{level: l, root: zkRoot(l, u), conn: openZk(u)}
}

// zkRoot is the directory below which the records of a level are kept.
func zkRoot(l level, u *common.URL) string {
	group := u.GetParam(constant.RegistryGroupKey, map[level]string{interfaceLevel: "dubbo", serviceLevel: "services"}[l])
	return "/" + strings.Trim(group, "/")
}

// zkProviders is the directory of the providers of an interface.
func zkProviders(root string, u *common.URL) string {
	return root + "/" + strings.ReplaceAll(url.QueryEscape(u.Service()), "$", "%24") + "/" + common.DubboNodes[common.PROVIDER]
}

// node is where and what a record is.
func (p *zkPublisher) node(r record, m wire.Mark) (dir, name string, data []byte, err error) {
	if p.level == interfaceLevel {
		return zkProviders(p.root, r.url), encodedURL(r), []byte(m.Encode()), nil
	}
	in := r.instance
	id := r.address()
	tag := in.GetTag()
	if r.tag != "" {
		tag = r.tag
	}
	metadata := r.metadata(m)
	data, err = json.Marshal(&curator_discovery.ServiceInstance{
		Name: in.GetServiceName(), ID: id, Address: in.GetHost(), Port: in.GetPort(), Tag: tag,
		Payload: map[string]any{
			"id": id, "name": in.GetServiceName(), "metadata": metadata,
			"@class": "org.apache.dubbo.registry.zookeeper.ZookeeperInstance",
		},
	})
	return p.root + "/" + in.GetServiceName(), id, data, err
}

// encodedURL is the node name dubbo-go gives a provider URL (registry.BaseRegistry): parameters without values are left
// out, and what is encoded is the URL with its parameters DEcoded.
func encodedURL(r record) string {
	params := url.Values{}
	r.url.RangeParams(func(key, value string) bool {
		if value != "" {
			params.Set(key, value)
		}
		return true
	})
	params.Set(constant.AnyhostKey, "true")
	if len(r.url.Methods) > 0 {
		params.Set(constant.MethodsKey, strings.Join(r.url.Methods, ","))
	}
	query, err := url.QueryUnescape(params.Encode())
	if err != nil {
		query = params.Encode()
	}
	return url.QueryEscape(fmt.Sprintf("%s://%s%s?%s", r.url.Protocol, r.address(), r.url.Path, query))
}

// each runs f for every record, a bounded number at a time, and joins the errors.
func (p *zkPublisher) each(ctx context.Context, recs []record, m wire.Mark, f func(ctx context.Context, dir, name string, data []byte) error) error {
	var (
		group errgroup.Group
		errs  = make([]error, len(recs))
	)
	group.SetLimit(parallel)
	for i, r := range recs {
		group.Go(func() error {
			dir, name, data, err := p.node(r, m)
			if err == nil {
				err = f(ctx, dir, name, data)
			}
			if err != nil {
				errs[i] = fmt.Errorf("%s at %s: %w", r.service(), r.address(), err)
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return nil, errs has what they met
	return errors.Join(errs...)
}

func (p *zkPublisher) Put(ctx context.Context, recs []record, m wire.Mark) error {
	return p.each(ctx, recs, m, func(ctx context.Context, dir, name string, data []byte) error {
		return p.conn.do(ctx, func(conn *zk.Conn) error { return putNode(ctx, conn, dir, name, data) })
	})
}

// putNode makes the node ours with that data. Requests of one connection are answered in order, so a call that its
// caller has given up cannot overwrite a later one: it looks at ctx before each write.
func putNode(ctx context.Context, conn *zk.Conn, dir, name string, data []byte) error {
	path := dir + "/" + name
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		have, stat, err := conn.Get(path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			_, err = conn.Create(path, data, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			if errors.Is(err, zk.ErrNoNode) {
				if err = createParents(conn, dir); err == nil {
					continue
				}
			}
			if errors.Is(err, zk.ErrNodeExists) {
				continue // another session made it between the two calls
			}
			return err
		case err != nil:
			return err
		case stat.EphemeralOwner == conn.SessionID():
			if bytes.Equal(have, data) || ctx.Err() != nil {
				return context.Cause(ctx)
			}
			_, err = conn.Set(path, data, stat.Version)
			if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
				continue
			}
			return err
		default:
			// Left by a dead predecessor whose session has not expired: its end would take our record away. Both steps are
			// one transaction, so no list that is read is without the instance.
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			_, err = conn.Multi(
				&zk.DeleteRequest{Path: path, Version: stat.Version},
				&zk.CreateRequest{Path: path, Data: data, Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral},
			)
			if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNodeExists) {
				continue
			}
			return err
		}
	}
}

func (p *zkPublisher) Remove(ctx context.Context, recs []record) error {
	return p.each(ctx, recs, wire.Mark{}, func(ctx context.Context, dir, name string, _ []byte) error {
		return p.conn.do(ctx, func(conn *zk.Conn) error { return p.removeNode(ctx, conn, dir+"/"+name) })
	})
}

// removeNode deletes the node unless it belongs to somebody else: to a successor that has taken the address over.
func (p *zkPublisher) removeNode(ctx context.Context, conn *zk.Conn, path string) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		data, stat, err := conn.Get(path)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		if stat.EphemeralOwner != conn.SessionID() && p.markOf(data).Start != ownStart() {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx) // given up meanwhile: whoever did may have published the record again
		}
		if err = conn.Delete(path, stat.Version); err != nil && !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
}

// markOf reads the marks out of a node's data, of either level.
func (p *zkPublisher) markOf(data []byte) wire.Mark {
	if p.level == interfaceLevel {
		m, err := wire.ParseMark(string(data))
		if err != nil {
			return wire.Mark{} // data that others wrote
		}
		return m
	}
	in, err := parseCurator(data)
	if err != nil {
		return wire.Mark{}
	}
	m, _ := wire.MarkFrom(func(key string) string { return in.Metadata[key] })
	return m
}

func (p *zkPublisher) Shows(ctx context.Context, recs []record, m wire.Mark) error {
	return p.each(ctx, recs, m, func(ctx context.Context, dir, name string, data []byte) error {
		return p.conn.do(ctx, func(conn *zk.Conn) error {
			have, stat, err := conn.Get(dir + "/" + name)
			switch {
			case errors.Is(err, zk.ErrNoNode):
				return fmt.Errorf("%w: no node", errNotShown)
			case err != nil:
				return err
			case stat.EphemeralOwner != conn.SessionID() || !bytes.Equal(have, data):
				return fmt.Errorf("%w: node has %q of session %x", errNotShown, have, stat.EphemeralOwner)
			}
			return nil
		})
	})
}

func (p *zkPublisher) Watch(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwatch = p.conn.onSession(f)
}

func (p *zkPublisher) Close() error {
	p.mu.Lock()
	if p.released {
		p.mu.Unlock()
		return nil
	}
	p.released = true
	unwatch := p.unwatch
	p.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	p.conn.release()
	return nil
}
