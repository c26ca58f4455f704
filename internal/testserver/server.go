// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// StartTimeout bounds the wait for a server to answer; a Java server on two busy cores needs most of it.
const StartTimeout = 2 * time.Minute

// readyInterval is the pause between two questions to a starting server: it tells nobody when it is ready.
const readyInterval = 50 * time.Millisecond

// Server is one real registry server on loopback. Its methods are safe for concurrent use.
type Server struct {
	// Kind is "zookeeper", "nacos" or "etcdv3", the protocol name dubbo-go knows it by.
	Kind string
	// Addr is the client address, host:port.
	Addr string

	backend backend

	mu      sync.Mutex
	running bool
}

// backend is what differs between the servers.
type backend interface {
	start(ctx context.Context) error
	stop() error
	signal(syscall.Signal) error
}

// Freeze stops the server process where it is (SIGSTOP): connections stay open and nothing answers.
// An embedded server cannot be frozen and returns [errors.ErrUnsupported].
func (s *Server) Freeze() error { return s.backend.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() error { return s.backend.signal(syscall.SIGCONT) }

// Stop ends the server; its data stays for [Server.Restart]. Stopping twice is harmless.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return nil
	}
	s.running = false
	return s.backend.stop()
}

// Restart starts a stopped server again on the same address with the same data.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.backend.start(ctx); err != nil {
		return err
	}
	s.running = true
	return nil
}

// Start starts a server of the given kind with its data below dir. The caller stops it.
func Start(ctx context.Context, kind, dir string) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()

	var (
		s   = &Server{Kind: kind}
		err error
	)
	switch kind {
	case "zookeeper":
		s.backend, s.Addr, err = newZooKeeper(ctx, dir)
	case "nacos":
		s.backend, s.Addr, err = newNacos(ctx, dir)
	case "etcdv3":
		s.backend, s.Addr, err = newEtcd(dir)
	default:
		return nil, fmt.Errorf("test server %q: allowed are zookeeper, nacos, etcdv3", kind)
	}
	if err != nil {
		return nil, fmt.Errorf("test server %s: %w", kind, err)
	}
	if err = s.backend.start(ctx); err != nil {
		return nil, fmt.Errorf("test server %s: %w", kind, errors.Join(err, s.backend.stop()))
	}
	s.running = true
	return s, nil
}

// Skipped tells whether GRACEFUL_TEST_SKIP leaves the registry out.
func Skipped(kind string) bool {
	return slices.Contains(strings.Split(os.Getenv("GRACEFUL_TEST_SKIP"), ","), kind)
}

// ZooKeeper starts a ZooKeeper server for the test.
func ZooKeeper(t testing.TB) *Server { return forTest(t, "zookeeper") }

// Nacos starts a Nacos server for the test.
func Nacos(t testing.TB) *Server { return forTest(t, "nacos") }

// Etcd starts an etcd server, embedded in the test process, for the test.
func Etcd(t testing.TB) *Server { return forTest(t, "etcdv3") }

func forTest(t testing.TB, kind string) *Server {
	t.Helper()
	if Skipped(kind) {
		t.Skipf("GRACEFUL_TEST_SKIP leaves %s out", kind)
	}
	dir, err := os.MkdirTemp("", "graceful-"+kind+"-")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(context.Background(), kind, dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, logTail(dir))
	}
	t.Cleanup(func() {
		if stopErr := s.Stop(); stopErr != nil {
			t.Errorf("stop %s: %v", kind, stopErr)
		}
		if t.Failed() {
			t.Logf("%s wrote:\n%s", kind, logTail(dir))
		}
		if rmErr := os.RemoveAll(dir); rmErr != nil {
			t.Logf("remove %s: %v", dir, rmErr)
		}
	})
	return s
}

func logTail(dir string) []byte {
	const keep = 4096
	out, err := os.ReadFile(filepath.Join(dir, "server.log"))
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(out[max(0, len(out)-keep):])
}

// javaServer is a Java process that is ready when ask succeeds.
type javaServer struct {
	dir  string
	args []string
	ask  func(ctx context.Context) error

	cmd  *exec.Cmd
	done chan struct{}
}

func (j *javaServer) start(ctx context.Context) error {
	logFile, err := os.OpenFile(filepath.Join(j.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command("java", j.args...)
	cmd.Dir = j.dir
	cmd.Stdout, cmd.Stderr = logFile, logFile
	done := make(chan struct{})
	started := make(chan error)
	go func() {
		// The kernel kills the server when the THREAD that started it ends, so that no server outlives a
		// killed test; the thread therefore has to wait here for the server's end.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		startErr := cmd.Start()
		started <- startErr
		if startErr == nil {
			_ = cmd.Wait() // ended by a signal of ours, the exit status says nothing more
		}
		_ = logFile.Close()
		close(done)
	}()
	if err = <-started; err != nil {
		return err
	}
	j.cmd, j.done = cmd, done

	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	for {
		if err = j.ask(ctx); err == nil {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("ended before it was ready: %s", cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w (last answer: %w)", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

func (j *javaServer) stop() error {
	if j.cmd == nil {
		return nil
	}
	// A test server has nothing to save, and a frozen one would not react to anything milder.
	if err := j.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-j.done
	j.cmd = nil
	return nil
}

func (j *javaServer) signal(sig syscall.Signal) error {
	if j.cmd == nil {
		return os.ErrProcessDone
	}
	return j.cmd.Process.Signal(sig)
}

// freePorts returns a port p such that p+offset is free on loopback for every offset.
func freePorts(offsets ...int) (int, error) {
	const attempts = 200
	for range attempts {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		p := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if allFree(p, offsets) {
			return p, nil
		}
	}
	return 0, errors.New("no free ports on loopback")
}

func allFree(p int, offsets []int) bool {
	for _, off := range append([]int{0}, offsets...) {
		if p+off < 1024 || p+off > 65535 {
			return false
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p+off))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}
