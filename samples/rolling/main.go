// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Command rolling shows a rolling update under load in which no request fails.
//
//	go run ./samples/rolling                       embedded etcd, 3 providers, 3 proxies, 500 requests a second
//	go run ./samples/rolling -compare              the same again with dubbo-go alone
//	go run ./samples/rolling -registry zookeeper -address 127.0.0.1:2181
//
// A client sends an open-loop load to proxies, which call providers; all are processes of their own
// and use failfast with retries: 0. While the load runs, every provider and every proxy is
// replaced, one is added, one is taken away, and one is killed with SIGKILL. The output is one view
// that refreshes, or plain lines if it is no terminal; then a table and an HTML report.
//
// The exit code is 1 if a request failed that was not in flight on the killed process, or if plan,
// answers and what the handlers wrote down do not agree.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

import (
	"github.com/mattn/go-isatty"
)

import (
	"github.com/dubbogo/graceful/internal/rollout"
	"github.com/dubbogo/graceful/internal/shop"
)

type flags struct {
	providers, proxies int
	rate               float64
	handler            time.Duration
	registry, address  string
	level, protocol    string
	compare, plain     bool
	out                string
}

func parse(args []string) (*flags, error) {
	f := new(flags)
	fs := flag.NewFlagSet("rolling", flag.ContinueOnError)
	fs.IntVar(&f.providers, "providers", 3, "number of providers")
	fs.IntVar(&f.proxies, "proxies", 3, "number of proxies between client and providers")
	fs.Float64Var(&f.rate, "rate", 500, "requests a second, sent on schedule whatever becomes of the ones before")
	fs.DurationVar(&f.handler, "handler", 20*time.Millisecond, "time that a provider works on a request")
	fs.StringVar(&f.registry, "registry", rollout.Etcd, "registry: etcdv3, zookeeper or nacos")
	fs.StringVar(&f.address, "address", "", "host:port of a running registry; without it an etcd is embedded")
	fs.StringVar(&f.level, "level", string(shop.LevelInterface), "what is registered: interface or service")
	fs.StringVar(&f.protocol, "protocol", "tri", "protocol: tri or dubbo")
	fs.BoolVar(&f.compare, "compare", false, "run the same again with dubbo-go alone, and show both")
	fs.BoolVar(&f.plain, "plain", false, "print lines even to a terminal")
	fs.StringVar(&f.out, "out", filepath.Join("samples", "rolling", "out"), "directory for report, ledgers and logs; its old content is removed")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.registry != rollout.Etcd && f.registry != rollout.ZooKeeper && f.registry != rollout.Nacos:
		return nil, fmt.Errorf("-registry %q: want etcdv3, zookeeper or nacos", f.registry)
	case f.registry != rollout.Etcd && f.address == "":
		return nil, fmt.Errorf("-registry %s needs -address host:port of a running server; only etcd can be embedded", f.registry)
	case f.level != string(shop.LevelInterface) && f.level != string(shop.LevelService):
		return nil, fmt.Errorf("-level %q: want interface or service", f.level)
	case f.protocol != "tri" && f.protocol != "dubbo":
		return nil, fmt.Errorf("-protocol %q: want tri or dubbo", f.protocol)
	case f.providers < 2 || f.proxies < 1:
		return nil, errors.New("want at least 2 providers, since one of them is killed, and 1 proxy")
	case f.rate <= 0:
		return nil, errors.New("-rate: want more than 0")
	case f.handler < 0:
		return nil, errors.New("-handler: want no negative time")
	}
	return f, nil
}

func main() {
	f, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := demo(ctx, f)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "rolling:", err)
		os.Exit(1)
	case !ok:
		os.Exit(1)
	}
}

// contestant is one of the two programs that go through the scenario.
type contestant struct {
	title    string
	binary   string
	registry func(address string) shop.Registry
	settings map[string]any // dubbo.custom.config-map
}

func (f *flags) contestants(bins *rollout.Binaries) []contestant {
	level := shop.Level(f.level)
	all := []contestant{{
		title: "dubbo-go with graceful", binary: bins.Graceful,
		registry: func(address string) shop.Registry { return rollout.Graceful(f.registry, address, level) },
		// A warm-up as short as the demo is.
		settings: map[string]any{"graceful": map[string]any{"loadbalance": "blacklist", "warmup": map[string]any{"window": "10s"}}},
	}}
	if f.compare {
		all = append(all, contestant{
			title: "dubbo-go alone", binary: bins.Plain,
			registry: func(address string) shop.Registry { return rollout.Plain(f.registry, address, level) },
		})
	}
	return all
}

func demo(ctx context.Context, f *flags) (ok bool, err error) {
	out, err := filepath.Abs(f.out)
	if err != nil {
		return false, err
	}
	if err := emptyDir(out); err != nil {
		return false, err
	}
	fmt.Println("building the processes of the demo ...")
	bins, err := rollout.Build(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, bins.Close()) }()

	var reports []*rollout.Report
	for i, c := range f.contestants(bins) {
		dir := filepath.Join(out, fmt.Sprintf("run-%d", i+1))
		r, err := f.run(ctx, c, dir)
		if err != nil {
			return false, fmt.Errorf("%s: %w (logs: %s)", c.title, err, dir)
		}
		reports = append(reports, r)
		printTable(os.Stdout, r)
	}
	path, err := writeReport(out, f, reports)
	if err != nil {
		return false, err
	}
	printVerdict(os.Stdout, reports, path)
	// dubbo-go alone is there to be looked at, the exit code is about the module.
	return reports[0].OK(), nil
}

// run takes one contestant through the scenario, with a registry of its own if it is embedded.
func (f *flags) run(ctx context.Context, c contestant, dir string) (*rollout.Report, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	address := f.address
	if address == "" {
		etcd, err := startEtcd(ctx, filepath.Join(dir, "etcd"))
		if err != nil {
			return nil, err
		}
		defer etcd.close()
		address = etcd.address
	}
	cfg := rollout.Config{
		Title: c.title, Binary: c.binary, Dir: dir, Registry: c.registry(address), Protocol: f.protocol,
		Providers: f.providers, Proxies: f.proxies, Rate: f.rate, HandlerTime: f.handler,
		Edit: func(o *shop.Options) { o.Custom = c.settings },
	}
	view := newView(os.Stdout, f, c.title, !f.plain && isatty.IsTerminal(os.Stdout.Fd()))
	view.note("starting " + count(f.providers, "provider", "providers") + ", " + count(f.proxies, "proxy", "proxies") + " and a client")
	run, err := rollout.Start(ctx, cfg)
	if err != nil {
		view.stop()
		return nil, err
	}
	defer run.Close()
	view.follow(run)
	err = scenario(ctx, run, view)
	view.stop()
	if err != nil {
		return nil, err
	}
	r, err := run.Finish(ctx)
	if err != nil {
		return nil, err
	}
	// In order, so that a registry that goes on running is left as clean as it was found.
	run.Shutdown(ctx)
	return r, nil
}

// steps of the scenario. Each is followed by a stretch in which nothing changes, so that what comes
// late is seen too.
func scenario(ctx context.Context, run *rollout.Run, v *view) error {
	const settle = 3 * time.Second
	then := func(f func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error { return errors.Join(f(ctx), run.Hold(ctx, settle)) }
	}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"steady", func(ctx context.Context) error { return run.Hold(ctx, settle) }},
		{"roll providers", then(func(ctx context.Context) error { return run.Roll(ctx, shop.Provider) })},
		{"roll proxies", then(func(ctx context.Context) error { return run.Roll(ctx, shop.Proxy) })},
		{"scale out", then(func(ctx context.Context) error { _, err := run.ScaleOut(ctx, shop.Provider); return err })},
		{"scale in", then(func(ctx context.Context) error { _, err := run.ScaleIn(ctx, shop.Provider); return err })},
		{"kill -9", func(ctx context.Context) error {
			// Not at once, so that what is in flight then was sent in this step too.
			if err := run.Hold(ctx, settle/6); err != nil {
				return err
			}
			if _, err := run.Kill(ctx, shop.Provider); err != nil {
				return err
			}
			return run.Hold(ctx, 2*settle)
		}},
	}
	for i, s := range steps {
		v.step(i, len(steps), s.name)
		if err := run.Step(ctx, s.name, s.do); err != nil {
			return err
		}
	}
	v.step(len(steps), len(steps), "done")
	return nil
}

// emptyDir makes dir, and clears it if it looks like an earlier output of this program.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		switch ok, _ := filepath.Match("run-*", e.Name()); {
		case ok && e.IsDir(), e.Name() == reportName, e.Name() == dataName:
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		default:
			return fmt.Errorf("-out %s: %s is not from this program, so the directory is left alone", dir, e.Name())
		}
	}
	return os.MkdirAll(dir, 0o755)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
