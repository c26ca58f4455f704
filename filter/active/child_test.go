// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

import (
	"dubbo.apache.org/dubbo-go/v3/graceful_shutdown"

	"github.com/dubbogo/gost/log/logger"

	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/internal/drain"
	"github.com/dubbogo/graceful/internal/self"
	"github.com/dubbogo/graceful/internal/wire"
)

// Whether a process drains and rejects, and who it is, belongs to the whole process. A provider that rejects while its caller does not
// therefore is a child: this test binary with a role in its environment, "<protocol> <interface> <what it does>".
const roleKey = "GRACEFUL_ACTIVE_TEST_ROLE"

// child is such a provider.
type child struct {
	addr, start string
	results     []string
}

// startChild starts one. It ends with its standard input, so it cannot outlive the test.
func startChild(t testing.TB, protocol, iface, does string) child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0 log_path=/dev/null", roleKey+"="+strings.Join([]string{protocol, iface, does}, " "))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if results, ok := strings.CutPrefix(lines.Text(), "results "); ok {
			return child{results: strings.Fields(results)}
		}
		var c child
		if n, _ := fmt.Sscanf(lines.Text(), "ready %s %s", &c.addr, &c.start); n == 2 {
			return c
		}
	}
	require.Fail(t, "the child did not start")
	return child{}
}

// playRole is main of a child.
func playRole(role string) int {
	t := new(main)
	fields := strings.Fields(role)
	graceful_shutdown.Init(graceful_shutdown.WithoutInternalSignal())
	logger.SetLoggerLevel("fatal")
	f := newFaulty(t)
	addr := serve(t, fields[0], fields[1], ProviderKey, f.handler())
	if fields[2] == "breaks" {
		var results []any
		for _, reset := range []bool{false, true} {
			under, after := breakUnderCall(t, fields[0], fields[1], addr, f, reset)
			results = append(results, classify(context.Background(), under, addr), classify(context.Background(), after, addr))
		}
		fmt.Println(append([]any{"results"}, results...)...)
		return 0
	}
	if fields[2] == "rejects" {
		self.SetStatus(wire.Draining)
		drain.Inbound().Reject()
	}
	fmt.Printf("ready %s %s\n", addr, self.Current().Start)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// main is a testing.TB for what a child shares with the tests.
type main struct{ testing.TB }

func (*main) Helper() {}

func (*main) Cleanup(func()) {}

func (*main) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (*main) FailNow() { os.Exit(1) }

func (*main) Context() context.Context { return context.Background() }
