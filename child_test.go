// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3"
	"dubbo.apache.org/dubbo-go/v3/client"
	_ "dubbo.apache.org/dubbo-go/v3/imports"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/server"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.uber.org/goleak"
)

import (
	"github.com/dubbogo/graceful"
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/settings"
)

// The settings, dubbo-go's configuration and the exit belong to the process, so each test in here starts this test binary
// again as an application of its own. This variable names the application.
const appEnv = "GRACEFUL_TEST_APP"

// started is what an application prints when its start was not stopped.
const started = "the application has started"

// Greeter is a service without generated code, for both sides.
type Greeter struct{}

func (*Greeter) Greet(_ context.Context, name string) (string, error) { return "hello " + name, nil }

func (*Greeter) Reference() string { return "Greeter" }

type greeterClient struct {
	Greet func(ctx context.Context, name string) (string, error)
}

func (*greeterClient) Reference() string { return "GreeterClient" }

func TestMain(m *testing.M) {
	app, ok := apps[os.Getenv(appEnv)]
	if !ok {
		goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
		return
	}
	if err := app(); err != nil {
		fmt.Println("the start failed:", err)
		os.Exit(3)
	}
	s := settings.Get()
	fmt.Printf("%s: drain.timeout=%s warmup.window=%s loadbalance=%s shutdown.timeout=%s\n", started, s.Drain.Timeout, s.Warmup.Window, s.Loadbalance, s.Shutdown.Timeout)
	os.Exit(0)
}

var apps = map[string]func() error{
	"provider": func() error {
		dubbo.SetProviderService(&Greeter{})
		return load()
	},
	// dubbo.Load of 3.3.2 gives a reference without generated code none of its settings, so this one can never start; bad
	// input is found before that.
	"consumer": func() error {
		dubbo.SetConsumerService(&greeterClient{})
		return dubbo.Load()
	},
	"configured provider": func() error {
		if err := graceful.Configure(config.WithDrainTimeout(7*time.Second), config.WithLoadbalance("blacklist")); err != nil {
			return err
		}
		dubbo.SetProviderService(&Greeter{})
		return load()
	},
	"configured too late": func() error {
		dubbo.SetProviderService(&Greeter{})
		if err := load(); err != nil {
			return err
		}
		return graceful.Configure(config.WithDrainTimeout(7 * time.Second))
	},
	"badly configured": func() error { return graceful.Configure(config.WithWarmupCurve(0)) },
	"instance": func() error {
		ins, err := dubbo.NewInstance(dubbo.WithName("app"), dubbo.WithCustom(map[string]any{"graceful.drain.timeout": "8s"}))
		if err != nil {
			return err
		}
		if err := graceful.FromInstance(ins); err != nil {
			return err
		}
		return serve(ins)
	},
	"bad instance": func() error {
		ins, err := dubbo.NewInstance(dubbo.WithName("app"), dubbo.WithCustom(map[string]any{"graceful.drain.timeout": 8}))
		if err != nil {
			return err
		}
		return graceful.FromInstance(ins)
	},
	"instance with a bad registry": func() error {
		ins, err := dubbo.NewInstance(dubbo.WithName("app"), dubbo.WithRegistry(
			registry.WithID("main"), registry.WithRegistry("graceful"), registry.WithAddress("127.0.0.1:1"),
			registry.WithParams(map[string]string{"graceful.delegate": "consul"})))
		if err != nil {
			return err
		}
		return graceful.FromInstance(ins)
	},
	"instance with a wrong balancer": func() error {
		if err := graceful.Configure(config.WithLoadbalance("no-such")); err != nil {
			return err
		}
		ins, err := dubbo.NewInstance(dubbo.WithName("app"))
		if err != nil {
			return err
		}
		return serve(ins)
	},
	"client": func() error {
		if err := graceful.Configure(config.WithLoadbalance("blacklist")); err != nil {
			return err
		}
		cli, err := client.NewClient()
		if err != nil {
			return err
		}
		_, err = cli.NewService(&greeterClient{}, client.WithURL("tri://127.0.0.1:"+os.Getenv("GRACEFUL_TEST_PORT")))
		return err
	},
	"client with a bad registry": func() error {
		cli, err := client.NewClient(client.WithClientRegistry(
			registry.WithID("main"), registry.WithRegistry("graceful"), registry.WithAddress("127.0.0.1:1")))
		if err != nil {
			return err
		}
		_, err = cli.NewService(&greeterClient{})
		return err
	},
}

func serve(ins *dubbo.Instance) error {
	port, err := strconv.Atoi(os.Getenv("GRACEFUL_TEST_PORT"))
	if err != nil {
		return err
	}
	srv, err := ins.NewServer(server.WithServerProtocol(protocol.WithTriple(), protocol.WithIp("127.0.0.1"), protocol.WithPort(port)))
	if err != nil {
		return err
	}
	if err := srv.RegisterService(&Greeter{}, server.WithInterface("shop.Greeter")); err != nil {
		return err
	}
	go func() {
		if err := srv.Serve(); err != nil {
			fmt.Println("serve:", err)
			os.Exit(3)
		}
	}()
	waitForSettings()
	return nil
}

func load() error {
	if err := dubbo.Load(); err != nil {
		return err
	}
	waitForSettings()
	return nil
}

// waitForSettings returns when the first service has been set up; dubbo.Load and Serve do that on a goroutine of theirs.
func waitForSettings() {
	final := make(chan struct{})
	settings.OnLoad(func(*config.Settings) { close(final) })
	<-final
}

type exit struct {
	code           int
	stdout, stderr string
}

// run starts an application with a dubbogo.yml and waits for its end.
func run(t *testing.T, app, yml string) exit {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "dubbogo.yml")
	port := freePort(t)
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(yml, "PORT", port)), 0o600))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Dir = dir // Nacos's client writes beside it
	cmd.Env = append(os.Environ(), appEnv+"="+app, "DUBBO_GO_CONFIG_PATH="+file, "GRACEFUL_TEST_PORT="+port)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return exit{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

const providerYML = `
dubbo:
  application: {name: app}
  protocols: {tri: {name: tri, ip: 127.0.0.1, port: PORT}}
  provider: {services: {Greeter: {interface: shop.Greeter}}}
`

const consumerYML = `
dubbo:
  application: {name: app}
  consumer: {references: {GreeterClient: {interface: shop.Greeter, protocol: tri, url: "tri://127.0.0.1:PORT"}}}
`

func custom(configMap string) string { return "  custom: {config-map: " + configMap + "}\n" }

func registries(main string) string { return "  registries: {main: " + main + "}\n" }

func TestBadInputStopsTheStart(t *testing.T) {
	for name, tc := range map[string]struct {
		yml  string // what is added to a provider's and a consumer's dubbogo.yml
		want string
	}{
		"unknown key":        {custom(`{graceful: {drain: {timout: 3s}}}`), "graceful.drain.timout: 3s is set, but there is no such key, the nearest is graceful.drain.timeout; allowed: graceful.drain.timeout = a duration from 0s to 24h"},
		"key of later work":  {custom(`{graceful: {zone: a}}`), "graceful.zone: a is set, but there is no such key, the nearest is "},
		"wrong type":         {custom(`{graceful: {warmup: {curve: steep}}}`), "graceful.warmup.curve: steep is no number; allowed: a number above 0 and up to 10"},
		"bare number":        {custom(`{graceful: {drain: {timeout: 3000}}}`), "graceful.drain.timeout: 3000 has no unit, write 3000ms; allowed: a duration from 0s to 24h"},
		"negative duration":  {custom(`{graceful: {drain: {quiet: -1s}}}`), "graceful.drain.quiet: -1s is not allowed; allowed: a duration from 10ms to 24h"},
		"curve 0":            {custom(`{graceful: {warmup: {curve: 0}}}`), "graceful.warmup.curve: 0 is not allowed; allowed: a number above 0 and up to 10"},
		"window below 1s":    {custom(`{graceful: {warmup: {window: 900ms}}}`), "graceful.warmup.window: 900ms is not allowed; allowed: a duration from 1s to 24h"},
		"percent":            {custom(`{graceful: {blacklist: {max-percent: 150}}}`), "graceful.blacklist.max-percent: 150 is not allowed; allowed: a whole number from 0 to 100"},
		"nested and flat":    {custom(`{graceful: {drain: {timeout: 3s}}, graceful.drain.timeout: 9s}`), "graceful.drain.timeout: 3s and 9s are both set, nested and flat; allowed: one of them"},
		"flat, no prefix":    {custom(`{warmup.requests: 100}`), "warmup.requests: 100 has no effect without the prefix, write graceful.warmup.requests; allowed: a whole number from 0 to 1000000"},
		"nested, no prefix":  {custom(`{health: {check: {interval: 5s}}}`), "health.check.interval: 5s has no effect without the prefix, write graceful.health.check.interval; allowed: a duration from 100ms to 24h"},
		"balancer":           {custom(`{graceful: {loadbalance: fastest}}`), "graceful.loadbalance: fastest is no registered load balancer (is its package imported?); allowed: "},
		"blacklist delegate": {custom(`{graceful: {blacklist: {loadbalance: fastest}}}`), "graceful.blacklist.loadbalance: fastest is no registered load balancer (is its package imported?); allowed: "},
		"delegate missing":   {registries(`{protocol: graceful, address: "127.0.0.1:1"}`), "dubbo.registries.main.params.graceful.delegate: nothing is set, but the protocol graceful needs a registry behind it; allowed: zookeeper, nacos, etcdv3"},
		"unknown delegate":   {registries(`{protocol: graceful, address: "127.0.0.1:1", params: {graceful.delegate: consul}}`), "dubbo.registries.main.params.graceful.delegate: consul is no supported registry; allowed: zookeeper, nacos, etcdv3"},
		"nacos:// beside it": {registries(`{protocol: graceful, address: "nacos://127.0.0.1:1", params: {graceful.delegate: nacos}}`), "dubbo.registries.main.protocol: nacos ignores graceful.delegate=nacos (a scheme in address overwrites protocol); allowed: graceful with an address without a scheme, or an address that begins with graceful+nacos://"},
		"two delegates":      {registries(`{address: "graceful+nacos://127.0.0.1:1", params: {graceful.delegate: zookeeper}}`), "dubbo.registries.main.params.graceful.delegate: zookeeper contradicts the scheme graceful+nacos of the address; allowed: nacos, or nothing"},
	} {
		for app, base := range map[string]string{"provider": providerYML, "consumer": consumerYML} {
			t.Run(name+"/"+app, func(t *testing.T) {
				got := run(t, app, base+tc.yml)
				assert.Equal(t, 1, got.code, "%s", got.stdout)
				assert.NotContains(t, got.stdout, started)
				lines := strings.Split(strings.TrimSuffix(got.stderr, "\n"), "\n")
				require.Len(t, lines, 1, "%s", got.stderr)
				assert.True(t, strings.HasPrefix(lines[0], "graceful: "+tc.want), "got  %s\nwant graceful: %s", lines[0], tc.want)
			})
		}
	}
}

func TestGoodInputStarts(t *testing.T) {
	for name, tc := range map[string]struct {
		app, yml string
		want     string
	}{
		"nothing set": {"provider", providerYML, "drain.timeout=3s warmup.window=2m0s loadbalance= shutdown.timeout=0s"},
		"nested":      {"provider", providerYML + custom(`{graceful: {drain: {timeout: 9s}, warmup: {window: 1m}}}`), "drain.timeout=9s warmup.window=1m0s loadbalance= shutdown.timeout=0s"},
		"flat":        {"provider", providerYML + custom(`{graceful.drain.timeout: 9s, graceful.loadbalance: warmup, other: {keys: 1}}`), "drain.timeout=9s warmup.window=2m0s loadbalance=warmup shutdown.timeout=0s"},
		"placeholder": {"provider", providerYML + custom(`{graceful: {drain: {timeout: "${NO_SUCH_VARIABLE:4s}"}}}`), "drain.timeout=4s warmup.window=2m0s loadbalance= shutdown.timeout=0s"},
		"options win": {"configured provider", providerYML + custom(`{graceful: {drain: {timeout: 9s}, warmup: {window: 1m}}}`), "drain.timeout=7s warmup.window=1m0s loadbalance=blacklist shutdown.timeout=0s"},
		"dubbo's own": {"provider", providerYML + "  shutdown: {timeout: 20s, internal-signal: false}\n", "drain.timeout=3s warmup.window=2m0s loadbalance= shutdown.timeout=20s"},
		"client":      {"client", "", "drain.timeout=3s warmup.window=2m0s loadbalance=blacklist shutdown.timeout=0s"},
		"instance":    {"instance", "", "drain.timeout=8s warmup.window=2m0s loadbalance= shutdown.timeout=0s"},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, tc.app, tc.yml)
			assert.Equal(t, 0, got.code, "%s%s", got.stdout, got.stderr)
			assert.Contains(t, got.stdout, started+": "+tc.want)
			assert.NotContains(t, got.stderr, "graceful:")
		})
	}
}

// Applications that are configured in code get the error, and the process goes on.
func TestErrorsInCode(t *testing.T) {
	for name, want := range map[string]string{
		"configured too late":          graceful.ErrTooLate.Error(),
		"badly configured":             "graceful: graceful.warmup.curve: 0 is not allowed; allowed: a number above 0 and up to 10",
		"bad instance":                 "graceful: graceful.drain.timeout: 8 has no unit, write 8ms; allowed: a duration from 0s to 24h",
		"instance with a bad registry": "graceful: dubbo.registries.main.params.graceful.delegate: consul is no supported registry; allowed: zookeeper, nacos, etcdv3",
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, name, providerYML)
			assert.Equal(t, 3, got.code)
			assert.Contains(t, got.stdout, "the start failed: "+want+"\n")
			assert.Empty(t, got.stderr)
		})
	}
}

// What only shows when the first service or reference is set up ends the process, however the application was configured.
func TestErrorsThatShowLate(t *testing.T) {
	for name, want := range map[string]string{
		"instance with a wrong balancer": "graceful: graceful.loadbalance: no-such is no registered load balancer (is its package imported?); allowed: ",
		"client with a bad registry":     "graceful: dubbo.registries.main.params.graceful.delegate: nothing is set, but the protocol graceful needs a registry behind it; allowed: ",
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, name, "")
			assert.Equal(t, 1, got.code, "%s", got.stdout)
			assert.Equal(t, 1, strings.Count(got.stderr, "\n"), "%s", got.stderr)
			assert.True(t, strings.HasPrefix(got.stderr, want), "%s", got.stderr)
		})
	}
}
