// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.uber.org/goleak"

	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type tree = map[string]any

func TestDefaultsAreValid(t *testing.T) {
	require.NoError(t, Default().Validate())
	for _, nothing := range []tree{nil, {}, {"graceful": nil}, {"graceful": tree{}}, {"graceful": tree{"drain": nil}}, {"graceful": tree{"drain": tree{}}}, {"other": tree{"graceful": 1}}} {
		s, set, err := Decode(nothing)
		require.NoError(t, err)
		assert.Equal(t, Default(), s)
		assert.Empty(t, set)
	}
}

func TestDefaultValues(t *testing.T) {
	want := map[string]string{
		"loadbalance": "dubbo-go's own", "retry.enabled": "true", "health.check.interval": "10s",
		"drain.timeout": "3s", "drain.quiet": "200ms", "drain.min-wait": "0s", "drain.settle-timeout": "8s", "drain.caller-window": "1m",
		"drain.inbound-timeout": "the rest of the budget", "drain.outbound-timeout": "3s", "drain.vanilla-tag": "false",
		"warmup.window": "2m", "warmup.curve": "1", "warmup.floor": "0.1", "warmup.requests": "100", "warmup.policy": "random",
		"blacklist.connect-errors": "1", "blacklist.transport-errors": "1", "blacklist.timeout-errors": "5", "blacklist.base": "1s", "blacklist.max": "1m",
		"blacklist.max-percent": "50", "blacklist.panic-percent": "20", "blacklist.notice-time": "2m", "blacklist.loadbalance": "warmup",
		"register.delay": "0s", "register.timeout": "10s", "register.on-timeout": "register",
		"shutdown.linger": "100ms", "shutdown.exit-code": "1", "shutdown.timeout": "60s, or `grace-period` less 5s",
		"shutdown.grace-period": "30s in Kubernetes", "shutdown.callback-timeout": "5s",
		"registry.hold-timeout": "30s",
	}
	got := map[string]string{}
	for _, k := range Keys() {
		got[k.Name] = k.Default
	}
	assert.Equal(t, want, got)
}

func TestDecodeNestedFlatAndMixed(t *testing.T) {
	want := Default()
	want.Apply(WithDrainTimeout(9*time.Second), WithWarmupCurve(2), WithRetryEnabled(false), WithBlacklistMaxPercent(30), WithLoadbalance("blacklist"))
	for name, in := range map[string]tree{
		"nested": {"graceful": tree{"drain": tree{"timeout": "9s"}, "warmup": tree{"curve": 2}, "retry": tree{"enabled": false}, "blacklist": tree{"max-percent": 30}, "loadbalance": "blacklist"}},
		"flat":   {"graceful.drain.timeout": "9s", "graceful.warmup.curve": 2.0, "graceful.retry.enabled": "false", "graceful.blacklist.max-percent": "30", "graceful.loadbalance": "blacklist"},
		"mixed":  {"graceful": tree{"drain.timeout": 9 * time.Second, "loadbalance": "blacklist"}, "graceful.warmup": tree{"curve": "2"}, "graceful.retry.enabled": false, "graceful.blacklist": map[any]any{"max-percent": uint64(30)}},
	} {
		t.Run(name, func(t *testing.T) {
			s, set, err := Decode(in)
			require.NoError(t, err)
			assert.Equal(t, want, s)
			assert.Equal(t, map[string]bool{"drain.timeout": true, "warmup.curve": true, "retry.enabled": true, "blacklist.max-percent": true, "loadbalance": true}, set)
		})
	}
}

func TestDecodeErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		in   tree
		want string
	}{
		"bare number":                  {tree{"graceful": tree{"drain": tree{"timeout": 3000}}}, "graceful.drain.timeout: 3000 has no unit, write 3000ms; allowed: a duration from 0s to 24h"},
		"bare number as text":          {tree{"graceful.drain.timeout": "3000"}, "graceful.drain.timeout: 3000 has no unit, write 3000ms; allowed: a duration from 0s to 24h"},
		"no duration":                  {tree{"graceful.drain.timeout": "soon"}, "graceful.drain.timeout: soon is no duration; allowed: a duration from 0s to 24h"},
		"list for a duration":          {tree{"graceful.drain.timeout": []any{"3s"}}, "graceful.drain.timeout: [3s] is no duration; allowed: a duration from 0s to 24h"},
		"map for a duration":           {tree{"graceful.drain.timeout": tree{"a": "3s"}}, "graceful.drain.timeout: map[a:3s] is no duration; allowed: a duration from 0s to 24h"},
		"empty map for a duration":     {tree{"graceful.drain.timeout": tree{}}, "graceful.drain.timeout: map[] is no duration; allowed: a duration from 0s to 24h"},
		"nothing for a duration":       {tree{"graceful": tree{"drain": tree{"timeout": nil}}}, "graceful.drain.timeout: nothing is no value; allowed: a duration from 0s to 24h"},
		"negative duration":            {tree{"graceful.drain.timeout": "-3s"}, "graceful.drain.timeout: -3s is not allowed; allowed: a duration from 0s to 24h"},
		"endless duration":             {tree{"graceful.drain.timeout": "25h"}, "graceful.drain.timeout: 25h is not allowed; allowed: a duration from 0s to 24h"},
		"window below a second":        {tree{"graceful.warmup.window": "999ms"}, "graceful.warmup.window: 999ms is not allowed; allowed: a duration from 1s to 24h"},
		"curve zero":                   {tree{"graceful.warmup.curve": 0}, "graceful.warmup.curve: 0 is not allowed; allowed: a number above 0 and up to 10"},
		"curve not a number":           {tree{"graceful.warmup.curve": math.NaN()}, "graceful.warmup.curve: NaN is not allowed; allowed: a number above 0 and up to 10"},
		"curve as a word":              {tree{"graceful.warmup.curve": "steep"}, "graceful.warmup.curve: steep is no number; allowed: a number above 0 and up to 10"},
		"floor zero":                   {tree{"graceful.warmup.floor": 0}, "graceful.warmup.floor: 0 is not allowed; allowed: a number above 0 and up to 1"},
		"percent above 100":            {tree{"graceful.blacklist.max-percent": 101}, "graceful.blacklist.max-percent: 101 is not allowed; allowed: a whole number from 0 to 100"},
		"percent below 0":              {tree{"graceful.blacklist.panic-percent": -1}, "graceful.blacklist.panic-percent: -1 is not allowed; allowed: a whole number from 0 to 100"},
		"percent sign":                 {tree{"graceful.blacklist.max-percent": "50%"}, "graceful.blacklist.max-percent: 50% is no whole number; allowed: a whole number from 0 to 100"},
		"fraction for a whole number":  {tree{"graceful.warmup.requests": 1.5}, "graceful.warmup.requests: 1.5 is no whole number; allowed: a whole number from 0 to 1000000"},
		"huge number":                  {tree{"graceful.warmup.requests": 1e300}, "graceful.warmup.requests: 1e+300 is no whole number; allowed: a whole number from 0 to 1000000"},
		"negative errors":              {tree{"graceful.blacklist.timeout-errors": -5}, "graceful.blacklist.timeout-errors: -5 is not allowed; allowed: a whole number from 0 to 1000"},
		"yes for a switch":             {tree{"graceful.retry.enabled": "yes"}, "graceful.retry.enabled: yes is neither true nor false; allowed: true, false"},
		"number for a switch":          {tree{"graceful.retry.enabled": 1}, "graceful.retry.enabled: 1 is neither true nor false; allowed: true, false"},
		"number for a text":            {tree{"graceful.warmup.policy": 1}, "graceful.warmup.policy: 1 is no text; allowed: random"},
		"unknown choice":               {tree{"graceful.register.on-timeout": "retry"}, "graceful.register.on-timeout: retry is not allowed; allowed: register, stop"},
		"empty choice":                 {tree{"graceful.register.on-timeout": ""}, `graceful.register.on-timeout: "" is not allowed; allowed: register, stop`},
		"blacklist of blacklist":       {tree{"graceful.blacklist.loadbalance": "blacklist"}, "graceful.blacklist.loadbalance: blacklist is not allowed; allowed: the name of a registered load balancer other than blacklist"},
		"exit code of a signal":        {tree{"graceful.shutdown.exit-code": 143}, "graceful.shutdown.exit-code: 143 is not allowed; allowed: a whole number from 0 to 125"},
		"grace period without reserve": {tree{"graceful.shutdown.grace-period": "5s"}, "graceful.shutdown.grace-period: 5s is not allowed; allowed: 0s, or a duration above 5s and up to 24h"},
		"budget above grace period":    {tree{"graceful.shutdown": tree{"timeout": "60s", "grace-period": "30s"}}, "graceful.shutdown.timeout: 1m is longer than the platform waits; allowed: a duration up to graceful.shutdown.grace-period, which is 30s"},
		"max below base":               {tree{"graceful.blacklist.base": "5s", "graceful.blacklist.max": "2s"}, "graceful.blacklist.max: 2s is shorter than the first ejection; allowed: a duration not below graceful.blacklist.base, which is 5s"},

		"unknown key":            {tree{"graceful": tree{"drain": tree{"timout": "3s"}}}, "graceful.drain.timout: 3s is set, but there is no such key, the nearest is graceful.drain.timeout; allowed: graceful.drain.timeout = a duration from 0s to 24h"},
		"unknown key, camel":     {tree{"graceful.blacklist.maxPercent": 50}, "graceful.blacklist.maxPercent: 50 is set, but there is no such key, the nearest is graceful.blacklist.max-percent; allowed: graceful.blacklist.max-percent = a whole number from 0 to 100"},
		"unknown key, no group":  {tree{"graceful": tree{"curve": 2}}, "graceful.curve: 2 is set, but there is no such key, the nearest is graceful.warmup.curve; allowed: graceful.warmup.curve = a number above 0 and up to 10"},
		"unknown group":          {tree{"graceful": tree{"blackist": tree{"base": "1s"}}}, "graceful.blackist.base: 1s is set, but there is no such key, the nearest is graceful.blacklist.base; allowed: graceful.blacklist.base = a duration from 10ms to 24h"},
		"unknown empty group":    {tree{"graceful": tree{"warm-up": tree{}}}, ""},
		"below a key":            {tree{"graceful.drain.timeout.ms": 3}, "graceful.drain.timeout.ms: 3 is set, but there is no such key, the nearest is graceful.drain.timeout; allowed: graceful.drain.timeout = a duration from 0s to 24h"},
		"key of later work":      {tree{"graceful.admin.enabled": true}, ""},
		"value for a group":      {tree{"graceful": tree{"retry": true}}, "graceful.retry: true stands where a group of keys begins; allowed: graceful.retry.enabled"},
		"value for everything":   {tree{"graceful": "on"}, ""},
		"set twice":              {tree{"graceful": tree{"drain": tree{"timeout": "3s"}}, "graceful.drain.timeout": "9s"}, "graceful.drain.timeout: 3s and 9s are both set, nested and flat; allowed: one of them"},
		"set twice, the same":    {tree{"graceful": tree{"drain": tree{"timeout": "3s"}}, "graceful.drain": tree{"timeout": "3s"}}, "graceful.drain.timeout: 3s and 3s are both set, nested and flat; allowed: one of them"},
		"without prefix, flat":   {tree{"warmup.requests": 100}, "warmup.requests: 100 has no effect without the prefix, write graceful.warmup.requests; allowed: a whole number from 0 to 1000000"},
		"without prefix, nested": {tree{"health": tree{"check": tree{"interval": "5s"}}}, "health.check.interval: 5s has no effect without the prefix, write graceful.health.check.interval; allowed: a duration from 100ms to 24h"},
		"several lines":          {tree{"graceful.drain.timeout": "3s\nand\tmore"}, "graceful.drain.timeout: 3s and more is no duration; allowed: a duration from 0s to 24h"},
	} {
		t.Run(name, func(t *testing.T) {
			s, set, err := Decode(tc.in)
			require.ErrorIs(t, err, ErrInvalid)
			var typed *Error
			require.ErrorAs(t, err, &typed)
			assert.NotEmpty(t, typed.Key)
			assert.NotEmpty(t, typed.Value)
			assert.NotEmpty(t, typed.Allowed)
			assert.NotContains(t, err.Error(), "\n")
			assert.Equal(t, Default(), s, "no half-read settings")
			assert.Empty(t, set)
			if tc.want != "" {
				assert.EqualError(t, err, tc.want)
			}
		})
	}
}

func TestKeysOfTheApplicationAreLeftAlone(t *testing.T) {
	s, _, err := Decode(tree{"retry": tree{"enabled": "always"}, "loadbalance": 3, "registry": tree{"hold-timeout": 1}, "warmup": true, "drain": tree{"pipes": 2}, "gracefully": 1})
	require.NoError(t, err)
	assert.Equal(t, Default(), s)
}

// Every key has a functional option whose name follows from the key's, and nothing else in this package is called With.
func TestEveryKeyHasItsOption(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "options.go", nil, 0)
	require.NoError(t, err)
	var declared []string
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "With") {
			declared = append(declared, f.Name.Name)
		}
	}
	var want []string
	for _, k := range Keys() {
		want = append(want, k.Option)
	}
	assert.Equal(t, want, declared, "in the order of the table")
}

// example has for each key a value that is allowed and not the default, and the option that sets it.
var example = map[string]struct {
	value  any
	option Option
}{
	"loadbalance":                {"p2c", WithLoadbalance("p2c")},
	"retry.enabled":              {false, WithRetryEnabled(false)},
	"health.check.interval":      {"1s", WithHealthCheckInterval(time.Second)},
	"drain.timeout":              {"1s", WithDrainTimeout(time.Second)},
	"drain.quiet":                {"1s", WithDrainQuiet(time.Second)},
	"drain.min-wait":             {"1s", WithDrainMinWait(time.Second)},
	"drain.settle-timeout":       {"1s", WithDrainSettleTimeout(time.Second)},
	"drain.caller-window":        {"1s", WithDrainCallerWindow(time.Second)},
	"drain.inbound-timeout":      {"1s", WithDrainInboundTimeout(time.Second)},
	"drain.outbound-timeout":     {"1s", WithDrainOutboundTimeout(time.Second)},
	"drain.vanilla-tag":          {true, WithDrainVanillaTag(true)},
	"warmup.window":              {"1s", WithWarmupWindow(time.Second)},
	"warmup.curve":               {2.5, WithWarmupCurve(2.5)},
	"warmup.floor":               {0.5, WithWarmupFloor(0.5)},
	"warmup.requests":            {7, WithWarmupRequests(7)},
	"warmup.policy":              {"random", WithWarmupPolicy("random")},
	"blacklist.connect-errors":   {7, WithBlacklistConnectErrors(7)},
	"blacklist.transport-errors": {7, WithBlacklistTransportErrors(7)},
	"blacklist.timeout-errors":   {7, WithBlacklistTimeoutErrors(7)},
	"blacklist.base":             {"2s", WithBlacklistBase(2 * time.Second)},
	"blacklist.max":              {"30s", WithBlacklistMax(30 * time.Second)},
	"blacklist.max-percent":      {7, WithBlacklistMaxPercent(7)},
	"blacklist.panic-percent":    {7, WithBlacklistPanicPercent(7)},
	"blacklist.notice-time":      {"1s", WithBlacklistNoticeTime(time.Second)},
	"blacklist.loadbalance":      {"random", WithBlacklistLoadbalance("random")},
	"register.delay":             {"1s", WithRegisterDelay(time.Second)},
	"register.timeout":           {"1s", WithRegisterTimeout(time.Second)},
	"register.on-timeout":        {"stop", WithRegisterOnTimeout("stop")},
	"shutdown.linger":            {"1s", WithShutdownLinger(time.Second)},
	"shutdown.exit-code":         {7, WithShutdownExitCode(7)},
	"shutdown.timeout":           {"1s", WithShutdownTimeout(time.Second)},
	"shutdown.grace-period":      {"20s", WithShutdownGracePeriod(20 * time.Second)},
	"shutdown.callback-timeout":  {"1s", WithShutdownCallbackTimeout(time.Second)},
	"registry.hold-timeout":      {"1s", WithRegistryHoldTimeout(time.Second)},
}

func TestOptionAndKeySetTheSameField(t *testing.T) {
	for _, k := range Keys() {
		e, ok := example[k.Name]
		require.True(t, ok, k.Name)
		byOption := Default()
		byOption.Apply(e.option)
		byKey, set, err := Decode(tree{"graceful." + k.Name: e.value})
		require.NoError(t, err)
		assert.Equal(t, byKey, byOption, k.Name)
		assert.Equal(t, map[string]bool{k.Name: true}, set)
		assert.True(t, byKey.IsSet(k.Name))
		// The one key with a single allowed value cannot change anything.
		assert.Equal(t, k.Name == "warmup.policy", sameButSet(Default(), byKey), "%s changes its field", k.Name)
	}
}

func sameButSet(a, b Settings) bool {
	a.set, b.set = 0, 0
	return a == b
}

func TestIsSet(t *testing.T) {
	s := Default()
	assert.False(t, s.IsSet("drain.timeout"))
	assert.False(t, s.IsSet("no.such.key"))
	s.Apply(WithDrainTimeout(s.Drain.Timeout))
	assert.True(t, s.IsSet("drain.timeout"), "also when it is the default")
	s.Apply(func(s *Settings) { s.Warmup.Curve = 3 })
	assert.True(t, s.IsSet("warmup.curve"), "also through an option of the caller's own")
	assert.False(t, s.IsSet("warmup.floor"))
}

func TestNearest(t *testing.T) {
	for name, want := range map[string]string{
		"drain.tmeout":             "drain.timeout",
		"drain.settleTimeout":      "drain.settle-timeout",
		"drain.settle_timeout":     "drain.settle-timeout",
		"warmup.windows":           "warmup.window",
		"loadbalancer":             "loadbalance",
		"healthcheck.interval":     "health.check.interval",
		"health-check.interval":    "health.check.interval",
		"grace-period":             "shutdown.grace-period",
		"exit-code":                "shutdown.exit-code",
		"blacklist.transporterror": "blacklist.transport-errors",
	} {
		assert.Equal(t, want, nearest(name), name)
	}
}

func TestDelegate(t *testing.T) {
	for _, tc := range []struct {
		protocol, delegate string // "-" for a parameter that is not there
		want               string
		err                string
	}{
		{"graceful", "zookeeper", "zookeeper", ""},
		{"graceful", "nacos", "nacos", ""},
		{"graceful", "etcdv3", "etcdv3", ""},
		{"graceful+nacos", "-", "nacos", ""},
		{"graceful+nacos", "nacos", "nacos", ""},
		{"nacos", "-", "", ""},
		{"", "-", "", ""},
		{"graceful", "-", "", "params.graceful.delegate: nothing is set, but the protocol graceful needs a registry behind it; allowed: zookeeper, nacos, etcdv3"},
		{"graceful", "", "", `params.graceful.delegate: "" is no supported registry; allowed: zookeeper, nacos, etcdv3`},
		{"graceful", "consul", "", "params.graceful.delegate: consul is no supported registry; allowed: zookeeper, nacos, etcdv3"},
		{"graceful", "graceful", "", "params.graceful.delegate: graceful is no supported registry; allowed: zookeeper, nacos, etcdv3"},
		{"graceful+consul", "-", "", "protocol: graceful+consul names a registry that is not supported; allowed: graceful+ and one of zookeeper, nacos, etcdv3"},
		{"graceful+nacos", "zookeeper", "", "params.graceful.delegate: zookeeper contradicts the scheme graceful+nacos of the address; allowed: nacos, or nothing"},
		{"nacos", "nacos", "", "protocol: nacos ignores graceful.delegate=nacos (a scheme in address overwrites protocol); allowed: graceful with an address without a scheme, or an address that begins with graceful+nacos://"},
		{"zookeeper", "consul", "", "protocol: zookeeper ignores graceful.delegate=consul (a scheme in address overwrites protocol); allowed: graceful with an address without a scheme, or an address that begins with graceful+zookeeper://"},
	} {
		params := map[string]string{}
		if tc.delegate != "-" {
			params[DelegateKey] = tc.delegate
		}
		got, err := Delegate(tc.protocol, params)
		assert.Equal(t, tc.want, got, "%+v", tc)
		if tc.err == "" {
			assert.NoError(t, err)
			continue
		}
		assert.EqualError(t, err, tc.err)
		assert.ErrorIs(t, err, ErrInvalid)
	}
}

func TestDelegatesIsACopy(t *testing.T) {
	Delegates()[0] = "changed"
	assert.Equal(t, []string{"zookeeper", "nacos", "etcdv3"}, Delegates())
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 2 * time.Minute: "2m", 24 * time.Hour: "24h", 90 * time.Second: "1m30s", time.Hour + time.Minute: "1h1m",
		100 * time.Millisecond: "100ms", 10 * time.Minute: "10m", 20 * time.Hour: "20h", time.Hour + time.Second: "1h0m1s",
	} {
		assert.Equal(t, want, Short(d))
	}
}

// Whatever is set, nested at any depth or flat, is what comes out, and nothing else changes.
func TestDecodeIsTheInverseOfWritingDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Default()
		in := tree{}
		for _, k := range keys {
			if !rapid.Bool().Draw(t, k.name) {
				continue
			}
			field := k.field(&want)
			written := draw(t, field)
			if !k.rule.ok(value(field)) {
				// Not a value for this key: leave it alone.
				restored := Default()
				copyField(field, k.field(&restored))
				continue
			}
			want.set |= 1 << byName[k.name]
			put(t, in, "graceful."+k.name, written)
		}
		if want.Validate() != nil {
			t.Skip("two keys contradict each other")
		}
		got, set, err := Decode(in)
		if err != nil {
			t.Fatalf("%v: %v", in, err)
		}
		if got != want {
			t.Fatalf("%v:\n got %+v\nwant %+v", in, got, want)
		}
		for _, k := range keys {
			if set[k.name] != want.IsSet(k.name) {
				t.Fatalf("%s: set=%v", k.name, set[k.name])
			}
		}
	})
}

// draw gives a field a random value and returns it as a file might spell it.
func draw(t *rapid.T, field any) any {
	switch f := field.(type) {
	case *time.Duration:
		*f = time.Duration(rapid.Int64Range(-int64(time.Second), int64(25*time.Hour)).Draw(t, "duration"))
		return f.String()
	case *int:
		*f = rapid.IntRange(-2, 200).Draw(t, "int")
		return rapid.SampledFrom([]any{*f, int64(*f), float64(*f), fmt.Sprint(*f)}).Draw(t, "spelling")
	case *float64:
		*f = rapid.Float64Range(-1, 11).Draw(t, "float")
		return rapid.SampledFrom([]any{*f, fmt.Sprint(*f)}).Draw(t, "spelling")
	case *bool:
		*f = rapid.Bool().Draw(t, "bool")
		return rapid.SampledFrom([]any{*f, fmt.Sprint(*f)}).Draw(t, "spelling")
	case *string:
		*f = rapid.SampledFrom([]string{"", "random", "stop", "register", "warmup", "blacklist"}).Draw(t, "text")
		return *f
	default:
		t.Fatalf("no generator for %T", field)
		return nil
	}
}

func copyField(to, from any) {
	switch f := to.(type) {
	case *time.Duration:
		*f = *from.(*time.Duration)
	case *int:
		*f = *from.(*int)
	case *float64:
		*f = *from.(*float64)
	case *bool:
		*f = *from.(*bool)
	case *string:
		*f = *from.(*string)
	}
}

// put writes a path into a tree, nesting at dots that it draws.
func put(t *rapid.T, in tree, path string, v any) {
	for i, r := range path {
		if r != '.' || !rapid.Bool().Draw(t, "nest") {
			continue
		}
		child, ok := in[path[:i]].(tree)
		if !ok {
			child = tree{}
			in[path[:i]] = child
		}
		put(t, child, path[i+1:], v)
		return
	}
	in[path] = v
}

// A mistyped key is never taken silently, and the hint is a key that exists.
func TestMistypedKeyIsAnError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom(keys).Draw(t, "key")
		i := rapid.IntRange(0, len(k.name)-1).Draw(t, "position")
		wrong := k.name[:i] + string(rapid.RuneFrom([]rune("abcxyz_-.0")).Draw(t, "letter")) + k.name[i+1:]
		if _, known := byName[wrong]; known {
			t.Skip("another key, or the same")
		}
		_, _, err := Decode(tree{"graceful." + wrong: example[k.name].value})
		var typed *Error
		if !errors.As(err, &typed) {
			t.Fatalf("%s: %v", wrong, err)
		}
		if typed.Key != "graceful."+wrong {
			t.Fatalf("names %s for %s", typed.Key, wrong)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(byName)), func(n string) bool { return strings.Contains(typed.Problem+typed.Allowed, n) }) {
			t.Fatalf("no hint in %v", err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{"graceful":null}`, `{"graceful":{"drain":{"timeout":"3s"}}}`, `{"graceful.drain.timeout":"9s","graceful":{"drain":{"timeout":"3s"}}}`,
		`{"graceful":{"drain":3}}`, `{"graceful.":1}`, `{"graceful..drain":1}`, `{"warmup.requests":1}`, `{"graceful":{"warmup":{"curve":1e400}}}`,
		`{"graceful":{"blacklist":{"max-percent":50.0,"base":"0"}}}`, `{"graceful":{"":{"":[]}}}`, `{"graceful.drain.timeout":"\u2028"}`,
		`{"graceful.drain.timeout":"9223372036854775807ns"}`, `{"graceful.warmup.requests":"0x10"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var in map[string]any
		if json.Unmarshal(data, &in) != nil {
			t.Skip()
		}
		s, set, err := Decode(in)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || strings.ContainsAny(err.Error(), "\r\n\u2028\u2029\u0085") || s != Default() || set != nil {
				t.Fatalf("bad error %q, settings %+v, set %v", err, s, set)
			}
			return
		}
		if err := s.Validate(); err != nil {
			t.Fatalf("accepted and yet invalid: %v", err)
		}
		for _, k := range keys {
			if !set[k.name] && value(k.field(&s)) != value(k.field(ref(Default()))) {
				t.Fatalf("%s changed without being set", k.name)
			}
		}
	})
}

func ref(s Settings) *Settings { return &s }
