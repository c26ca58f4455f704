// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

import (
	"github.com/dubbogo/go-zookeeper/zk"

	"github.com/dubbogo/gost/log/logger"

	"golang.org/x/sync/errgroup"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/registry"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

// zkRead bounds one read of ours; a connection that does not answer is given up by the client before that.
const zkRead = 10 * time.Second

// zkNode is a node below a followed directory.
type zkNode struct {
	name  string
	data  []byte
	czxid int64
}

// zkDir follows one directory of ephemeral nodes with their data. dubbo-go's own subscription ends for good at the first
// reconnect on interface level, does not carry data, and makes an empty list of one node that vanishes while it reads;
// watches of our own need one read after each event and none of its repairs. They survive a reconnect within the
// session (the client sets them again), and after a lost session everything is read anew.
type zkDir struct {
	conn *zkConn
	path string
	emit func([]zkNode)

	mu    sync.Mutex
	nodes map[string]*zkChild
	order []string
	work  sync.WaitGroup
}

// zkChild is the follower of one node.
type zkChild struct {
	node   zkNode
	read   bool // node is known
	gone   bool // the server said that it is not there
	cancel context.CancelFunc
}

func (d *zkDir) follow(ctx context.Context) {
	defer d.work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.nodes = make(map[string]*zkChild)
	for ctx.Err() == nil {
		var (
			children []string
			events   <-chan zk.Event
		)
		err := d.conn.do(ctx, func(conn *zk.Conn) error {
			for {
				names, _, w, err := conn.ChildrenW(d.path)
				if !errors.Is(err, zk.ErrNoNode) {
					if err == nil {
						children, events = names, w.EvtCh
					}
					return err
				}
				// Nobody has registered yet: the watch waits for the directory.
				exists, _, w, err := conn.ExistsW(d.path)
				if err != nil {
					return err
				}
				if !exists {
					children, events = nil, w.EvtCh
					return nil
				}
			}
		})
		if err != nil {
			d.pause(ctx, err)
			continue
		}
		d.sync(ctx, children)
		select {
		case <-ctx.Done():
		case <-events:
		}
	}
}

// pause waits before a read that failed is tried again: a new session ends it, in case the old one was the trouble.
func (d *zkDir) pause(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, errZkClosed) {
		<-ctx.Done()
		return
	}
	logger.Debugf("[Graceful][ZooKeeper] cannot read path=%s: %v", d.path, err)
	session := make(chan struct{}, 1)
	cancel := d.conn.onSession(func() {
		select {
		case session <- struct{}{}:
		default:
		}
	})
	defer cancel()
	timer := time.NewTimer(maxLook)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-session:
	case <-timer.C:
	}
}

// sync takes a list of children: new ones are followed, missing ones are gone.
func (d *zkDir) sync(ctx context.Context, children []string) {
	slices.Sort(children)
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, child := range d.nodes {
		if _, found := slices.BinarySearch(children, name); !found {
			child.cancel()
			delete(d.nodes, name)
		}
	}
	for _, name := range children {
		if c := d.nodes[name]; c != nil && !c.gone {
			continue
		}
		childCtx, cancel := context.WithCancel(ctx)
		child := &zkChild{node: zkNode{name: name}, cancel: cancel}
		d.nodes[name] = child
		d.work.Go(func() {
			defer cancel()
			d.followChild(childCtx, name, child)
		})
	}
	d.order = children
	d.emitLocked()
}

// followChild reads one node again and again, once after each of its events, until it is gone.
func (d *zkDir) followChild(ctx context.Context, name string, child *zkChild) {
	for ctx.Err() == nil {
		var (
			node   zkNode
			events <-chan zk.Event
		)
		err := d.conn.do(ctx, func(conn *zk.Conn) error {
			data, stat, w, err := conn.GetW(d.path + "/" + name)
			if err == nil {
				node, events = zkNode{name: name, data: data, czxid: stat.Czxid}, w.EvtCh
			}
			return err
		})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			d.mu.Lock()
			child.gone = true
			d.emitLocked()
			d.mu.Unlock()
			return
		case err != nil:
			d.pause(ctx, err)
			continue
		}
		d.mu.Lock()
		if ctx.Err() == nil {
			child.node, child.read = node, true
			d.emitLocked()
		}
		d.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-events:
		}
	}
}

// emitLocked emits the list if every node in it was read at least once: a list with holes is no list.
func (d *zkDir) emitLocked() {
	out := make([]zkNode, 0, len(d.order))
	for _, name := range d.order {
		child := d.nodes[name]
		if child == nil || child.gone {
			continue
		}
		if !child.read {
			return
		}
		out = append(out, child.node)
	}
	d.emit(out)
}

// readDir reads a directory once. A node that vanishes meanwhile is left out.
func readDir(ctx context.Context, conn *zkConn, path string) ([]zkNode, error) {
	ctx, cancel := context.WithTimeout(ctx, zkRead)
	defer cancel()
	var nodes []zkNode
	err := conn.do(ctx, func(c *zk.Conn) error {
		children, _, err := c.Children(path)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		slices.Sort(children)
		found := make([]*zkNode, len(children))
		var group errgroup.Group
		group.SetLimit(parallel)
		for i, name := range children {
			group.Go(func() error {
				data, stat, getErr := c.Get(path + "/" + name)
				if errors.Is(getErr, zk.ErrNoNode) {
					return nil
				}
				if getErr == nil {
					found[i] = &zkNode{name: name, data: data, czxid: stat.Czxid}
				}
				return getErr
			})
		}
		if err = group.Wait(); err != nil {
			return err
		}
		all := make([]zkNode, 0, len(found))
		for _, n := range found {
			if n != nil {
				all = append(all, *n)
			}
		}
		nodes = all
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return nodes, nil
}

// zkSource makes lists out of a directory.
type zkSource struct {
	conn  *zkConn
	path  string
	parse func(zkNode) (item, bool)
}

func (s *zkSource) follow(ctx context.Context, emit func([]item)) {
	known := make(map[string]parsed) // emissions come one at a time
	d := &zkDir{conn: s.conn, path: s.path, emit: func(nodes []zkNode) { emit(s.items(nodes, known)) }}
	d.follow(ctx)
}

func (s *zkSource) troubled() bool { return s.conn.troubled() }

func (s *zkSource) query(ctx context.Context) ([]item, error) {
	nodes, err := readDir(ctx, s.conn, s.path)
	return s.items(nodes, nil), err
}

// parsed is what a node was read as: of a long list that changes in one place only that place is read again.
type parsed struct {
	node zkNode
	item item
	ok   bool
}

// items reads nodes; known is what it has read before, and may be nil.
func (s *zkSource) items(nodes []zkNode, known map[string]parsed) []item {
	items := make([]item, 0, len(nodes))
	seen := make(map[string]parsed, len(nodes))
	for _, n := range nodes {
		p, have := known[n.name]
		if !have || p.node.czxid != n.czxid || !bytes.Equal(p.node.data, n.data) {
			p = parsed{node: n}
			p.item, p.ok = s.parse(n)
			p.item.order = n.czxid
		}
		seen[n.name] = p
		if p.ok {
			items = append(items, p.item)
		}
	}
	if known != nil {
		clear(known)
		maps.Copy(known, seen)
	}
	return items
}

// zkInterfaceItem reads a provider node of interface level that the reference ref asks for.
func zkInterfaceItem(ref *common.URL, n zkNode) (item, bool) {
	u, err := common.NewURL(n.name)
	if err != nil {
		logger.Warnf("[Graceful][ZooKeeper] node=%q is no provider URL: %v", n.name, err)
		return item{}, false
	}
	var mark wire.Mark
	if m, markErr := wire.ParseMark(string(n.data)); markErr == nil {
		mark = m
	}
	return interfaceItem(ref, u, mark)
}

// zkServiceItem reads an instance node of service level.
func zkServiceItem(n zkNode) (item, bool) {
	in, err := parseCurator(n.data)
	if err != nil {
		logger.Warnf("[Graceful][ZooKeeper] node=%q is no instance: %v", n.name, err)
		return item{}, false
	}
	return serviceItem(in), true
}

var errNoInstance = errors.New("no metadata in the payload")

// parseCurator reads the JSON of curator's service discovery as dubbo-go and Java write it.
func parseCurator(data []byte) (*registry.DefaultServiceInstance, error) {
	var raw struct {
		Name    string `json:"name"`
		ID      string `json:"id"`
		Address string `json:"address"`
		Port    int    `json:"port"`
		Tag     string `json:"tag"`
		Payload struct {
			Metadata map[string]any `json:"metadata"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, err
	}
	if raw.Payload.Metadata == nil {
		return nil, errNoInstance
	}
	metadata := make(map[string]string, len(raw.Payload.Metadata))
	for k, v := range raw.Payload.Metadata {
		if s, ok := v.(string); ok {
			metadata[k] = s
		} else {
			metadata[k] = fmt.Sprint(v)
		}
	}
	return &registry.DefaultServiceInstance{
		ID: raw.ID, ServiceName: raw.Name, Host: raw.Address, Port: raw.Port, Tag: strings.TrimSpace(raw.Tag),
		Enable: true, Healthy: true, Metadata: metadata,
	}, nil
}
