// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

import (
	nacosClient "github.com/dubbogo/gost/database/kv/nacos"
	"github.com/dubbogo/gost/log/logger"

	"github.com/nacos-group/nacos-sdk-go/v2/clients/naming_client"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/remoting/nacos"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

// nacosWatch is how often the connection is looked at. The SDK tells nobody when it has lost its server: it repairs what it
// can by itself, once, and gives up what fails because the server is not ready yet.
const nacosWatch = time.Second

// nacosAudit is how long a list may differ from what was published before it is published again. A push takes half a second.
const nacosAudit = time.Second

var (
	errNacosClosed = errors.New("nacos connection is closed")
	// errNacosRefused: the SDK got an answer that is no success and keeps the reason to its own log.
	errNacosRefused = errors.New("nacos refused")
)

// nacosDirs gives this process a cache and a log directory of its own. The SDK's defaults are beside the executable, where
// every process of it would read and write the same files. What the user has set stays.
func nacosDirs(u *common.URL) {
	base := nacosBase()
	if u.GetParam(constant.NacosCacheDirKey, "") == "" {
		u.SetParam(constant.NacosCacheDirKey, filepath.Join(base, "cache"))
	}
	if u.GetParam(constant.NacosLogDirKey, "") == "" {
		u.SetParam(constant.NacosLogDirKey, filepath.Join(base, "log"))
	}
}

// nacosBase is removed when the last connection of the process closes: nothing in it is of use to another process.
func nacosBase() string {
	return filepath.Join(os.TempDir(), "dubbo-graceful-nacos-"+strconv.Itoa(os.Getpid()))
}

// nacosService is a name under which instances are listed.
type nacosService struct{ group, name string }

func (s nacosService) String() string { return s.group + "@@" + s.name }

func nacosGroup(u *common.URL) string {
	return u.GetParam(constant.RegistryGroupKey, constant.ServiceDiscoveryDefaultGroup)
}

// nacosConn is what this process is to one Nacos: a connection (dubbo-go's pooled client, which its own registry in this
// process uses too), what is published over it, and what is followed.
//
// For Nacos ONE connection has ONE publication per service name: a second address replaces the first, and taking one back
// takes all back. So what is published under a name is kept here, by everybody who publishes in this process, and always
// written whole. And for the SDK one unsubscription ends the pushes of every subscriber of the name, so those are kept here
// too. Nothing is opened before the first operation.
type nacosConn struct {
	key string
	url *common.URL

	mu        sync.Mutex
	refs      int
	closed    bool
	pooled    *nacosClient.NacosNamingClient
	sdk       naming_client.INamingClient
	opening   chan struct{} // closed when the attempt to open is over; nil if there is none
	openErr   error
	published map[nacosService]*nacosPublication
	followed  map[nacosService]*nacosFollow
	listeners map[int]func()
	nextID    int

	subscribing sync.Mutex      // one subscription, unsubscription or repair at a time
	ctx         context.Context // ends with the connection
	stop        context.CancelFunc
	work        sync.WaitGroup // operations whose caller may have gone, the watch and the guards
}

var nacosConns = struct {
	sync.Mutex
	m map[string]*nacosConn
}{m: make(map[string]*nacosConn)}

// openNacos returns the process's connection to the server of u, and takes a reference to it. It has no other effect.
func openNacos(u *common.URL) *nacosConn {
	name := u.GetParam(constant.ClientNameKey, "")
	if name == "" {
		name = "graceful-" + u.Location
	}
	namespace := u.GetParam(constant.RegistryNamespaceKey, "")
	key := name + "\n" + namespace
	nacosConns.Lock()
	defer nacosConns.Unlock()
	c := nacosConns.m[key]
	if c == nil {
		u = u.Clone()
		u.SetParam(constant.ClientNameKey, name)
		// As dubbo-go's own registry hands them to the client.
		u.SetParam(constant.NacosNamespaceID, namespace)
		u.SetParam(constant.NacosUsername, u.Username)
		u.SetParam(constant.NacosPassword, u.Password)
		u.SetParam(constant.NacosAccessKey, u.GetParam(constant.RegistryAccessKey, ""))
		u.SetParam(constant.NacosSecretKey, u.GetParam(constant.RegistrySecretKey, ""))
		u.SetParam(constant.NacosTimeout, u.GetParam(constant.RegistryTimeoutKey, constant.DefaultRegTimeout))
		u.SetParam(constant.NacosGroupKey, nacosGroup(u))
		nacosDirs(u)
		c = &nacosConn{
			key: key, url: u,
			published: make(map[nacosService]*nacosPublication),
			followed:  make(map[nacosService]*nacosFollow),
			listeners: make(map[int]func()),
		}
		c.ctx, c.stop = context.WithCancel(context.Background())
		nacosConns.m[key] = c
	}
	c.refs++
	return c
}

// release gives the reference back; the last one closes the connection, unless dubbo-go uses it too, and waits for what is
// under way.
func (c *nacosConn) release() {
	nacosConns.Lock()
	c.refs--
	last := c.refs == 0
	if last {
		delete(nacosConns.m, c.key)
	}
	none := len(nacosConns.m) == 0
	nacosConns.Unlock()
	if !last {
		return
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.work.Wait()
	if c.pooled == nil {
		return
	}
	c.pooled.Close()
	if c.pooled.Client() == nil {
		c.sdk.CloseClient() // the pool forgets the client of its last user and leaves it running
	}
	if none {
		if err := os.RemoveAll(nacosBase()); err != nil {
			logger.Debugf("[Graceful][Nacos] own directory left behind: %v", err)
		}
	}
}

// onReconnect has f called when the server had been away and is back. f must not block.
func (c *nacosConn) onReconnect(f func()) (cancel func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.nextID
	c.nextID++
	c.listeners[id] = f
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.listeners, id)
	}
}

// begin notes an operation that close waits for.
func (c *nacosConn) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errNacosClosed
	}
	c.work.Add(1)
	return nil
}

// client opens the connection if need be. The SDK tries to reach its server for seconds, without a context: it is not waited
// for longer than ctx.
func (c *nacosConn) client(ctx context.Context) (naming_client.INamingClient, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errNacosClosed
	}
	if c.sdk != nil {
		defer c.mu.Unlock()
		return c.sdk, nil
	}
	if c.opening == nil {
		c.opening, c.openErr = make(chan struct{}), nil
		c.work.Go(c.open)
	}
	opening := c.opening
	c.mu.Unlock()
	select {
	case <-opening:
	case <-ctx.Done():
		return nil, fmt.Errorf("nacos %s is not reachable: %w", c.url.Location, context.Cause(ctx))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sdk == nil {
		return nil, fmt.Errorf("nacos %s: %w", c.url.Location, c.openErr)
	}
	return c.sdk, nil
}

func (c *nacosConn) open() {
	pooled, err := nacos.NewNacosClientByURL(c.url)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.opening)
	c.opening = nil
	if err == nil && pooled.Client() == nil {
		err = errNacosClosed // its last user has just closed it
	}
	if err != nil {
		c.openErr = err
		return
	}
	c.pooled, c.sdk = pooled, pooled.Client()
	c.work.Go(func() { c.watch(pooled.Client()) })
}

// do runs f and returns when f or ctx ends. f outlives ctx by at most the SDK's own timeout.
func (c *nacosConn) do(ctx context.Context, f func(sdk naming_client.INamingClient) error) error {
	sdk, err := c.client(ctx)
	if err != nil {
		return err
	}
	if err = c.begin(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer c.work.Done()
		done <- f(sdk)
	}()
	select {
	case err = <-done:
		if err != nil {
			return fmt.Errorf("nacos %s: %w", c.url.Location, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nacos %s: %w", c.url.Location, context.Cause(ctx))
	}
}

// watch notices that the server was away. The SDK subscribes and registers again when it has reached a server, but drops what
// fails then; so everything is done once more when the server says that it works.
func (c *nacosConn) watch(sdk naming_client.INamingClient) {
	ticker := time.NewTicker(nacosWatch)
	defer ticker.Stop()
	for away := false; ; {
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
		}
		if !sdk.ServerHealthy() {
			if !away {
				logger.Warnf("[Graceful][Nacos] server=%s does not answer", c.url.Location)
			}
			away = true
			continue
		}
		if !away {
			continue
		}
		logger.Infof("[Graceful][Nacos] server=%s answers again, following and publishing everything anew", c.url.Location)
		away = !c.repair(sdk)
	}
}

// repair subscribes to everything again and has everything published again; false if it must be tried again.
func (c *nacosConn) repair(sdk naming_client.INamingClient) bool {
	c.mu.Lock()
	follows := slices.Collect(maps.Values(c.followed))
	publications := slices.Collect(maps.Values(c.published))
	tell := slices.Collect(maps.Values(c.listeners))
	c.mu.Unlock()
	for _, f := range tell {
		f()
	}
	whole := true
	for _, f := range follows {
		if c.ctx.Err() != nil {
			return true
		}
		if err := f.renew(sdk); err != nil {
			logger.Warnf("[Graceful][Nacos] cannot follow service=%s again yet: %v", f.service, err)
			whole = false
		}
	}
	// The SDK's own repair runs at the same time and may write what was published before it began.
	for _, p := range publications {
		if len(p.wanted()) == 0 {
			continue
		}
		if _, err := p.observe(c.ctx); err != nil && c.ctx.Err() == nil {
			logger.Warnf("[Graceful][Nacos] cannot see yet whether service=%s is published: %v", p.service, err)
			whole = false
		}
	}
	return whole
}

// publication returns what is published under a name.
func (c *nacosConn) publication(s nacosService) *nacosPublication {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.published[s]
	if p == nil {
		p = &nacosPublication{conn: c, service: s, turn: make(chan struct{}, 1), entries: make(map[nacosEntry]vo.RegisterInstanceParam)}
		c.published[s] = p
	}
	return p
}

// nacosEntry is an address that somebody in this process publishes.
type nacosEntry struct {
	owner   any
	address string
}

// nacosPublication is all that this process publishes under one name.
type nacosPublication struct {
	conn    *nacosConn
	service nacosService
	turn    chan struct{} // one write at a time, so that the newest is the last

	mu      sync.Mutex
	entries map[nacosEntry]vo.RegisterInstanceParam
	written *vo.RegisterInstanceParam // one of what the server may have
	wrote   time.Time                 // the last write
	view    *nacosFollow              // what subscribers are told; only once something is changed
	unview  context.CancelFunc
}

// set changes what is to be published; it is written by write.
func (p *nacosPublication) set(e nacosEntry, param vo.RegisterInstanceParam) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries[e] = param
}

func (p *nacosPublication) unset(e nacosEntry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.entries, e)
}

// isWritten: the server may have something of this publication.
func (p *nacosPublication) isWritten() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written != nil
}

// wanted lists each address once, since Nacos would list it as often as it is in the batch.
func (p *nacosPublication) wanted() []vo.RegisterInstanceParam {
	p.mu.Lock()
	defer p.mu.Unlock()
	byAddress := make(map[string]vo.RegisterInstanceParam, len(p.entries))
	for e, param := range p.entries {
		byAddress[e.address] = param
	}
	out := make([]vo.RegisterInstanceParam, 0, len(byAddress))
	for _, address := range slices.Sorted(maps.Keys(byAddress)) {
		out = append(out, byAddress[address])
	}
	return out
}

// write makes the server have what is wanted at the moment of the write. A write whose caller has gone keeps its turn.
func (p *nacosPublication) write(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var taken atomic.Bool // by the write, or by its caller who did not get that far
	err := p.conn.do(ctx, func(sdk naming_client.INamingClient) error {
		if !taken.CompareAndSwap(false, true) {
			return nil
		}
		defer func() { <-p.turn }()
		return p.send(sdk)
	})
	if err != nil && taken.CompareAndSwap(false, true) {
		<-p.turn
	}
	return err
}

func (p *nacosPublication) send(sdk naming_client.INamingClient) error {
	want := p.wanted()
	p.mu.Lock()
	before := p.written
	if len(want) > 0 {
		p.written = &want[0] // whatever the answer
	}
	p.mu.Unlock()
	var (
		ok  bool
		err error
	)
	switch {
	case len(want) == 1:
		ok, err = sdk.RegisterInstance(want[0])
	case len(want) > 1:
		ok, err = sdk.BatchRegisterInstance(vo.BatchRegisterInstanceParam{
			ServiceName: p.service.name, GroupName: p.service.group, Instances: want,
		})
	case before == nil:
		return nil
	default:
		ok, err = sdk.DeregisterInstance(vo.DeregisterInstanceParam{
			Ip: before.Ip, Port: before.Port, ServiceName: p.service.name, GroupName: p.service.group, Ephemeral: true,
		})
	}
	if err == nil && !ok {
		err = errNacosRefused
	}
	if err != nil {
		return fmt.Errorf("service %s: %w", p.service, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrote = time.Now()
	if len(want) == 0 {
		p.written = nil
		if p.unview != nil {
			p.unview()
			p.view, p.unview = nil, nil
		}
	}
	return nil
}

// observe begins to follow what subscribers are told of the name, and has it compared with what is published from then on.
func (p *nacosPublication) observe(ctx context.Context) (*nacosFollow, error) {
	p.mu.Lock()
	view := p.view
	p.mu.Unlock()
	if view != nil {
		return view, nil
	}
	wake := make(chan struct{}, 1)
	f, err := p.conn.follow(ctx, p.service, wake)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view != nil {
		f.leave(wake)
		return p.view, nil
	}
	if err = p.conn.begin(); err != nil {
		f.leave(wake)
		return nil, err
	}
	guarded, stop := context.WithCancel(p.conn.ctx)
	p.view, p.unview = f, stop
	go func() {
		defer p.conn.work.Done()
		defer f.leave(wake)
		p.guard(guarded, f, wake)
	}()
	return f, nil
}

// guard publishes again when the list does not come to agree with what is wanted. After a reconnect the SDK writes what it had
// published before, and does not notice that something newer has been written meanwhile; what fails then it drops.
func (p *nacosPublication) guard(ctx context.Context, f *nacosFollow, wake <-chan struct{}) {
	timer := time.NewTimer(nacosAudit)
	defer timer.Stop()
	for pending := true; ; {
		select {
		case <-ctx.Done():
			return
		case <-wake:
			if !pending && !p.agrees(f) {
				pending = true
				timer.Reset(nacosAudit)
			}
			continue
		case <-timer.C:
		}
		if pending = !p.agrees(f); !pending {
			continue
		}
		p.mu.Lock()
		early := nacosAudit - time.Since(p.wrote)
		p.mu.Unlock()
		if early > 0 {
			timer.Reset(early) // it has just been changed: the push is on its way
			continue
		}
		logger.Warnf("[Graceful][Nacos] service=%s is not listed as it was published, publishing it again", p.service)
		if err := p.write(ctx); err != nil && ctx.Err() == nil {
			logger.Warnf("[Graceful][Nacos] cannot publish service=%s again yet: %v", p.service, err)
		}
		timer.Reset(nacosAudit)
	}
}

// agrees compares the newest list with what is wanted.
func (p *nacosPublication) agrees(f *nacosFollow) bool {
	markOf := func(metadata map[string]string) wire.Mark {
		m, _ := wire.MarkFrom(func(key string) string { return metadata[key] })
		return m
	}
	starts := make(map[string]struct{})
	type shown struct {
		ip   string
		port uint64
		mark wire.Mark
	}
	missing := make(map[shown]struct{})
	for _, want := range p.wanted() {
		mark := markOf(want.Metadata)
		starts[mark.Start] = struct{}{}
		missing[shown{want.Ip, want.Port, mark}] = struct{}{}
	}
	for _, in := range f.list() {
		mark := markOf(in.Metadata)
		if _, ours := starts[mark.Start]; !ours {
			continue
		}
		s := shown{in.Ip, in.Port, mark}
		if _, wanted := missing[s]; !wanted {
			return false // an older state of ours, something taken back, or the same twice
		}
		delete(missing, s)
	}
	return len(missing) == 0
}

// nacosFollow is one subscription of this process, for everybody in it who follows the name.
type nacosFollow struct {
	conn    *nacosConn
	service nacosService
	param   *vo.SubscribeParam

	refs   int // guarded by conn.mu
	mu     sync.Mutex
	live   bool // subscribed
	known  bool // latest was pushed since the last subscription
	latest []model.Instance
	wakes  map[chan struct{}]struct{}
}

// follow subscribes, unless somebody has; wake, which may be nil, is filled when the list may have changed. Every follow that
// returns no error needs its leave.
func (c *nacosConn) follow(ctx context.Context, s nacosService, wake chan struct{}) (*nacosFollow, error) {
	c.mu.Lock()
	f := c.followed[s]
	if f == nil {
		f = &nacosFollow{conn: c, service: s, wakes: make(map[chan struct{}]struct{})}
		f.param = &vo.SubscribeParam{
			ServiceName: s.name, GroupName: s.group,
			SubscribeCallback: f.pushed,
		}
		c.followed[s] = f
	}
	f.refs++
	c.mu.Unlock()
	f.mu.Lock()
	if wake != nil {
		f.wakes[wake] = struct{}{}
	}
	f.mu.Unlock()
	err := c.do(ctx, f.subscribe)
	if err != nil {
		f.leave(wake)
		return nil, err
	}
	return f, nil
}

// pushed takes a list. The SDK sorts it in place when the next one comes, and others in this process change the metadata of its
// instances, so it is copied here, where nothing else happens to it.
func (f *nacosFollow) pushed(list []model.Instance, err error) {
	if err != nil {
		logger.Warnf("[Graceful][Nacos] push of service=%s failed: %v", f.service, err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.takeLocked(list)
}

func (f *nacosFollow) takeLocked(list []model.Instance) {
	f.latest, f.known = make([]model.Instance, len(list)), true
	for i, in := range list {
		in.Metadata = maps.Clone(in.Metadata)
		f.latest[i] = in
	}
	for wake := range f.wakes {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

func (f *nacosFollow) isLive() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live
}

func (f *nacosFollow) setLive(live bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = live
}

func (f *nacosFollow) subscribe(sdk naming_client.INamingClient) error {
	f.conn.subscribing.Lock()
	defer f.conn.subscribing.Unlock()
	if f.isLive() {
		return nil
	}
	return f.subscribeLocked(sdk)
}

func (f *nacosFollow) subscribeLocked(sdk naming_client.INamingClient) error {
	f.mu.Lock()
	f.known = false
	f.mu.Unlock()
	err := sdk.Subscribe(f.param)
	if err == nil {
		err = f.begin(sdk)
	}
	if err != nil {
		_ = sdk.Unsubscribe(f.param) // the callback has been noted all the same
		return fmt.Errorf("subscribe %s: %w", f.service, err)
	}
	f.setLive(true)
	return nil
}

// begin has the first list of a subscription. The SDK pushes none if somebody else has asked for the name before.
func (f *nacosFollow) begin(sdk naming_client.INamingClient) error {
	f.mu.Lock()
	known := f.known
	f.mu.Unlock()
	if known {
		return nil
	}
	list, err := sdk.SelectAllInstances(vo.SelectAllInstancesParam{ServiceName: f.service.name, GroupName: f.service.group})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known {
		f.takeLocked(list)
	}
	return nil
}

// renew drops what the SDK knows of the name and subscribes anew: the one way to have it ask the server.
func (f *nacosFollow) renew(sdk naming_client.INamingClient) error {
	f.conn.subscribing.Lock()
	defer f.conn.subscribing.Unlock()
	if !f.isLive() {
		return nil
	}
	if err := sdk.Unsubscribe(f.param); err != nil {
		logger.Debugf("[Graceful][Nacos] unsubscribe service=%s: %v", f.service, err)
	}
	f.setLive(false)
	err := f.subscribeLocked(sdk)
	if err != nil {
		f.setLive(true) // still wanted: the next repair tries again
	}
	return err
}

// leave ends what follow began.
func (f *nacosFollow) leave(wake chan struct{}) {
	c := f.conn
	f.mu.Lock()
	delete(f.wakes, wake)
	f.mu.Unlock()
	c.mu.Lock()
	f.refs--
	last := f.refs == 0
	if last && c.followed[f.service] == f {
		delete(c.followed, f.service)
	}
	sdk := c.sdk
	c.mu.Unlock()
	if !last || sdk == nil || c.begin() != nil {
		return
	}
	go func() {
		defer c.work.Done()
		c.subscribing.Lock()
		defer c.subscribing.Unlock()
		if !f.isLive() {
			return
		}
		f.setLive(false)
		c.mu.Lock()
		successor := c.followed[f.service]
		c.mu.Unlock()
		if err := sdk.Unsubscribe(f.param); err != nil {
			logger.Debugf("[Graceful][Nacos] unsubscribe service=%s: %v", f.service, err)
		}
		// Whoever began to follow the name meanwhile has just lost his pushes to our unsubscription.
		if successor != nil && successor.isLive() {
			successor.setLive(false)
			if err := successor.subscribeLocked(sdk); err != nil {
				logger.Warnf("[Graceful][Nacos] cannot follow service=%s: %v", f.service, err)
				successor.setLive(true)
			}
		}
	}()
}

// list is the newest list that was pushed. It is shared: not to be changed.
func (f *nacosFollow) list() []model.Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest
}
