// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

import (
	"github.com/dubbogo/go-zookeeper/zk"

	"github.com/dubbogo/gost/log/logger"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
)

// zkMinSession is the shortest session we ask for; a server may raise it.
const zkMinSession = time.Second

// zkTrouble is how long after a lost connection records may still vanish for it: as long as the longest sessions in use.
const zkTrouble = 30 * time.Second

var errZkClosed = errors.New("zookeeper connection is closed")

// zkConn is a connection of our own to ZooKeeper. dubbo-go's shared client loses a reconnect that happens while it
// still works on the one before, has no context on any call, and deletes what it re-registers; this one reports every
// session, and an operation ends with its context. Nothing is opened before the first operation.
type zkConn struct {
	addrs   []string
	session time.Duration

	mu        sync.Mutex
	conn      *zk.Conn
	up        chan struct{} // closed while there is a session
	isUp      bool
	trouble   time.Time // when the connection was last lost, or came back after that
	everUp    bool
	nextID    int
	listeners map[int]func()
	closed    bool
	refs      int
	key       string

	work sync.WaitGroup // operations whose caller may have gone
}

// zkConns shares one connection between the publisher and the subscriptions of a process.
var zkConns = struct {
	sync.Mutex
	m map[string]*zkConn
}{m: make(map[string]*zkConn)}

// openZk returns the process's connection to the servers of u, and takes a reference to it. It has no other effect.
func openZk(u *common.URL) *zkConn {
	session := max(u.GetParamDuration(constant.RegistryTimeoutKey, constant.DefaultRegTimeout), zkMinSession)
	key := u.Location + "|" + session.String()
	zkConns.Lock()
	defer zkConns.Unlock()
	c := zkConns.m[key]
	if c == nil {
		c = &zkConn{
			key: key, addrs: strings.Split(u.Location, ","), session: session,
			up: make(chan struct{}), listeners: make(map[int]func()),
		}
		zkConns.m[key] = c
	}
	c.refs++
	return c
}

// release gives the reference back; the last one closes the connection and waits for what is under way.
func (c *zkConn) release() {
	zkConns.Lock()
	c.refs--
	last := c.refs == 0
	if last {
		delete(zkConns.m, c.key)
	}
	zkConns.Unlock()
	if !last {
		return
	}
	c.mu.Lock()
	c.closed = true
	conn := c.conn
	if !c.isUp {
		close(c.up) // whoever waits for a session looks at closed
		c.isUp = true
	}
	c.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	c.work.Wait()
}

// onSession has f called at every session or reconnect from now on, from the connection's own goroutine: f must not block.
func (c *zkConn) onSession(f func()) (cancel func()) {
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

// event runs inside the client's receive loop, before any answer of the new session is handed out.
func (c *zkConn) event(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	var call []func()
	switch e.State {
	case zk.StateHasSession:
		if !c.isUp {
			c.isUp = true
			close(c.up)
			if c.everUp {
				c.trouble = time.Now()
			}
			c.everUp = true
			for _, f := range c.listeners {
				call = append(call, f)
			}
		}
	case zk.StateDisconnected, zk.StateExpired:
		if c.isUp {
			c.isUp = false
			c.up = make(chan struct{})
			c.trouble = time.Now()
		}
	default:
	}
	c.mu.Unlock()
	for _, f := range call {
		f()
	}
}

// ready waits for a session.
func (c *zkConn) ready(ctx context.Context) (*zk.Conn, error) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, errZkClosed
		}
		if c.conn == nil {
			conn, _, err := zk.Connect(c.addrs, c.session, zk.WithEventCallback(c.event), zk.WithLogInfo(false), zk.WithLogger(zkLog{}))
			if err != nil {
				c.mu.Unlock()
				return nil, fmt.Errorf("zookeeper %s: %w", strings.Join(c.addrs, ","), err)
			}
			c.conn = conn
		}
		conn, up, isUp := c.conn, c.up, c.isUp
		c.mu.Unlock()
		if isUp {
			return conn, nil
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil, fmt.Errorf("zookeeper %s is not reachable: %w", strings.Join(c.addrs, ","), context.Cause(ctx))
		}
	}
}

// do runs f with a live connection, and returns when f or ctx ends. f outlives ctx by at most the answer it waits for.
func (c *zkConn) do(ctx context.Context, f func(*zk.Conn) error) error {
	conn, err := c.ready(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errZkClosed
	}
	c.work.Add(1)
	c.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		defer c.work.Done()
		done <- f(conn)
	}()
	select {
	case err = <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// troubled reports whether the connection is or was lost a short time ago: then the servers have lost others too, and what
// they delete may be the records of processes that live.
func (c *zkConn) troubled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.everUp && (!c.isUp || !c.trouble.IsZero() && time.Since(c.trouble) < zkTrouble)
}

// createParents makes the path's ancestors and the path itself as plain nodes; that another process makes them at the
// same moment is no error.
func createParents(conn *zk.Conn, path string) error {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if _, err := conn.Create(path[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return fmt.Errorf("create %s: %w", path[:i], err)
		}
	}
	return nil
}

type zkLog struct{}

func (zkLog) Printf(format string, args ...any) {
	logger.Debugf("[Graceful][ZooKeeper] "+format, args...)
}
