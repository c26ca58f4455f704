// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package etcd

import (
	"net"
	"sync"
	"testing"
)

import (
	"github.com/stretchr/testify/require"
)

// link is a TCP connection to a server that can be frozen: connections stay open and carry nothing, as with a stopped server
// or a broken network.
type link struct {
	addr string

	mu     sync.Mutex
	server string
	moving *sync.Cond
	frozen bool
	closed bool
	conns  []net.Conn
}

func newLink(t *testing.T, server string) *link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{addr: ln.Addr().String(), server: server}
	l.moving = sync.NewCond(&l.mu)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			l.mu.Lock()
			to := l.server
			l.mu.Unlock()
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, in, out)
			closed := l.closed
			l.mu.Unlock()
			if closed {
				_, _ = in.Close(), out.Close()
			}
			wg.Go(func() { l.carry(out, in) })
			wg.Go(func() { l.carry(in, out) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		l.mu.Lock()
		l.closed, l.frozen = true, false
		for _, c := range l.conns {
			_ = c.Close()
		}
		l.moving.Broadcast()
		l.mu.Unlock()
		wg.Wait()
	})
	return l
}

func (l *link) carry(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.mu.Lock()
		for l.frozen {
			l.moving.Wait()
		}
		l.mu.Unlock()
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) freeze(frozen bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = frozen
	l.moving.Broadcast()
}

// cut closes all connections, with what is on the way.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// redirect makes the link lead to another server.
func (l *link) redirect(server string) {
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	l.cut()
}
