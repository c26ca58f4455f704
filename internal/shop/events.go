// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// Kinds of events.
const (
	// KindListening: the port of the process accepts connections.
	KindListening = "listening"
	// KindReady: a client has a working connection and waits for its load command.
	KindReady = "ready"
	// KindPhase: the module's coordinator entered or left a phase; Name and Detail say which.
	KindPhase = "phase"
	// KindRequest: a client's request was answered.
	KindRequest = "request"
	// KindReply answers a command.
	KindReply = "reply"
	// KindFatal: the process cannot go on, Error says why.
	KindFatal = "fatal"
	// KindServed: Serve returned.
	KindServed = "served"
)

// PhaseStarted is the detail of a KindPhase event that opens a phase.
const PhaseStarted = "started"

// Event is one line that a process writes to its parent.
type Event struct {
	Kind string    `json:"kind"`
	At   time.Time `json:"at"`
	// Name and Detail belong to the kind.
	Name    string  `json:"name,omitempty"`
	Detail  string  `json:"detail,omitempty"`
	Error   string  `json:"error,omitempty"`
	Request *Record `json:"request,omitempty"`
	// Call is the number of the command that is answered, Data the answer.
	Call int             `json:"call,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Record is what a client knows about one request.
type Record struct {
	ID string `json:"id"`
	// Intended is the moment the open-loop plan asked for; Sent is when it really went out. Latency
	// counts from Intended, so that a stall is not left out of the figures.
	Intended time.Time `json:"intended"`
	Sent     time.Time `json:"sent"`
	Done     time.Time `json:"done"`
	Error    string    `json:"error,omitempty"`
	ServedBy string    `json:"served_by,omitempty"`
	Via      string    `json:"via,omitempty"`
	// Tried lists the proxies that the client sent the request to, in order; ProxyAttempts is the
	// number of providers that the answering proxy sent it to.
	Tried         []string `json:"tried,omitempty"`
	ProxyAttempts int      `json:"proxy_attempts,omitempty"`
	Bytes         int      `json:"bytes,omitempty"`
}

// Failed reports whether the caller got an error.
func (r *Record) Failed() bool { return r.Error != "" }

// Latency counts from the moment the plan asked for.
func (r *Record) Latency() time.Duration { return r.Done.Sub(r.Intended) }

// Command is one line that a parent writes to the standard input of a process.
type Command struct {
	Call int             `json:"call"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

type emitter struct {
	mu sync.Mutex
	w  io.Writer
}

func newEmitter() (*emitter, error) {
	v := os.Getenv(EnvEvents)
	if v == "" {
		return &emitter{w: os.Stdout}, nil
	}
	fd, err := strconv.Atoi(v)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", EnvEvents, err)
	}
	return &emitter{w: os.NewFile(uintptr(fd), "events")}, nil
}

// emit drops what it cannot write: the parent is gone then, and nobody is left to tell.
func (e *emitter) emit(ev Event) {
	if ev.At.IsZero() {
		ev.At = time.Now()
	}
	b, err := json.Marshal(ev)
	if err != nil {
		b, _ = json.Marshal(Event{Kind: KindFatal, At: ev.At, Error: err.Error()})
	}
	b = append(b, '\n')
	e.mu.Lock()
	defer e.mu.Unlock()
	_, _ = e.w.Write(b)
}
