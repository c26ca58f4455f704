// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3"
)

// Hooks are what the binary with the module adds to a process. The zero value is a vanilla one.
type Hooks struct {
	// Prepare is called before any server or client is made. ins is nil if dubbo.Load is used.
	Prepare func(o *Options, ins *dubbo.Instance) error
	// Watch is called at the start and may report events as long as the process lives.
	Watch func(emit func(Event))
	// BeforeShutdown is called on SIGTERM if the options switch the internal signal off.
	BeforeShutdown func(ctx context.Context) error
	// Commands answer further commands of the parent, by name.
	Commands map[string]func(ctx context.Context, args json.RawMessage) (any, error)
}

// Exit codes of a process beside dubbo-go's own.
const (
	ExitFatal    = 70 // the process could not do what its options say
	ExitOrphaned = 71 // the parent is gone
)

// Main runs the process that the environment describes and does not return.
func Main(h Hooks) {
	out, err := newEmitter()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(ExitFatal)
	}
	if err := run(h, out); err != nil {
		out.emit(Event{Kind: KindFatal, Error: err.Error()})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(ExitFatal)
	}
	os.Exit(0)
}

type process struct {
	*Options
	hooks  Hooks
	out    *emitter
	ledger *Ledger
	front  caller // a client's connection

	mu   sync.Mutex
	load *generator
}

func run(h Hooks, out *emitter) error {
	o, err := OptionsFromEnv()
	if err != nil {
		return err
	}
	p := &process{Options: o, hooks: h, out: out}
	if h.Watch != nil {
		h.Watch(out.emit)
	}
	if !o.NoLedger && o.Role != Client {
		if p.ledger, err = OpenLedger(LedgerPath(o.Dir, o.Name)); err != nil {
			return err
		}
	}
	go p.commands()
	if o.Role == Client {
		return p.client()
	}
	return p.serve()
}

// serve is the life of a provider or a proxy.
func (p *process) serve() error {
	a, err := newApp(p.Options, p.hooks)
	if err != nil {
		return err
	}
	do := provide(p.Options, p.ledger)
	if p.Role == Proxy {
		backend, err := a.refer(backendService)
		if err != nil {
			return err
		}
		do = forward(p.Options, p.ledger, backend)
	}
	go func() {
		if err := untilListening(p.Addr()); err == nil {
			p.out.emit(Event{Kind: KindListening, Name: p.Addr()})
		}
	}()
	stopWeb, err := p.web()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- a.serve(do) }()
	if p.InternalSignal == nil || *p.InternalSignal {
		err = <-ended
	} else {
		err = p.ownSignal(ended)
	}
	stopWeb()
	p.out.emit(Event{Kind: KindServed, Error: text(err)})
	return err
}

// ownSignal is an app that keeps the signals to itself.
func (p *process) ownSignal(ended <-chan error) error {
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, syscall.SIGTERM, os.Interrupt)
	select {
	case err := <-ended:
		return err
	case <-sig:
	}
	if p.hooks.BeforeShutdown == nil {
		return nil
	}
	return p.hooks.BeforeShutdown(context.Background())
}

// web starts the app's own web server, if it has one.
func (p *process) web() (stop func(), err error) {
	if p.WebPort == 0 {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.WebPort)))
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, p.Name)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // ends with ErrServerClosed
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = srv.Shutdown(ctx)
		<-done
	}, nil
}

// client is the life of a client: it connects, then does what it is told until it is told to quit.
func (p *process) client() error {
	a, err := newApp(p.Options, p.hooks)
	if err != nil {
		return err
	}
	if p.front, err = a.refer(frontService); err != nil {
		return err
	}
	if err := p.warm(); err != nil {
		return err
	}
	p.out.emit(Event{Kind: KindReady})
	select {} // the command "quit" or a signal ends the process
}

// warm sends requests until a row of them succeeds, so that a load starts on connections that
// stand. Their ids begin with "warm", which the proof leaves out.
func (p *process) warm() error {
	const (
		row      = 20
		patience = 30 * time.Second
	)
	var last error
	for n, good, end := 0, 0, time.Now().Add(patience); good < row; n++ {
		if time.Now().After(end) {
			return fmt.Errorf("no %d successful requests in a row within %v: %w", row, patience, last)
		}
		if r := p.send(requestID(WarmPrefix+p.Name, n), time.Now()); r.Failed() {
			good, last = 0, errors.New(r.Error)
			time.Sleep(50 * time.Millisecond) // a connection that is still being made is asked again, not stormed
			continue
		}
		good++
	}
	return nil
}

// WarmPrefix begins the ids of requests that belong to no load.
const WarmPrefix = "warm-"

func requestID(prefix string, n int) string { return prefix + "-" + strconv.Itoa(n) }

func (p *process) send(id string, intended time.Time) *Record {
	t := new(track)
	r := &Record{ID: id, Intended: intended, Sent: time.Now()}
	reply, err := p.front.order(withTrack(context.Background(), t), id)
	r.Done = time.Now()
	r.Tried = t.tried()
	switch {
	case err != nil:
		r.Error = err.Error()
		if r.Error == "" {
			r.Error = fmt.Sprintf("%T without a text", err)
		}
	case reply.GetId() != id:
		// Upstream answers rejected requests with an empty success.
		r.Error = fmt.Sprintf("the answer is not ours: id %q", reply.GetId())
	default:
		r.ServedBy, r.Via = reply.GetServedBy(), reply.GetVia()
		r.ProxyAttempts, r.Bytes = int(reply.GetAttempts()), len(reply.GetPayload())
	}
	return r
}

// commands reads what the parent says, until it is gone.
func (p *process) commands() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var c Command
		if err := json.Unmarshal(in.Bytes(), &c); err != nil {
			p.out.emit(Event{Kind: KindReply, Error: err.Error()})
			continue
		}
		go p.answer(c)
	}
	if os.Getenv(EnvEvents) != "" {
		os.Exit(ExitOrphaned)
	}
}

func (p *process) answer(c Command) {
	ev := Event{Kind: KindReply, Call: c.Call, Name: c.Name}
	v, err := p.command(context.Background(), c)
	if err == nil && v != nil {
		ev.Data, err = json.Marshal(v)
	}
	ev.Error = text(err)
	p.out.emit(ev)
	if c.Name == "quit" {
		os.Exit(0)
	}
}

func (p *process) command(ctx context.Context, c Command) (any, error) {
	if f := p.hooks.Commands[c.Name]; f != nil {
		return f(ctx, c.Args)
	}
	switch c.Name {
	case "quit":
		return nil, nil
	case "load":
		var args LoadArgs
		if err := json.Unmarshal(c.Args, &args); err != nil {
			return nil, err
		}
		return nil, p.startLoad(args)
	case "stop", "wait":
		p.mu.Lock()
		g := p.load
		p.mu.Unlock()
		if g == nil {
			return nil, errNoLoad
		}
		if c.Name == "stop" {
			g.end()
		}
		s, err := g.summary(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.load == g {
			p.load = nil
		}
		return s, err
	case "call":
		var id string
		if err := json.Unmarshal(c.Args, &id); err != nil {
			return nil, err
		}
		if p.front == nil {
			return nil, errors.New("only a client that is ready can call")
		}
		return p.send(id, time.Now()), nil
	}
	return nil, fmt.Errorf("command %q is not known here", c.Name)
}

func (p *process) startLoad(args LoadArgs) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.load != nil {
		return errLoadRuns
	}
	if p.front == nil {
		return errors.New("only a client that is ready can send a load")
	}
	g, err := newGenerator(args, func(id string, intended time.Time) {
		p.out.emit(Event{Kind: KindRequest, Request: p.send(id, intended)})
	})
	if err != nil {
		return err
	}
	p.load = g
	go g.run()
	return nil
}

// untilListening returns when addr accepts connections. dubbo-go does not tell, so it is dialled.
func untilListening(addr string) error {
	for end := time.Now().Add(time.Minute); ; {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(end) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
