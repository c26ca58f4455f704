// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollout starts, rolls, stops and kills real processes of internal/shop under an
// open-loop load, and accounts for every request afterwards. The demo (samples/rolling) and the
// integration suite are both written with it.
//
//	bins, err := rollout.Build(ctx)                    // both child binaries, once per process
//	run, err := rollout.Start(ctx, rollout.Config{     // 3 providers, 3 proxies, 1 client, load on
//		Binary:   bins.Graceful,                       // or bins.Plain: dubbo-go alone
//		Dir:      t.TempDir(),
//		Registry: rollout.Graceful("zookeeper", addr, shop.LevelInterface),
//		Protocol: "tri", Providers: 3, Proxies: 3, Rate: 300, HandlerTime: 20 * time.Millisecond,
//	})
//	defer run.Close()
//	err = run.Step(ctx, "roll providers", func(ctx context.Context) error { return run.Roll(ctx, shop.Provider) })
//	err = run.Step(ctx, "roll proxies", func(ctx context.Context) error { return run.Roll(ctx, shop.Proxy) })
//	report, err := run.Finish(ctx)                     // load ends, ledgers are read, all is compared
//
// A replacement counts as there when its port accepts connections and the registry itself lists it:
// both are looked up from outside ([Directory]), in the same way for every binary. The predecessor
// gets its SIGTERM at that moment.
//
// [Report] says per step what was sent, failed and retried and how long it took, and for each
// failure why ([Failure]). Report.Problems is the list of what must never be: planned, sent and
// answered differ; a successful request ran no handler or two; a failed one ran twice.
//
// Single processes can be had without a scenario: [StartProcess], then [Process.Ready],
// [Process.Term], [Process.Kill], [Process.Wait], [Process.Call].
//
// Only processes that this package started are ever signalled, each by its own id. A child ends
// by itself when its parent is gone.
package rollout
