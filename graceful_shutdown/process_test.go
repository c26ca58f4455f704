// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// child is a running child process.
type child struct {
	t    *testing.T
	port int
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  bytes.Buffer
	done chan struct{}
	code int

	mu     sync.Mutex
	lines  []string
	arrive chan struct{} // closed and replaced with each line
	eof    bool
}

func start(t *testing.T, r role, env ...string) *child {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	if r.Port == 0 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		r.Port = l.Addr().(*net.TCPAddr).Port
		require.NoError(t, l.Close())
	}
	r.Dir = t.TempDir()
	v, err := json.Marshal(r)
	require.NoError(t, err)
	marks, w, err := os.Pipe()
	require.NoError(t, err)

	c := &child{t: t, port: r.Port, done: make(chan struct{}), arrive: make(chan struct{})}
	c.cmd = exec.Command(os.Args[0])
	c.cmd.Env = append(append(os.Environ(), "KUBERNETES_SERVICE_HOST=", "GORACE=atexit_sleep_ms=0", roleKey+"="+string(v)), env...)
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	c.cmd.ExtraFiles = []*os.File{w}
	c.in, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	require.NoError(t, w.Close())

	read := make(chan struct{})
	go func() {
		defer close(read)
		defer marks.Close()
		s := bufio.NewScanner(marks)
		for s.Scan() {
			c.mu.Lock()
			c.lines = append(c.lines, s.Text())
			close(c.arrive)
			c.arrive = make(chan struct{})
			c.mu.Unlock()
		}
		c.mu.Lock()
		c.eof = true
		close(c.arrive)
		c.arrive = make(chan struct{})
		c.mu.Unlock()
	}()
	go func() {
		defer close(c.done)
		<-read
		err := c.cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			c.code = exit.ExitCode()
			if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				c.code = -int(ws.Signal())
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.done
		if t.Failed() {
			t.Logf("marks of the child:\n%s\nits log:\n%s", strings.Join(c.said(), "\n"), c.log.String())
		}
	})
	return c
}

func (c *child) said() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lines)
}

// hear waits for a line that begins with want, and returns it.
func (c *child) hear(want string) string {
	c.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		c.mu.Lock()
		arrive, eof := c.arrive, c.eof
		i := slices.IndexFunc(c.lines, func(l string) bool { return strings.HasPrefix(l, want) })
		var line string
		if i >= 0 {
			line = c.lines[i]
		}
		c.mu.Unlock()
		if i >= 0 {
			return line
		}
		if eof {
			require.FailNow(c.t, "the child has ended", "it never said %q", want)
		}
		select {
		case <-arrive:
		case <-limit:
			require.FailNow(c.t, "the child does not say it", want)
		}
	}
}

// count says how often a line came.
func (c *child) count(line string) (n int) {
	for _, l := range c.said() {
		if l == line {
			n++
		}
	}
	return n
}

// up waits until the child answers.
func (c *child) up() *child {
	c.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		if code, body := c.call("hello"); code == http.StatusOK {
			require.JSONEq(c.t, `"did hello"`, body)
			return c
		}
		select {
		case <-c.done:
			require.FailNow(c.t, "the child has ended")
		case <-time.After(20 * time.Millisecond):
		}
		require.True(c.t, time.Now().Before(deadline), "the child does not come up")
	}
}

// call sends a request on a connection of its own.
func (c *child) call(what string) (int, string) {
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	cli := &http.Client{Transport: tr, Timeout: 20 * time.Second}
	res, err := cli.Post(fmt.Sprintf("http://127.0.0.1:%d/%s/Call", c.port, service), "application/json", strings.NewReader(`"`+what+`"`))
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(b)
}

type answer struct {
	code int
	body string
}

// inFlight sends a request and returns when it is being served.
func (c *child) inFlight(what string) <-chan answer {
	c.t.Helper()
	out := make(chan answer, 1)
	go func() {
		code, body := c.call(what)
		out <- answer{code, body}
	}()
	c.hear("begin " + what)
	return out
}

func (c *child) signal(s os.Signal) time.Time {
	c.t.Helper()
	now := time.Now()
	require.NoError(c.t, c.cmd.Process.Signal(s))
	return now
}

func (c *child) tell(cmd string) time.Time {
	c.t.Helper()
	now := time.Now()
	_, err := io.WriteString(c.in, cmd+"\n")
	require.NoError(c.t, err)
	return now
}

// exit waits for the end of the process and returns its code and the time since from.
func (c *child) exit(from time.Time) (int, time.Duration) {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(30 * time.Second):
		require.FailNow(c.t, "the child does not end")
	}
	return c.code, time.Since(from)
}

// order requires all phases, once and in their order.
func (c *child) order() {
	c.t.Helper()
	var want, got []string
	for _, p := range allPhases() {
		want = append(want, "phase "+p.String())
	}
	for _, l := range c.said() {
		if strings.HasPrefix(l, "phase ") {
			got = append(got, l)
		}
	}
	assert.Equal(c.t, want, got)
}

var both = []struct {
	name string
	load bool
}{{"Load", true}, {"NewInstance", false}}

// dubbo-go alone: 60 s and 3 s.
func TestProcessIdle(t *testing.T) {
	for _, b := range both {
		t.Run(b.name, func(t *testing.T) {
			c := start(t, role{Load: b.load}).up()
			code, took := c.exit(c.signal(syscall.SIGTERM))
			assert.Zero(t, code)
			assert.Less(t, took, 500*ms)
			assert.Equal(t, 1, c.count("callback a"))
			assert.NotContains(t, strings.Join(c.said(), "\n"), "serve", "main does not go on")
			assert.NotContains(t, strings.Join(c.said(), "\n"), "wait over")
			c.order()
			assert.Contains(t, c.log.String(), "[Graceful][Shutdown] budget=1m0s (default, no grace period known) internal-signal=true")
			assert.NotContains(t, c.log.String(), "[GracefulShutdown] get signal", "dubbo-go has no handler of its own")
			assert.Regexp(t, `\[Graceful\]\[Shutdown\] phase=quiesced took=\S+ callers=0`, c.log.String())
			assert.Regexp(t, `\[Graceful\]\[Shutdown\] finished=callbacks took=\S+ exit-code=0`, c.log.String())
		})
	}
}

func TestProcessInKubernetes(t *testing.T) {
	c := start(t, role{}, "KUBERNETES_SERVICE_HOST=10.0.0.1").up()
	code, _ := c.exit(c.signal(syscall.SIGTERM))
	assert.Zero(t, code)
	c.hear("budget 25s")
	assert.Contains(t, c.log.String(), "budget=25s (grace period 30s (assumed in Kubernetes")
}

// A request that is being served, one that comes too late, and the order of things: dubbo-go 987, 1254, 1257.
func TestProcessInFlight(t *testing.T) {
	for _, b := range both {
		t.Run(b.name, func(t *testing.T) {
			c := start(t, role{Load: b.load}).up()
			res := c.inFlight("1s")
			from := c.signal(syscall.SIGTERM)
			c.hear("phase rejecting")
			code, body := c.call("late")
			assert.Equal(t, http.StatusServiceUnavailable, code)
			assert.Contains(t, body, "unavailable")
			assert.Equal(t, answer{http.StatusOK, `"did 1s"`}, <-res)
			exit, took := c.exit(from)
			assert.Zero(t, exit)
			assert.Less(t, took, 1500*ms)
			assert.Zero(t, c.count("begin late"), "a rejected request executes nothing")
			c.order()
		})
	}
}

func TestProcessCutOff(t *testing.T) {
	c := start(t, role{Budget: 2 * time.Second, ExitCode: 9}).up()
	res := c.inFlight("15s")
	code, took := c.exit(c.signal(syscall.SIGTERM))
	assert.Equal(t, 9, code)
	assert.LessOrEqual(t, took, 2*time.Second+300*ms)
	assert.Zero(t, (<-res).code)
	assert.Equal(t, 1, c.count("callback a"))
	assert.Contains(t, c.log.String(), "cut-off=1")
	c.order()
}

func TestProcessCallbackHangs(t *testing.T) {
	for _, b := range both {
		t.Run(b.name, func(t *testing.T) {
			c := start(t, role{Load: b.load, Hang: true, Panic: true, Callback: 700 * ms}).up()
			code, took := c.exit(c.signal(syscall.SIGTERM))
			assert.Zero(t, code)
			assert.Less(t, took, 1300*ms)
			assert.Greater(t, took, 700*ms)
			assert.Equal(t, 1, c.count("callback a"))
			assert.Contains(t, c.log.String(), "panicked: boom")
			assert.Contains(t, c.log.String(), errHangs.Error())
			c.order()
		})
	}
}

func TestProcessSecondSignal(t *testing.T) {
	for _, s := range []struct {
		sig  syscall.Signal
		code int
	}{{syscall.SIGTERM, 143}, {syscall.SIGINT, 130}} {
		t.Run(s.sig.String(), func(t *testing.T) {
			c := start(t, role{}).up()
			c.inFlight("15s")
			c.signal(s.sig)
			c.hear("phase rejecting")
			c.signal(s.sig) // within a second: Ctrl-C that a parent passes on
			select {
			case <-c.done:
				assert.Fail(t, "the process has ended")
			case <-time.After(1100 * ms):
			}
			code, took := c.exit(c.signal(s.sig))
			assert.Equal(t, s.code, code)
			assert.Less(t, took, 400*ms)
		})
	}
}

func TestProcessInterrupt(t *testing.T) {
	c := start(t, role{}).up()
	code, _ := c.exit(c.signal(os.Interrupt))
	assert.Zero(t, code)
	c.order()
}

func TestProcessQuitShowsStacks(t *testing.T) {
	c := start(t, role{}).up()
	code, _ := c.exit(c.signal(syscall.SIGQUIT))
	assert.Zero(t, code)
	c.order()
	assert.Contains(t, c.log.String(), "goroutine ")
	assert.Contains(t, c.log.String(), "exitProcess")
}

// internal-signal: false, and a web server of the application's own.
func TestProcessBeforeShutdown(t *testing.T) {
	t.Run("clean", func(t *testing.T) {
		c := start(t, role{Own: true}).up()
		res := c.inFlight("700ms")
		code, _ := c.exit(c.signal(syscall.SIGTERM))
		assert.Equal(t, 43, code, "the exit is main's")
		assert.Equal(t, http.StatusOK, (<-res).code)
		c.hear("before cut=false err=false")
		c.hear("serve <nil>")
		c.hear("web http: Server closed")
		c.hear("port free=true")
		assert.Equal(t, 1, c.count("callback a"))
		c.order()
		assert.Contains(t, c.log.String(), "internal-signal=false")
	})
	t.Run("cut off", func(t *testing.T) {
		c := start(t, role{Own: true, Budget: time.Second}).up()
		c.inFlight("15s")
		code, _ := c.exit(c.signal(syscall.SIGTERM))
		assert.Equal(t, 43, code)
		c.hear("before cut=true err=true")
		c.order()
	})
}

// dubbo-go 3042: the program ends its server itself, Serve returns, and dubbo.Load's callback holds nothing up.
func TestProcessShutdown(t *testing.T) {
	for _, b := range both {
		t.Run(b.name, func(t *testing.T) {
			c := start(t, role{Load: b.load}).up()
			code, took := c.exit(c.tell("shutdown"))
			assert.Equal(t, 42, code)
			assert.Less(t, took, 700*ms)
			c.hear("shutdown <nil>")
			if !b.load {
				c.hear("serve <nil>")
			}
			assert.Equal(t, 1, c.count("callback a"))
			assert.Zero(t, c.count("late callback"))
			c.order()
		})
	}
}

// dubbo-go's own Shutdown goes through our phases, and nothing of it happens twice.
func TestProcessUpstreamShutdown(t *testing.T) {
	for _, b := range both {
		t.Run(b.name, func(t *testing.T) {
			c := start(t, role{Load: b.load}).up()
			res := c.inFlight("700ms")
			code, took := c.exit(c.tell("upstream"))
			assert.Equal(t, 42, code)
			c.hear("upstream <nil>")
			assert.Less(t, took, 1500*ms)
			assert.Equal(t, http.StatusOK, (<-res).code)
			assert.Equal(t, 1, c.count("callback a"))
			c.order()
		})
	}
}

// ServeContext returns before the shutdown is over; Wait does not.
func TestProcessServeContext(t *testing.T) {
	c := start(t, role{Context: true}).up()
	res := c.inFlight("700ms")
	code, took := c.exit(c.tell("cancel"))
	assert.Equal(t, 42, code)
	assert.Greater(t, took, 600*ms)
	assert.Equal(t, http.StatusOK, (<-res).code)
	c.hear("serve context canceled")
	c.hear("wait <nil>")
	assert.Equal(t, 1, c.count("callback a"))
	c.order()
}

// Which callbacks are left out: ours, and the one of dubbo.Load that never returns. A later dubbo-go that names its function
// otherwise fails here.
func TestProcessKnowsTheLoader(t *testing.T) {
	for _, b := range both {
		t.Run(b.name, func(t *testing.T) {
			c := start(t, role{Load: b.load}).up()
			c.tell("callbacks")
			line := c.hear("callbacks ")
			left := 1
			if b.load {
				left = 2
			}
			var all, ours int
			_, err := fmt.Sscanf(line, "callbacks all=%d ours=%d", &all, &ours)
			require.NoError(t, err)
			assert.Equal(t, left, all-ours)
		})
	}
}

func TestProcessSignalBeforeTheServerIsUp(t *testing.T) {
	for _, b := range both {
		t.Run(b.name, func(t *testing.T) {
			c := start(t, role{Load: b.load, Slow: true})
			c.hear("exporting")
			code, took := c.exit(c.signal(syscall.SIGTERM))
			assert.Zero(t, code)
			assert.Less(t, took, 500*ms)
			assert.Equal(t, 1, c.count("callback a"))
			c.order()
		})
	}
}

// dubbo 12210: a middle service is killed in the middle of a call of its own.
func TestProcessConsumerOnly(t *testing.T) {
	p := start(t, role{}).up()
	c := start(t, role{Consumer: fmt.Sprintf("tri://127.0.0.1:%d", p.port), Work: "800ms"})
	p.hear("begin 800ms")
	code, took := c.exit(c.signal(syscall.SIGTERM))
	assert.Zero(t, code)
	assert.Less(t, took, 1200*ms)
	c.hear("answer did-800ms <nil>")
	c.order()
}

// A consumer with this module hears of the leaving from the responses alone.
func TestProcessDirectConsumer(t *testing.T) {
	p := start(t, role{}).up()
	c := start(t, role{Consumer: fmt.Sprintf("tri://127.0.0.1:%d", p.port), Work: "600ms"})
	p.hear("begin 600ms")
	code, took := p.exit(p.signal(syscall.SIGTERM))
	assert.Zero(t, code)
	assert.Less(t, took, 1200*ms)
	c.hear("answer did-600ms <nil>")
	assert.Regexp(t, `phase=quiesced took=\S+ callers=1`, p.log.String())
}

func TestProcessOfflineAndOnline(t *testing.T) {
	c := start(t, role{}).up()
	c.tell("offline")
	c.hear("offline <nil> ready=probe graceful: " + errNotReady.Error())
	code, _ := c.call("hello")
	assert.Equal(t, http.StatusOK, code, "it still serves")
	c.tell("online")
	c.hear("online <nil> ready=<nil>")
	exit, _ := c.exit(c.signal(syscall.SIGTERM))
	assert.Zero(t, exit)
}
