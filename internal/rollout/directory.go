// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

import (
	"github.com/dubbogo/go-zookeeper/zk"

	clientv3 "go.etcd.io/etcd/client/v3"

	"go.uber.org/zap"
)

import (
	"github.com/dubbogo/graceful/internal/shop"
	"github.com/dubbogo/graceful/internal/shop/shoppb"
)

// Names of registry protocols.
const (
	ZooKeeper = "zookeeper"
	Nacos     = "nacos"
	Etcd      = "etcdv3"

	gracefulProtocol = "graceful"
	delegateParam    = "graceful.delegate"
)

// Graceful is a registry behind the module's decorator.
func Graceful(delegate, address string, level shop.Level) shop.Registry {
	return shop.Registry{
		Protocol: gracefulProtocol, Address: address, Level: level,
		Params: map[string]string{delegateParam: delegate},
	}
}

// Plain is the same registry as dubbo-go alone uses it.
func Plain(protocol, address string, level shop.Level) shop.Registry {
	return shop.Registry{Protocol: protocol, Address: address, Level: level}
}

// Directory reads a registry from outside, with a connection of its own and no dubbo-go in between.
type Directory interface {
	// List returns the addresses that the registry has for what a role serves, once per record.
	List(ctx context.Context, role shop.Role) ([]string, error)
	// Listed blocks until every level of the registry has a record of addr.
	Listed(ctx context.Context, role shop.Role, addr string) error
	// Gone blocks until no level has one.
	Gone(ctx context.Context, role shop.Role, addr string) error
	// Watch calls f with each list that is seen, the present one first, until ctx ends.
	Watch(ctx context.Context, role shop.Role, f func(addrs []string)) error
	Close() error
}

// OpenDirectory connects to the registry that r names, with or without the decorator.
func OpenDirectory(ctx context.Context, r shop.Registry) (Directory, error) {
	protocol := r.Protocol
	if protocol == gracefulProtocol {
		protocol = r.Params[delegateParam]
	}
	var (
		s   source
		err error
	)
	switch protocol {
	case ZooKeeper:
		s, err = openZooKeeper(ctx, r)
	case Nacos:
		s = nacosSource{address: r.Address, group: r.Group}
	case Etcd:
		s, err = openEtcd(r)
	default:
		return nil, fmt.Errorf("registry protocol %q: want %s, %s or %s", protocol, ZooKeeper, Nacos, Etcd)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", protocol, r.Address, err)
	}
	d := &directory{source: s}
	switch r.Level {
	case shop.LevelService:
		d.levels = []shop.Level{shop.LevelService}
	case shop.LevelAll:
		d.levels = []shop.Level{shop.LevelInterface, shop.LevelService}
	default:
		d.levels = []shop.Level{shop.LevelInterface}
	}
	return d, nil
}

// source is one kind of registry.
type source interface {
	// read returns the addresses of one level and a function that blocks until they may have
	// changed.
	read(ctx context.Context, level shop.Level, role shop.Role) (addrs []string, changed func(context.Context) error, err error)
	close() error
}

type directory struct {
	source source
	levels []shop.Level
}

func (d *directory) Close() error { return d.source.close() }

func (d *directory) List(ctx context.Context, role shop.Role) ([]string, error) {
	var all []string
	for _, l := range d.levels {
		addrs, _, err := d.source.read(ctx, l, role)
		if err != nil {
			return nil, err
		}
		all = append(all, addrs...)
	}
	return all, nil
}

func (d *directory) Listed(ctx context.Context, role shop.Role, addr string) error {
	return d.until(ctx, role, func(addrs []string) bool { return slices.Contains(addrs, addr) })
}

func (d *directory) Gone(ctx context.Context, role shop.Role, addr string) error {
	return d.until(ctx, role, func(addrs []string) bool { return !slices.Contains(addrs, addr) })
}

func (d *directory) until(ctx context.Context, role shop.Role, ok func([]string) bool) error {
	for _, l := range d.levels {
		for {
			addrs, changed, err := d.source.read(ctx, l, role)
			if err != nil {
				return err
			}
			if ok(addrs) {
				break
			}
			if err := changed(ctx); err != nil {
				return fmt.Errorf("%s level has %v: %w", l, addrs, err)
			}
		}
	}
	return nil
}

func (d *directory) Watch(ctx context.Context, role shop.Role, f func([]string)) error {
	if len(d.levels) != 1 {
		return errors.New("watch: want a registry of one level")
	}
	for {
		addrs, changed, err := d.source.read(ctx, d.levels[0], role)
		if err == nil {
			f(addrs)
			err = changed(ctx)
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end of ctx is how a watch is meant to end
		}
		if err != nil {
			return err
		}
	}
}

func serviceOf(role shop.Role) string {
	if role == shop.Proxy {
		return shoppb.FrontName
	}
	return shoppb.BackendName
}

// addrOfURL takes the address out of an escaped provider URL.
func addrOfURL(escaped string) (string, error) {
	raw, err := url.QueryUnescape(escaped)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "", err
	}
	return u.Host, nil
}

type zkSource struct {
	conn  *zk.Conn
	group string
}

func openZooKeeper(ctx context.Context, r shop.Registry) (source, error) {
	conn, events, err := zk.Connect([]string{r.Address}, 10*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	for {
		select {
		case ev := <-events:
			if ev.State == zk.StateHasSession {
				return &zkSource{conn: conn, group: r.Group}, nil
			}
		case <-ctx.Done():
			conn.Close()
			return nil, ctx.Err()
		}
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func (s *zkSource) close() error {
	s.conn.Close()
	return nil
}

func (s *zkSource) read(ctx context.Context, level shop.Level, role shop.Role) ([]string, func(context.Context) error, error) {
	dir := path.Join("/", cmp.Or(s.group, "dubbo"), serviceOf(role), "providers")
	if level == shop.LevelService {
		dir = path.Join("/", cmp.Or(s.group, "services"), role.App())
	}
	names, _, watch, err := s.conn.ChildrenW(dir)
	if errors.Is(err, zk.ErrNoNode) {
		exists, _, created, err := s.conn.ExistsW(dir)
		if err != nil {
			return nil, nil, err
		}
		if exists {
			return s.read(ctx, level, role)
		}
		return nil, func(ctx context.Context) error { return zkWait(ctx, created) }, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var addrs []string
	for _, n := range names {
		addr, err := s.addr(level, dir, n)
		if errors.Is(err, zk.ErrNoNode) {
			continue // gone between the list and the look
		}
		if err != nil {
			return nil, nil, err
		}
		addrs = append(addrs, addr)
	}
	return addrs, func(ctx context.Context) error { return zkWait(ctx, watch) }, nil
}

func (s *zkSource) addr(level shop.Level, dir, name string) (string, error) {
	if level != shop.LevelService {
		return addrOfURL(name)
	}
	data, _, err := s.conn.Get(path.Join(dir, name))
	if err != nil {
		return "", err
	}
	var instance struct {
		Address string `json:"address"`
		Port    int    `json:"port"`
	}
	if err := json.Unmarshal(data, &instance); err != nil {
		return "", fmt.Errorf("node %s: %w", name, err)
	}
	return instance.Address + ":" + strconv.Itoa(instance.Port), nil
}

func zkWait(ctx context.Context, w *zk.Watcher) error {
	select {
	case ev := <-w.EvtCh:
		return ev.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type etcdSource struct {
	cli   *clientv3.Client
	group string
}

func openEtcd(r shop.Registry) (source, error) {
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: strings.Split(r.Address, ","), DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	return etcdSource{cli, r.Group}, nil
}

func (s etcdSource) close() error { return s.cli.Close() }

func (s etcdSource) read(ctx context.Context, level shop.Level, role shop.Role) ([]string, func(context.Context) error, error) {
	dir := path.Join("/", cmp.Or(s.group, "dubbo"), serviceOf(role), "providers") + "/"
	if level == shop.LevelService {
		dir = "/services/" + role.App() + "/"
	}
	got, err := s.cli.Get(ctx, dir, clientv3.WithPrefix())
	if err != nil {
		return nil, nil, err
	}
	var addrs []string
	for _, kv := range got.Kvs {
		name := path.Base(string(kv.Key)) // host:port on service level
		if level != shop.LevelService {
			if name, err = addrOfURL(name); err != nil {
				return nil, nil, err
			}
		}
		addrs = append(addrs, name)
	}
	changed := func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for resp := range s.cli.Watch(ctx, dir, clientv3.WithPrefix(), clientv3.WithRev(got.Header.Revision+1)) {
			if err := resp.Err(); err != nil {
				return err
			}
			if len(resp.Events) > 0 {
				return nil
			}
		}
		return context.Cause(ctx)
	}
	return addrs, changed, nil
}

// nacosSource asks Nacos over HTTP. A push would come half a second late, and the moment that the
// server knows an instance is the one that is wanted.
type nacosSource struct{ address, group string }

func (nacosSource) close() error { return nil }

func (s nacosSource) read(ctx context.Context, level shop.Level, role shop.Role) ([]string, func(context.Context) error, error) {
	name := "providers:" + serviceOf(role) + "::"
	if level == shop.LevelService {
		name = role.App()
	}
	query := url.Values{"serviceName": {name}, "groupName": {cmp.Or(s.group, "DEFAULT_GROUP")}}
	u := "http://" + s.address + "/nacos/v1/ns/instance/list?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	var list struct {
		Hosts []struct {
			IP   string `json:"ip"`
			Port int    `json:"port"`
		} `json:"hosts"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, nil, fmt.Errorf("%s answers %s: %w", u, resp.Status, err)
	}
	var addrs []string
	for _, h := range list.Hosts {
		addrs = append(addrs, h.IP+":"+strconv.Itoa(h.Port))
	}
	changed := func(ctx context.Context) error {
		const again = 20 * time.Millisecond
		select {
		case <-time.After(again):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return addrs, changed, nil
}
