// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/shop"
)

// Errors of processes.
var (
	// ErrExited: the process ended before what was asked of it happened.
	ErrExited = errors.New("process has exited")
	// ErrFatal: the process said that it cannot go on.
	ErrFatal = errors.New("process failed")
)

// Exit is how a process ended.
type Exit struct {
	Process string `json:"process"`
	// Code is the exit code, -1 after a signal; Signal is its name then.
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	// Took counts from the first SIGTERM (or SIGKILL) to the end; zero if there was none.
	Took time.Duration `json:"took"`
	At   time.Time     `json:"at"`
}

// Process is a child process of internal/shop.
type Process struct {
	shop.Options

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	onEvnt func(*Process, shop.Event)

	listening chan struct{} // closed by the event
	ready     chan struct{}
	fatal     chan struct{}
	fatalText string
	done      chan struct{} // closed after Wait and after the last event was handled
	exit      Exit

	killedAt atomic.Int64 // unix ns of the first SIGTERM or SIGKILL
	started  time.Time

	mu    sync.Mutex
	calls map[int]chan shop.Event
	next  int
}

// StartProcess runs binary with options; onEvent, if not nil, gets every event in order, from one
// goroutine. Output goes to <Dir>/<Name>.log.
func StartProcess(binary string, o shop.Options, onEvent func(*Process, shop.Event)) (*Process, error) {
	if o.Port == 0 && o.Role != shop.Client {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		o.Port = port
	}
	if o.MetadataPort == 0 && o.Protocol == "dubbo" && o.Role != shop.Client {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		o.MetadataPort = port
	}
	env, err := o.Encode()
	if err != nil {
		return nil, err
	}
	logFile, err := os.OpenFile(filepath.Join(o.Dir, o.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	events, eventsChild, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer eventsChild.Close()
	home := filepath.Join(o.Dir, o.Name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, errors.Join(err, events.Close())
	}
	p := &Process{
		Options: o,
		onEvnt:  onEvent,

		listening: make(chan struct{}),
		ready:     make(chan struct{}),
		fatal:     make(chan struct{}),
		done:      make(chan struct{}),
		calls:     map[int]chan shop.Event{},
	}
	p.cmd = exec.Command(binary)
	// The Nacos client writes its cache and log beside the program's name, shared by all who have
	// the same: each process gets a name in a directory of its own.
	p.cmd.Dir, p.cmd.Args[0] = home, filepath.Join(home, filepath.Base(binary))
	p.cmd.Env = append(os.Environ(), shop.EnvOptions+"="+env, shop.EnvEvents+"=3")
	p.cmd.Stdout, p.cmd.Stderr = logFile, logFile
	p.cmd.ExtraFiles = []*os.File{eventsChild}
	// A group of its own: Ctrl-C at the terminal reaches the parent alone, which then ends its
	// children in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, errors.Join(err, events.Close())
	}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", o.Name, err), events.Close())
	}
	p.started = time.Now()
	eventsChild.Close() // else the pipe never ends
	go p.run(events)
	return p, nil
}

// run hands out the events until the process is gone, then says so.
func (p *Process) run(events *os.File) {
	in := bufio.NewScanner(events)
	in.Buffer(nil, 8<<20)
	for in.Scan() {
		var ev shop.Event
		if err := json.Unmarshal(in.Bytes(), &ev); err != nil {
			ev = shop.Event{Kind: shop.KindFatal, At: time.Now(), Error: fmt.Sprintf("event %q: %v", in.Text(), err)}
		}
		p.handle(ev)
	}
	_ = events.Close()
	err := p.cmd.Wait()
	p.exit = Exit{Process: p.Name, At: time.Now(), Code: p.cmd.ProcessState.ExitCode()}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.exit.Signal = ws.Signal().String()
	}
	if ns := p.killedAt.Load(); ns != 0 {
		p.exit.Took = p.exit.At.Sub(time.Unix(0, ns))
	}
	close(p.done)
	if p.onEvnt != nil {
		detail := "exit code " + strconv.Itoa(p.exit.Code)
		if p.exit.Signal != "" {
			detail = p.exit.Signal
		}
		p.onEvnt(p, shop.Event{Kind: KindExited, At: p.exit.At, Detail: detail, Error: errText(err)})
	}
}

// KindExited is the last event of a process. It is made here and not by the process.
const KindExited = "exited"

func (p *Process) handle(ev shop.Event) {
	switch ev.Kind {
	case shop.KindListening:
		closeOnce(p.listening)
	case shop.KindReady:
		closeOnce(p.ready)
	case shop.KindFatal:
		if closed := isClosed(p.fatal); !closed {
			p.fatalText = ev.Error
			close(p.fatal)
		}
	case shop.KindReply:
		p.mu.Lock()
		ch := p.calls[ev.Call]
		delete(p.calls, ev.Call)
		p.mu.Unlock()
		if ch != nil {
			ch <- ev
		}
	}
	if p.onEvnt != nil {
		p.onEvnt(p, ev)
	}
}

// closeOnce is called by the goroutine of run alone.
func closeOnce(ch chan struct{}) {
	if !isClosed(ch) {
		close(ch)
	}
}

func isClosed(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Started is when the process was started.
func (p *Process) Started() time.Time { return p.started }

// LogPath is the file with the output of the process.
func (p *Process) LogPath() string { return filepath.Join(p.Dir, p.Name+".log") }

// Done is closed when the process is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ready waits until the process accepts connections and, if dir is not nil, until the registry
// lists it. A client is ready when it has a working connection.
func (p *Process) Ready(ctx context.Context, dir Directory) error {
	signal := p.listening
	if p.Role == shop.Client {
		signal, dir = p.ready, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := p.cancelWhenGone(cancel)
	defer stop()
	select {
	case <-signal:
	case <-ctx.Done():
		return p.notReady(context.Cause(ctx), "does not accept connections")
	}
	if dir == nil {
		return nil
	}
	if err := dir.Listed(ctx, p.Role, p.Addr()); err != nil {
		return p.notReady(context.Cause(ctx), "is not listed by the registry: "+err.Error())
	}
	return nil
}

func (p *Process) notReady(cause error, what string) error {
	if cause == nil {
		return fmt.Errorf("%s %s (log: %s)", p.Name, what, p.LogPath())
	}
	return fmt.Errorf("%s %s: %w (log: %s)", p.Name, what, cause, p.LogPath())
}

// cancelWhenGone cancels when the process ends or fails.
func (p *Process) cancelWhenGone(cancel context.CancelCauseFunc) (stop func()) {
	quit, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-p.fatal:
			cancel(fmt.Errorf("%w: %s", ErrFatal, p.fatalText))
		case <-p.done:
			cancel(fmt.Errorf("%w with code %d %s", ErrExited, p.exit.Code, p.exit.Signal))
		case <-quit:
		}
	}()
	return func() { close(quit); <-stopped }
}

// Term sends SIGTERM.
func (p *Process) Term() error { return p.Signal(syscall.SIGTERM) }

// Kill sends SIGKILL.
func (p *Process) Kill() error { return p.Signal(syscall.SIGKILL) }

// Signal sends a signal to this process and to nothing else.
func (p *Process) Signal(sig syscall.Signal) error {
	if sig == syscall.SIGTERM || sig == syscall.SIGKILL {
		p.killedAt.CompareAndSwap(0, time.Now().UnixNano())
	}
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("%v to %s: %w", sig, p.Name, err)
	}
	return nil
}

// Wait waits for the end of the process.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.done:
		return p.exit, nil
	case <-ctx.Done():
		return Exit{}, fmt.Errorf("%s still runs: %w", p.Name, context.Cause(ctx))
	}
}

// Stop ends the process whatever it does and waits for it.
func (p *Process) Stop() {
	if !isClosed(p.done) {
		_ = p.Kill() // it may be gone this moment
	}
	<-p.done
	_ = p.stdin.Close()
}

// Call gives the process a command and stores the answer in out, which may be nil.
func (p *Process) Call(ctx context.Context, name string, args, out any) error {
	c := shop.Command{Name: name}
	if args != nil {
		b, err := json.Marshal(args)
		if err != nil {
			return err
		}
		c.Args = b
	}
	answer := make(chan shop.Event, 1)
	p.mu.Lock()
	p.next++
	c.Call = p.next
	p.calls[c.Call] = answer
	b, err := json.Marshal(c)
	if err == nil {
		_, err = p.stdin.Write(append(b, '\n'))
	}
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: command %s: %w", p.Name, name, err)
	}
	select {
	case ev := <-answer:
		if ev.Error != "" {
			return fmt.Errorf("%s: command %s: %s", p.Name, name, ev.Error)
		}
		if out == nil || len(ev.Data) == 0 {
			return nil
		}
		return json.Unmarshal(ev.Data, out)
	case <-p.done:
		return fmt.Errorf("%s: command %s: %w", p.Name, name, ErrExited)
	case <-ctx.Done():
		return fmt.Errorf("%s: command %s: %w", p.Name, name, context.Cause(ctx))
	}
}

// Ledger reads what the handlers of the process wrote down so far.
func (p *Process) Ledger() ([]*shop.Entry, error) {
	return shop.ReadLedger(shop.LedgerPath(p.Dir, p.Name))
}

var ports struct {
	sync.Mutex
	next int
}

// FreePort finds a port of 127.0.0.1 that nobody listens on. It lies below the range that the
// kernel takes ports of outgoing connections from, so that none of those takes it away between
// this moment and the one when the child listens.
func FreePort() (int, error) {
	const low, high = 20000, 32000
	ports.Lock()
	defer ports.Unlock()
	if ports.next == 0 {
		// Suites that run side by side begin in different places.
		ports.next = low + (os.Getpid()*131)%(high-low)
	}
	for range high - low {
		port := ports.next
		if ports.next++; ports.next >= high {
			ports.next = low
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no free port on 127.0.0.1")
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
