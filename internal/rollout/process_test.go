// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.uber.org/goleak"
)

import (
	"github.com/dubbogo/graceful/internal/shop"
)

func TestMain(m *testing.M) {
	before := goleak.IgnoreCurrent() // dubbo-go starts two when it is imported
	code := m.Run()
	if built.done != nil {
		_ = built.done.Close()
	}
	if code == 0 {
		if err := goleak.Find(before, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop")); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// script is a stand-in for a child: a shell that speaks on file 3 what body says.
func script(t *testing.T, body string) *Process {
	t.Helper()
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	path := t.TempDir() + "/child"
	require.NoError(t, os.WriteFile(path, []byte("#!"+sh+"\n"+body), 0o755))
	p, err := StartProcess(path, shop.Options{Role: shop.Provider, Name: "child", Dir: t.TempDir(), Protocol: "tri"}, nil)
	require.NoError(t, err)
	t.Cleanup(p.Stop)
	return p
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestProcessTellsWhenItListensAndHowItEnded(t *testing.T) {
	p := script(t, `echo '{"kind":"listening"}' >&3; trap 'exit 7' TERM; while :; do read -r _ || exit 1; done`)
	require.NoError(t, p.Ready(limited(t), nil))
	require.NoError(t, p.Term())
	e, err := p.Wait(limited(t))
	require.NoError(t, err)
	assert.Contains(t, []int{7, -1}, e.Code, "a shell may wait for its read before the trap")
	assert.Positive(t, e.Took)
}

func TestProcessThatFailsIsNotReady(t *testing.T) {
	p := script(t, `echo '{"kind":"fatal","error":"no registry"}' >&3; read -r _`)
	err := p.Ready(limited(t), nil)
	require.ErrorIs(t, err, ErrFatal)
	assert.ErrorContains(t, err, "no registry")
	assert.ErrorContains(t, err, p.LogPath())
}

func TestProcessThatExitsIsNotReady(t *testing.T) {
	p := script(t, `exit 3`)
	err := p.Ready(limited(t), nil)
	require.ErrorIs(t, err, ErrExited)
	assert.ErrorContains(t, err, "code 3")
	err = p.Call(limited(t), "load", nil, nil)
	require.Error(t, err)
}

func TestCallGetsItsOwnAnswer(t *testing.T) {
	p := script(t, `read -r _; echo '{"kind":"reply","call":1,"data":"one"}' >&3; read -r _; echo '{"kind":"reply","call":2,"error":"two"}' >&3; read -r _`)
	var answer string
	require.NoError(t, p.Call(limited(t), "first", nil, &answer))
	assert.Equal(t, "one", answer)
	assert.ErrorContains(t, p.Call(limited(t), "second", nil, nil), "two")
}

func TestKillIsReportedAsSignal(t *testing.T) {
	p := script(t, `echo '{"kind":"listening"}' >&3; read -r _`)
	require.NoError(t, p.Ready(limited(t), nil))
	require.NoError(t, p.Kill())
	e, err := p.Wait(limited(t))
	require.NoError(t, err)
	assert.Equal(t, "killed", e.Signal)
}

func TestFreePortsDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		port, err := FreePort()
		require.NoError(t, err)
		assert.False(t, seen[port])
		assert.Less(t, port, 32768, "the kernel takes ports of outgoing connections from above")
		seen[port] = true
	}
}

func TestAddressOfARecord(t *testing.T) {
	addr, err := addrOfURL("tri%3A%2F%2F127.0.0.1%3A20001%2Fshop.Backend%3Fa%3Db")
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1:20001", addr)
}

func TestUnknownRegistryNamesWhatIsAllowed(t *testing.T) {
	_, err := OpenDirectory(t.Context(), shop.Registry{Protocol: "consul"})
	assert.ErrorContains(t, err, "want zookeeper, nacos or etcdv3")
}
