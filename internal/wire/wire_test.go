// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pgregory.net/rapid"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

const start = "1700000000000-0123456789abcdef"

func TestStatus(t *testing.T) {
	for _, s := range []wire.Status{wire.Unknown, wire.Up, wire.Draining} {
		assert.Equal(t, s, wire.ParseStatus(s.String()))
	}
	for _, other := range []string{"up", " UP", "DOWN", "OUT_OF_SERVICE", "true"} {
		assert.Equal(t, wire.Unknown, wire.ParseStatus(other), other)
	}
	assert.Empty(t, wire.Status(9).String())
}

func TestMarkEncode(t *testing.T) {
	assert.Empty(t, wire.Mark{}.Encode())
	assert.Equal(t, "graceful.seq=2&graceful.start="+start+"&status=UP&warmup=2m0s",
		wire.Mark{Status: wire.Up, Start: start, Seq: 2, Warmup: "2m0s"}.Encode())
	assert.Equal(t, "warmup=a%26b", wire.Mark{Warmup: "a&b"}.Encode())
}

func TestParseMark(t *testing.T) {
	for name, tc := range map[string]struct {
		data string
		want wire.Mark
		bad  bool
	}{
		"nothing":               {data: ""},
		"an address, as Java":   {data: "192.168.0.7"},
		"JSON":                  {data: `{"name":"shop"}`},
		"other keys":            {data: "a=b&status=UP", want: wire.Mark{Status: wire.Up}},
		"a status not of ours":  {data: "status=OK&graceful.seq=3", want: wire.Mark{Seq: 3}},
		"first of two":          {data: "status=UP&status=DRAINING", want: wire.Mark{Status: wire.Up}},
		"seq is not a number":   {data: "graceful.seq=-1", bad: true},
		"seq too large":         {data: "graceful.seq=18446744073709551616", bad: true},
		"start with a bracket":  {data: "graceful.start=a%5D", bad: true},
		"not escaped":           {data: "status=%zz", bad: true},
		"start longer than any": {data: "graceful.start=" + strings.Repeat("a", 65), bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := wire.ParseMark(tc.data)
			if tc.bad {
				require.ErrorIs(t, err, wire.ErrMark)
				assert.Zero(t, m)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, m)
		})
	}
}

func marks(t *rapid.T) wire.Mark {
	return wire.Mark{
		Status: rapid.SampledFrom([]wire.Status{wire.Unknown, wire.Up, wire.Draining}).Draw(t, "status"),
		Start:  rapid.StringMatching(`([0-9a-zA-Z._-]{1,64})?`).Draw(t, "start"),
		Seq:    rapid.Uint64().Draw(t, "seq"),
		Warmup: rapid.String().Draw(t, "warmup"),
	}
}

func TestMarkRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := marks(t)
		back, err := wire.ParseMark(m.Encode())
		require.NoError(t, err)
		require.Equal(t, m, back)

		params := map[string]string{"interface": "shop.Backend"}
		m.PutInto(params)
		back, ours := wire.MarkFrom(func(k string) string { return params[k] })
		require.Equal(t, m, back)
		require.Equal(t, m.Status != wire.Unknown || m.Start != "" || m.Seq != 0, ours)
		require.Equal(t, "shop.Backend", params["interface"])
		for k, v := range params {
			if wire.IsMark(k, v) {
				delete(params, k)
			}
		}
		_, ours = wire.MarkFrom(func(k string) string { return params[k] })
		require.False(t, ours, "taken out")
		require.Equal(t, m.Warmup, params[wire.KeyWarmup], "warmup is everybody's")
	})
}

func TestMarkFromIgnoresWhatIsNoMark(t *testing.T) {
	params := url.Values{"status": {"active"}, "graceful.seq": {"x"}, "graceful.start": {"a b"}, "warmup": {"600"}}
	m, ours := wire.MarkFrom(params.Get)
	assert.False(t, ours)
	assert.Equal(t, wire.Mark{Warmup: "600"}, m)
}

func TestKeysAreMarks(t *testing.T) {
	for _, k := range wire.Keys() {
		assert.True(t, wire.IsMark(k, "UP"), k)
	}
	assert.False(t, wire.IsMark(wire.KeyStatus, "active"), "somebody else's status stays")
	assert.False(t, wire.IsMark(wire.KeyWarmup, "UP"))
}

func TestStartID(t *testing.T) {
	now := time.UnixMilli(1700000000123)
	a, b := wire.NewStartID(now), wire.NewStartID(now)
	assert.NotEqual(t, a, b)
	assert.Regexp(t, `^1700000000123-[0-9a-f]{16}$`, a)
	assert.True(t, wire.ValidStart(a))
	at, ok := wire.StartTime(a)
	assert.True(t, ok)
	assert.True(t, at.Equal(now))
	assert.True(t, wire.ValidStart(wire.NewStartID(time.Time{})), "a clock before 1970")
	for _, bad := range []string{"", "x-1", "-1-aa", "0-aa", "17", "99999999999999999999-a"} {
		_, ok = wire.StartTime(bad)
		assert.False(t, ok, bad)
	}
}

func TestDraining(t *testing.T) {
	assert.Equal(t, "DRAINING;id="+start, wire.FormatDraining(start))
	id, ok := wire.ParseDraining(wire.FormatDraining(start))
	assert.True(t, ok)
	assert.Equal(t, start, id)
	for _, bad := range []string{"", "DRAINING", "DRAINING;id=", "UP;id=" + start, "DRAINING;id=a;b", "DRAINING;id=" + strings.Repeat("a", 65), " DRAINING;id=a"} {
		id, ok = wire.ParseDraining(bad)
		assert.False(t, ok, bad)
		assert.Empty(t, id)
	}
}

func TestCaller(t *testing.T) {
	c := wire.Caller{App: "shop-proxy", IP: "10.0.0.7", Start: start, To: "10.0.0.9:20000"}
	assert.Equal(t, "shop-proxy@10.0.0.7/"+start+";to=10.0.0.9:20000", c.Format())
	for name, c := range map[string]wire.Caller{
		"plain":            c,
		"IPv6":             {App: "a", IP: "fe80::1", Start: start, To: "[fe80::2]:20000"},
		"separators":       {App: "a@b/c;to=d", IP: "1.2.3.4", Start: start, To: "h:1"},
		"percent":          {App: "100%41", IP: "1.2.3.4", Start: start, To: "h:1"},
		"Chinese":          {App: "商店", IP: "1.2.3.4", Start: start, To: "h:1"},
		"blank":            {App: "my shop", IP: "1.2.3.4", Start: start, To: "h:1"},
		"no name":          {IP: "1.2.3.4", Start: start, To: "h:1"},
		"no address":       {App: "a", Start: start},
		"plus is no blank": {App: "a+b", Start: start},
	} {
		t.Run(name, func(t *testing.T) {
			back, ok := wire.ParseCaller(c.Format())
			assert.True(t, ok, c.Format())
			assert.Equal(t, c, back)
		})
	}
}

func TestCallerCut(t *testing.T) {
	for name, app := range map[string]string{"long": strings.Repeat("x", 300), "long Chinese": strings.Repeat("店", 100)} {
		t.Run(name, func(t *testing.T) {
			c := wire.Caller{App: app, IP: "10.0.0.7", Start: start, To: "10.0.0.9:20000"}
			v := c.Format()
			assert.LessOrEqual(t, len(v), 256)
			assert.Greater(t, len(v), 256-9, "cut no more than needed")
			back, ok := wire.ParseCaller(v)
			require.True(t, ok)
			assert.True(t, strings.HasPrefix(app, back.App), "cut between characters")
			back.App = c.App
			assert.Equal(t, c, back)
		})
	}
	c := wire.Caller{App: "a\x00b\nc\xffd", IP: "1.2.3.4", Start: start, To: "h:1"}
	back, ok := wire.ParseCaller(c.Format())
	assert.True(t, ok)
	assert.Equal(t, "a_b_c_d", back.App)
}

func TestCallerInvalidFields(t *testing.T) {
	c := wire.Caller{App: "a", IP: "1.2.3.4/8", Start: "a;b", To: strings.Repeat("h", 65)}
	assert.Equal(t, "a@/;to=", c.Format())
	_, ok := wire.ParseCaller(c.Format())
	assert.False(t, ok, "without a start id nobody is known")
}

func TestParseCallerRefuses(t *testing.T) {
	for name, v := range map[string]string{
		"nothing":            "",
		"no to":              "a@1.2.3.4/1-a",
		"no start":           "a@1.2.3.4;to=h:1",
		"no ip":              "a/1-a;to=h:1",
		"not ASCII":          "店@1.2.3.4/1-a;to=h:1",
		"blank":              "a b@1.2.3.4/1-a;to=h:1",
		"long":               strings.Repeat("a", 300) + "@1.2.3.4/1-a;to=h:1",
		"escape is cut":      "a%4@1.2.3.4/1-a;to=h:1",
		"escaped line break": "a%0Ab@1.2.3.4/1-a;to=h:1",
		"escaped no UTF-8":   "a%ff@1.2.3.4/1-a;to=h:1",
		"two addresses":      "a@1.2.3.4/1-a;to=h:1;x",
		"start is none":      "a@1.2.3.4/a%5Da;to=h:1",
	} {
		t.Run(name, func(t *testing.T) {
			c, ok := wire.ParseCaller(v)
			assert.False(t, ok)
			assert.Zero(t, c)
		})
	}
}

func checkHeader(t interface {
	require.TestingT
	Helper()
}, v string) {
	t.Helper()
	require.LessOrEqual(t, len(v), 256)
	for i := range len(v) {
		require.True(t, v[i] > ' ' && v[i] < 0x7f, "visible ASCII: %q", v)
	}
}

func TestCallerFormatIsAlwaysAHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := wire.Caller{
			App:   rapid.OneOf(rapid.String(), rapid.StringN(0, 400, -1)).Draw(t, "app"),
			IP:    rapid.OneOf(rapid.Just("10.0.0.1"), rapid.String()).Draw(t, "ip"),
			Start: rapid.OneOf(rapid.Just(start), rapid.String()).Draw(t, "start"),
			To:    rapid.OneOf(rapid.Just("10.0.0.1:2"), rapid.String()).Draw(t, "to"),
		}
		v := c.Format()
		checkHeader(t, v)
		back, ok := wire.ParseCaller(v)
		require.Equal(t, wire.ValidStart(c.Start), ok, v)
		if ok {
			require.Equal(t, v, back.Format(), "what was understood is what was said")
		}
	})
}

func TestReject(t *testing.T) {
	msg := wire.RejectMessage(start)
	id, ok := wire.ParseReject("unavailable: " + msg + " (attempt 1)")
	assert.True(t, ok)
	assert.Equal(t, start, id)
	for name, bad := range map[string]string{
		"nothing":      "",
		"another text": "unavailable: connection refused",
		"open":         "[graceful-not-executed;id=1-a",
		"empty id":     "[graceful-not-executed;id=]",
		"no id":        "[graceful-not-executed;id=a b]",
	} {
		t.Run(name, func(t *testing.T) {
			_, ok := wire.ParseReject(bad)
			assert.False(t, ok)
			assert.Equal(t, bad, wire.StripMarks(bad))
		})
	}
	id, ok = wire.ParseReject("[graceful-not-executed;id=a b] [graceful-not-executed;id=1-a]")
	assert.True(t, ok, "goes on after one that is none")
	assert.Equal(t, "1-a", id)
}

func TestStripMarks(t *testing.T) {
	for in, want := range map[string]string{
		"no marker at all":      "no marker at all",
		wire.RejectMessage("a"): "instance is draining, the request was not executed",
		"x " + wire.RejectMessage("a") + "; y " + wire.RejectMessage("b"): "x instance is draining, the request was not executed; y instance is draining, the request was not executed",
		"[graceful-not-exe[graceful-not-executed;id=a]cuted;id=b] c":      " c",
		"]]][graceful-not-executed;id=a]":                                 "]]]",
		"[graceful-not-executed;id=" + strings.Repeat("a", 64) + "]":      "",
		"[graceful-not-executed;id=" + strings.Repeat("a", 65) + "]":      "[graceful-not-executed;id=" + strings.Repeat("a", 65) + "]",
	} {
		assert.Equal(t, want, wire.StripMarks(in), in)
	}
}

func TestStripMarksLeavesNone(t *testing.T) {
	piece := rapid.OneOf(
		rapid.Just("[graceful-not-executed;id="), rapid.Just("]"), rapid.Just("["), rapid.Just("a"), rapid.Just(" "),
		rapid.Just("[graceful-not-executed;id=1-a]"), rapid.Just("[graceful-not-"), rapid.Just("executed;id="), rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		msg := strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, "pieces"), "")
		out := wire.StripMarks(msg)
		_, ok := wire.ParseReject(out)
		require.False(t, ok, "%q became %q", msg, out)
		require.Equal(t, out, wire.StripMarks(out))
		if _, ok = wire.ParseReject(msg); !ok {
			require.Equal(t, msg, out, "a text without a marker stays")
		}
	})
}

func TestStripMarksIsLinear(t *testing.T) {
	const depth = 20_000
	msg := strings.Repeat("[graceful-not-", depth) + strings.Repeat("executed;id=a]", depth)
	began := time.Now()
	assert.Empty(t, wire.StripMarks(msg))
	assert.Less(t, time.Since(began), 5*time.Second)
}

func FuzzParseMark(f *testing.F) {
	f.Add("graceful.seq=2&graceful.start=" + start + "&status=UP")
	f.Add("status=%zz")
	f.Fuzz(func(t *testing.T, data string) {
		m, err := wire.ParseMark(data)
		if err != nil {
			require.ErrorIs(t, err, wire.ErrMark)
			require.Zero(t, m)
			return
		}
		back, err := wire.ParseMark(m.Encode())
		require.NoError(t, err)
		require.Equal(t, m, back)
	})
}

func FuzzParseDraining(f *testing.F) {
	f.Add(wire.FormatDraining(start))
	f.Fuzz(func(t *testing.T, v string) {
		if id, ok := wire.ParseDraining(v); ok {
			require.Equal(t, v, wire.FormatDraining(id))
			require.True(t, wire.ValidStart(id))
		}
	})
}

func FuzzParseCaller(f *testing.F) {
	f.Add(wire.Caller{App: "商店", IP: "10.0.0.7", Start: start, To: "10.0.0.9:20000"}.Format())
	f.Add("a@b/c;to=d")
	f.Fuzz(func(t *testing.T, v string) {
		c, ok := wire.ParseCaller(v)
		if !ok {
			require.Zero(t, c)
			return
		}
		require.True(t, utf8.ValidString(c.App))
		require.False(t, strings.ContainsFunc(c.App, unicode.IsControl))
		checkHeader(t, c.Format())
	})
}

func FuzzReject(f *testing.F) {
	f.Add("x " + wire.RejectMessageTo(start, "10.0.0.1:20000") + " y")
	f.Add("[graceful-not-exe[graceful-not-executed;id=a]cuted;id=b]")
	f.Fuzz(func(t *testing.T, msg string) {
		id, ok := wire.ParseReject(msg)
		require.Equal(t, ok, wire.ValidStart(id))
		if to, said := wire.ParseRejectTo(msg); said {
			require.True(t, ok)
			require.NotEmpty(t, to)
		}
		_, ok = wire.ParseReject(wire.StripMarks(msg))
		require.False(t, ok)
	})
}

func FuzzStartTime(f *testing.F) {
	f.Add(start)
	f.Fuzz(func(t *testing.T, id string) {
		if at, ok := wire.StartTime(id); ok {
			require.Positive(t, at.UnixMilli())
		}
	})
}

func BenchmarkParseCaller(b *testing.B) {
	v := wire.Caller{App: "shop-proxy", IP: "10.0.0.7", Start: start, To: "10.0.0.9:20000"}.Format()
	b.ReportAllocs()
	for b.Loop() {
		wire.ParseCaller(v)
	}
}

func BenchmarkStripMarksWithoutMark(b *testing.B) {
	msg := "unavailable: the database does not answer"
	b.ReportAllocs()
	for b.Loop() {
		wire.StripMarks(msg)
	}
}
