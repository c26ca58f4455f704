// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/internal/shop"
)

var zero = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }

func ok(id string, from, to int) *shop.Record {
	return &shop.Record{ID: id, Intended: at(from), Sent: at(from), Done: at(to), ServedBy: "provider-1", Via: "proxy-1", Tried: []string{"proxy:1"}, ProxyAttempts: 1}
}

func failed(id string, from, to int) *shop.Record {
	return &shop.Record{ID: id, Intended: at(from), Sent: at(from), Done: at(to), Error: "reset by peer", Tried: []string{"proxy:1"}}
}

func ran(id string, from, to int, tried ...shop.Try) *shop.Entry {
	e := &shop.Entry{ID: id, Start: at(from), Tried: tried}
	if to >= 0 {
		e.End = at(to)
	}
	return e
}

func try(addr string, ms int) shop.Try { return shop.Try{Addr: addr, At: at(ms)} }

// account puts a proxy, a provider and a provider that was killed at 1000 together.
func account(recs []*shop.Record, proxy, alive, killed []*shop.Entry) *Report {
	a := accounting{
		cfg: &Config{}, start: zero, records: recs,
		summary: shop.LoadSummary{Start: zero, Stop: at(2000), Planned: len(recs), Sent: len(recs), Answered: len(recs)},
		steps:   []step{{name: "before", start: at(10), end: at(900)}, {name: "kill", start: at(900), end: at(2000)}},
		witnesses: []witness{
			{name: "proxy-1", role: shop.Proxy, addr: "proxy:1", ledger: proxy},
			{name: "provider-1", role: shop.Provider, addr: "provider:1", ledger: alive},
			{name: "provider-2", role: shop.Provider, addr: "provider:2", ledger: killed, killed: at(1000), exit: &Exit{Process: "provider-2", Code: -1, At: at(1002)}},
		},
	}
	return a.report()
}

func TestEveryRequestIsAccountedFor(t *testing.T) {
	r := account(
		[]*shop.Record{ok("r-0", 0, 20), ok("r-1", 950, 990)},
		[]*shop.Entry{ran("r-0", 1, 19, try("provider:1", 2)), ran("r-1", 951, 989, try("provider:1", 952), try("provider:2", 960))},
		[]*shop.Entry{ran("r-0", 3, 18), ran("warm-x-0", 0, 1)},
		[]*shop.Entry{ran("r-1", 961, 988)},
	)
	assert.Empty(t, r.Problems)
	assert.True(t, r.OK())
	assert.Equal(t, 2, r.Executions)
	assert.Equal(t, 1, r.Total.Retried, "the second attempt of the proxy")
	require.Len(t, r.Steps, 2)
	assert.Equal(t, 1, r.Steps[0].Requests, "what was sent before the first step belongs to it")
	assert.Equal(t, 1, r.Steps[1].Requests)
	assert.Equal(t, 40*time.Millisecond, r.Steps[1].Max)
}

func TestContradictionsAreProblems(t *testing.T) {
	for name, r := range map[string]*Report{
		"a success that nobody ran": account([]*shop.Record{ok("r-0", 0, 20)},
			[]*shop.Entry{ran("r-0", 1, 19)}, []*shop.Entry{ran("other", 0, 1)}, nil),
		"a request that two providers ran": account([]*shop.Record{ok("r-0", 0, 20)},
			[]*shop.Entry{ran("r-0", 1, 19)}, []*shop.Entry{ran("r-0", 2, 5)}, []*shop.Entry{ran("r-0", 6, 9)}),
		"a failure that ran twice": account([]*shop.Record{failed("r-0", 0, 20)},
			[]*shop.Entry{ran("r-0", 1, 19)}, []*shop.Entry{ran("r-0", 2, 5), ran("r-0", 6, 9)}, nil),
		"one answer too many": account([]*shop.Record{ok("r-0", 0, 20), ok("r-0", 0, 21)},
			[]*shop.Entry{ran("r-0", 1, 19)}, []*shop.Entry{ran("r-0", 2, 5)}, nil),
		"an execution that nobody asked for": account([]*shop.Record{ok("r-0", 0, 20)},
			[]*shop.Entry{ran("r-0", 1, 19)}, []*shop.Entry{ran("r-0", 2, 5), ran("r-9", 2, 5)}, nil),
	} {
		assert.NotEmpty(t, r.Problems, name)
		assert.False(t, r.OK(), name)
	}
}

func TestPlannedSentAndAnsweredMustAgree(t *testing.T) {
	recs := []*shop.Record{ok("r-0", 0, 20)}
	for _, s := range []shop.LoadSummary{
		{Planned: 2, Sent: 1, Answered: 1}, {Planned: 1, Sent: 2, Answered: 1}, {Planned: 1, Sent: 1, Answered: 0}, {Planned: 2, Sent: 2, Answered: 2},
	} {
		a := accounting{cfg: &Config{}, start: zero, records: recs, summary: s}
		assert.NotEmpty(t, a.report().Problems, "%+v", s)
	}
}

func TestFailuresAreExplainedByTheKilledProcessAlone(t *testing.T) {
	for name, c := range map[string]struct {
		rec           *shop.Record
		proxy         *shop.Entry
		alive, killed []*shop.Entry
		cause         string
	}{
		"being served when it was killed": {
			rec: failed("r-0", 980, 1001), proxy: ran("r-0", 981, 1001, try("provider:2", 982)), killed: []*shop.Entry{ran("r-0", 985, -1)},
			cause: "being served by provider-2 when it was killed",
		},
		"on the wire": {
			rec: failed("r-0", 998, 1001), proxy: ran("r-0", 999, 1001, try("provider:2", 999)),
			cause: "on the wire to provider-2 when it was killed",
		},
		"sent after it was gone": {
			rec: failed("r-0", 1100, 1101), proxy: ran("r-0", 1100, 1101, try("provider:2", 1100)),
		},
		"over before the kill": {
			rec: failed("r-0", 900, 950), proxy: ran("r-0", 901, 949, try("provider:2", 902)),
		},
		"the killed one had finished it": {
			rec: failed("r-0", 970, 1001), proxy: ran("r-0", 971, 1001, try("provider:2", 972)), killed: []*shop.Entry{ran("r-0", 955, 975)},
		},
		"its answer was cut": {
			rec: failed("r-0", 970, 1001), proxy: ran("r-0", 971, 1001, try("provider:2", 972)), killed: []*shop.Entry{ran("r-0", 975, 995)},
			cause: "its answer on the wire from provider-2 when it was killed",
		},
		"lost at the one that lives": {
			rec: failed("r-0", 998, 1001), proxy: ran("r-0", 999, 1001, try("provider:1", 999)), alive: []*shop.Entry{ran("r-0", 1000, 1001)},
		},
		"never came to a proxy": {rec: failed("r-0", 998, 1001)},
	} {
		var proxy []*shop.Entry
		if c.proxy != nil {
			proxy = append(proxy, c.proxy)
		}
		r := account([]*shop.Record{c.rec}, proxy, c.alive, c.killed)
		require.Len(t, r.Failures, 1, name)
		assert.Equal(t, c.cause, r.Failures[0].Cause, name)
		assert.Equal(t, c.cause != "", r.OK(), name)
	}
}

func TestSeriesCountsBySlices(t *testing.T) {
	r := account([]*shop.Record{ok("a", 0, 20), ok("b", 249, 300), failed("c", 760, 770)}, nil, nil, nil)
	require.Len(t, r.Series, 4)
	assert.Equal(t, []int{2, 0, 0, 1}, []int{r.Series[0].Sent, r.Series[1].Sent, r.Series[2].Sent, r.Series[3].Sent})
	assert.Equal(t, 1, r.Series[3].Failed)
	assert.Equal(t, 51*time.Millisecond, r.Series[0].Max)
}

func TestQuantilesOfNothingAreZero(t *testing.T) {
	h := newHistogram()
	assert.Zero(t, h.quantile(99))
	h.add(2 * histogramTop)
	assert.LessOrEqual(t, h.quantile(50), 2*histogramTop)
	assert.Equal(t, 2*histogramTop, h.max)
}
