// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
)

import (
	"github.com/dubbogo/graceful/internal/self"
)

const (
	// protocol is the name this registry goes by; delegateKey is the registry parameter that names what it decorates.
	protocol    = "graceful"
	delegateKey = "graceful.delegate"
)

// delegateOf is the name of what the registry u decorates.
func delegateOf(u *common.URL) (string, error) {
	name := u.GetParam(constant.RegistryKey, "")
	if !strings.HasPrefix(name, protocol) {
		name = u.Protocol // a metadata report or a config centre
	}
	fromScheme, hasScheme := strings.CutPrefix(name, protocol+"+")
	delegate := u.GetParam(delegateKey, "")
	switch {
	case delegate == "" && hasScheme:
		delegate = fromScheme
	case delegate == "":
		return "", fmt.Errorf("%w of registry %s is missing: allowed are %s", ErrDelegate, u.Location, knownDelegates())
	case hasScheme && delegate != fromScheme:
		return "", fmt.Errorf("%w=%q of registry %s contradicts its address %s://", ErrDelegate, delegate, u.Location, name)
	}
	if publishers[delegate] == nil {
		return "", fmt.Errorf("%w=%q of registry %s: allowed are %s", ErrDelegate, delegate, u.Location, knownDelegates())
	}
	return delegate, nil
}

// delegateURL is u as the delegate would have got it.
func delegateURL(u *common.URL, delegate string) *common.URL {
	d := u.Clone()
	d.SubURL = nil
	d.Protocol = delegate
	d.DelParam(delegateKey)
	if d.GetParam(constant.RegistryKey, "") != "" {
		d.SetParam(constant.RegistryKey, delegate)
	}
	if _, rest, found := strings.Cut(d.Location, "://"); found {
		d.Location = rest
	}
	if delegate == constant.NacosKey {
		nacosDirs(d)
	}
	return d
}

// nodeKey is what makes a registry of ours one: dubbo-go builds registries on every call and throws most of them away, and
// has the consumer and the provider side of a process share one.
type nodeKey struct {
	level                               level
	delegate, address, group, namespace string
}

func (k nodeKey) String() string {
	s := k.delegate + " " + k.address
	if k.namespace != "" {
		s += " namespace " + k.namespace
	}
	if k.group != "" {
		s += " group " + k.group
	}
	return s + " " + k.level.String()
}

// node is what this process is to one registry on one level: what it publishes, and what it follows.
type node struct {
	key     nodeKey
	url     *common.URL // as the delegate would have got it
	timeout time.Duration
	*publication

	mu     sync.Mutex
	closed bool
	subs   map[any]*subscription
	after  []func() // run by Close, last first
	reader *zkConn
	// sourceOf is where the list is read in which a record of this process stands. It is called with mu held.
	sourceOf func(record) source
	slow     bool // the first list of a subscription did not come in time: the next ones are not waited for
}

var nodes = struct {
	sync.Mutex
	m map[nodeKey]any
}{m: make(map[nodeKey]any)}

// nodeFor returns the one object for a registry, made by build if there is none or the last one was closed. No effects
// besides: the connection is opened by the first use.
func nodeFor[T interface{ isClosed() bool }](l level, u *common.URL, build func(*node) T) (T, error) {
	var none T
	delegate, err := delegateOf(u)
	if err != nil {
		return none, err
	}
	d := delegateURL(u, delegate)
	key := nodeKey{
		level: l, delegate: delegate, address: d.Location,
		group: d.GetParam(constant.RegistryGroupKey, ""), namespace: d.GetParam(constant.RegistryNamespaceKey, ""),
	}
	nodes.Lock()
	defer nodes.Unlock()
	if have, ok := nodes.m[key].(T); ok && !have.isClosed() {
		return have, nil
	}
	pub, err := newPublisher(delegate, l, d)
	if err != nil {
		return none, err
	}
	n := &node{
		key: key, url: d, subs: make(map[any]*subscription),
		timeout:     d.GetParamDuration(constant.RegistryTimeoutKey, constant.DefaultRegTimeout),
		publication: newPublication(key.String(), cmp.Or(d.GetParam(constant.RegistryIdKey, ""), delegate), pub),
	}
	n.publication.closing = n.unfollow
	n.publication.tagging = n.tagged
	out := build(n)
	nodes.m[key] = out
	return out, nil
}

func (n *node) isClosed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}

// zkLocked is the connection for reading; it is released when the node closes. The caller holds mu.
func (n *node) zkLocked() *zkConn {
	if n.reader == nil {
		n.reader = openZk(n.url)
		n.after = append(n.after, n.reader.release)
	}
	return n.reader
}

// bounded is the time that a call of dubbo-go without a context may take.
func (n *node) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), n.timeout)
}

// onClose has f run when the node is closed; false if it is closed already.
func (n *node) onClose(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.after = append(n.after, f)
	return true
}

// follow starts a subscription under a key, unless there is one; build makes it. nil when the node is closed.
func (n *node) follow(key any, build func() *subscription) *subscription {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	s := n.subs[key]
	if s == nil {
		n.publication.use()
		s = build()
		n.subs[key] = s
		s.start()
	}
	return s
}

// leave ends the subscription of a key.
func (n *node) leave(key any) {
	n.mu.Lock()
	s := n.subs[key]
	delete(n.subs, key)
	n.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// firstList waits a moment for the first list of a subscription: a reference that is used right after its start should
// find its providers. A registry that does not answer costs that time once.
func (n *node) firstList(s *subscription, limit time.Duration) {
	n.mu.Lock()
	slow := n.slow
	n.mu.Unlock()
	if slow {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.first:
	case <-timer.C:
		n.mu.Lock()
		n.slow = true
		n.mu.Unlock()
	}
}

// unfollow ends every subscription and what the level has besides. Called by the publication when it closes.
func (n *node) unfollow() {
	n.mu.Lock()
	n.closed = true
	subs := slices.Collect(maps.Values(n.subs))
	clear(n.subs)
	after := n.after
	n.after = nil
	n.mu.Unlock()
	for _, s := range subs {
		s.close()
	}
	for _, f := range slices.Backward(after) {
		f()
	}
	nodes.Lock()
	defer nodes.Unlock()
	if c, ok := nodes.m[n.key].(interface{ isNode(*node) bool }); ok && c.isNode(n) {
		delete(nodes.m, n.key)
	}
}

func (n *node) isNode(other *node) bool { return n == other }

// publish opens the gate once this process is ready to be called, and waits a moment for the registry.
func (n *node) publish(addresses []string) error {
	var err error
	if !leaving() {
		err = gate.wait(n.publication.ended, addresses)
	}
	if err != nil && !errors.Is(err, errStoppedWaiting) {
		return fmt.Errorf("%s: %w", n.Name(), err)
	}
	if !n.publication.openGate() {
		return nil // the process is leaving already
	}
	ctx, cancel := n.bounded()
	defer cancel()
	if err = n.publication.settle(ctx); err != nil {
		// The registry is down. The process serves, and is registered as soon as the registry is back.
		logRegistryDown(n.Name(), err)
	}
	return nil
}

// take removes a single record; without a coordinator dubbo-go takes the records out one by one.
func (n *node) take(key string) error {
	if !n.publication.drop(key) {
		return nil
	}
	ctx, cancel := n.bounded()
	defer cancel()
	return n.publication.settle(ctx)
}

// ownStart is the start id of this process.
func ownStart() string { return self.Current().Start }
