// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful/internal/rollout"
	"github.com/dubbogo/graceful/internal/shop"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func sec(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }

// made is a report with one of everything, and a text that must not become markup.
func made() *rollout.Report {
	const evil = `<script>alert("x")</script> & more`
	f := rollout.Figures{Requests: 1000, Failed: 2, Retried: 3, P50: 23 * time.Millisecond, P99: 41 * time.Millisecond, P999: 2 * time.Second, Max: 3 * time.Second}
	r := &rollout.Report{
		Title: "dubbo-go with " + evil, Registry: rollout.Graceful(rollout.ZooKeeper, "a:1", shop.LevelService), Protocol: "tri",
		Start: begin, End: sec(10), Load: shop.LoadSummary{Planned: 12345, Sent: 12345, Answered: 12345}, Total: f, Executions: 12344,
		Steps: []rollout.StepReport{
			{Name: "steady", Start: begin, End: sec(5), Figures: f},
			{Name: "roll " + evil, Start: sec(5), End: sec(10), Figures: f, Exits: []rollout.Exit{
				{Process: "provider-1", Took: 300 * time.Millisecond}, {Process: "provider-2", Took: 1500 * time.Millisecond},
			}},
		},
		Failures: []rollout.Failure{
			{ID: "r-1", Step: "steady", After: time.Second, Error: evil},
			{ID: "r-2", Step: "steady", After: time.Second, Error: "reset", Cause: "being served by provider-9 when it was killed"},
		},
		Moments: []rollout.Moment{
			{At: sec(-3), Process: "provider-1", Role: shop.Provider, What: rollout.MomentStarted},
			{At: sec(-1), Process: "provider-1", Role: shop.Provider, What: rollout.MomentReady},
			{At: sec(5), Process: "provider-1", Role: shop.Provider, What: rollout.MomentTerm},
			{At: sec(6), Process: "provider-9", Role: shop.Provider, What: rollout.MomentKill},
		},
		Shares: []rollout.Share{
			{Process: "proxy-1", Role: shop.Proxy, Answered: 500}, {Process: "provider-1", Role: shop.Provider, Answered: 500},
			{Process: "provider-9", Role: shop.Provider}, {Process: "provider-" + evil, Role: shop.Provider},
		},
		Exits: []rollout.Exit{{Process: "provider-9", Code: -1, Signal: "killed"}, {Process: "provider-1", Took: 300 * time.Millisecond}},
	}
	for i := range 40 {
		b := rollout.Bucket{At: time.Duration(i) * rollout.BucketWidth, Sent: 125, P50: 23 * time.Millisecond, P99: 41 * time.Millisecond, Max: time.Second}
		if i == 20 {
			b.Failed = 25
		}
		r.Series = append(r.Series, b)
	}
	return r
}

func TestReportStandsAlone(t *testing.T) {
	dir := t.TempDir()
	path, err := writeReport(dir, &flags{providers: 3, proxies: 1, compare: true, registry: rollout.Etcd}, []*rollout.Report{made(), made()})
	require.NoError(t, err)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	html := string(b)
	for _, reference := range []string{"src=", "href=", "url(", "@import", "<script", "http:"} {
		assert.NotContains(t, html, reference, "a page that is sent around has nothing to load and nothing to run")
	}
	assert.Contains(t, html, "prefers-color-scheme: dark")
	assert.Contains(t, html, "12\u202f345")
	assert.Contains(t, html, "not explained:")
	assert.Contains(t, html, "being served by provider-9 when it was killed")
	assert.Contains(t, html, "The etcd registry of dubbo-go 3.3.2")
	assert.Equal(t, 2, strings.Count(html, "<svg"))

	data, err := os.ReadFile(filepath.Join(dir, dataName))
	require.NoError(t, err)
	var back []rollout.Report
	require.NoError(t, json.Unmarshal(data, &back))
	assert.Len(t, back, 2)
}

func TestPictureIsWellFormed(t *testing.T) {
	r := made()
	d := xml.NewDecoder(strings.NewReader(string(chart(r, scaleOf([]*rollout.Report{r})))))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

func TestScaleHoldsAllRuns(t *testing.T) {
	good, bad := made(), made()
	good.Series = good.Series[:10]
	bad.End = sec(25)
	bad.Series[0].Failed, bad.Series[0].P99 = 100, 2*time.Second
	s := scaleOf([]*rollout.Report{good, bad})
	assert.Equal(t, scale{end: 25 * time.Second, lowest: 0, fastest: 10, slowest: 10000}, s)
	s = scaleOf([]*rollout.Report{good})
	assert.InDelta(t, 90, s.lowest, 0, "a line at 100 % is not drawn at the bottom of nothing")
	assert.InDelta(t, 100, s.slowest, 0)
}

func TestPictureOfAnEmptyRun(t *testing.T) {
	r := &rollout.Report{Start: begin, End: sec(1)}
	assert.NotContains(t, string(chart(r, scaleOf([]*rollout.Report{r}))), "NaN")
}

func TestTableAndVerdict(t *testing.T) {
	var b bytes.Buffer
	r := made()
	r.Problems = []string{"r-3 was run twice"}
	printTable(&b, r)
	printVerdict(&b, []*rollout.Report{r}, "there")
	for _, want := range []string{
		"zookeeper, service level, Triple, failfast, retries 0", "300ms - 1.50s", "planned 12345 = sent 12345 = answered 12345",
		"NOT EXPLAINED", "PROBLEM: r-3 was run twice", "1 of 1000 requests failed, not counting 1 in flight", "report: there",
	} {
		assert.Contains(t, b.String(), want)
	}
}

func TestFlags(t *testing.T) {
	f, err := parse(nil)
	require.NoError(t, err)
	assert.Equal(t, rollout.Etcd, f.registry)
	for args, want := range map[string]string{
		"-registry consul": "want etcdv3, zookeeper or nacos", "-registry nacos": "needs -address", "-level all": "want interface or service",
		"-protocol grpc": "want tri or dubbo", "-providers 1": "at least 2 providers", "-rate 0": "more than 0", "-handler -1s": "no negative",
	} {
		_, err := parse(strings.Fields(args))
		assert.ErrorContains(t, err, want, args)
	}
}

func TestOutputOfOthersIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "run-1"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, reportName), nil, 0o644))
	require.NoError(t, emptyDir(dir))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "thesis.doc"), nil, 0o644))
	assert.ErrorContains(t, emptyDir(dir), "thesis.doc")
}

func TestViewOfATerminal(t *testing.T) {
	var b bytes.Buffer
	v := newView(&b, &flags{registry: "etcdv3", level: "interface", protocol: "tri"}, "title", true)
	v.step(1, 6, "roll providers")
	s := rollout.Snapshot{At: sec(10), Start: begin, Rate: 500, P50: 23 * time.Millisecond, P99: time.Second, Answered: 5000, Failed: 1, LastError: "reset by peer",
		Instances: []rollout.InstanceView{
			{Name: "provider-1", Role: shop.Provider, State: rollout.StateDraining, Phase: "quiesced", Since: sec(9), Recent: 100},
			{Name: "provider-2", Role: shop.Provider, State: rollout.StateUp, Since: sec(1), Recent: 300},
			{Name: "provider-3", Role: shop.Provider, State: rollout.StateExited, Since: sec(9), Exit: &rollout.Exit{Took: 300 * time.Millisecond}},
			{Name: "provider-4", Role: shop.Provider, State: rollout.StateExited, Since: sec(1), Exit: &rollout.Exit{}},
		}}
	v.p50s, v.p99s = []float64{20, 21}, []float64{30, 31}
	v.draw(&s)
	first := b.String()
	for _, want := range []string{"2/6 roll providers", "draining: quiesced", " 75 %", " 25 %", "exited 0 after 300ms", "1 replaced and gone", "failed 1", "reset by peer"} {
		assert.Contains(t, first, want)
	}
	assert.NotContains(t, first, "provider-4")
	b.Reset()
	v.draw(&s)
	assert.True(t, strings.HasPrefix(b.String(), "\x1b["), "the second picture is drawn over the first")
}

func TestViewOfLines(t *testing.T) {
	var b bytes.Buffer
	v := newView(&b, &flags{}, "title", false)
	v.step(0, 6, "steady")
	s := rollout.Snapshot{At: sec(1), Start: begin, Instances: []rollout.InstanceView{{Name: "proxy-1", State: rollout.StateUp}}}
	v.changes(&s)
	v.changes(&s)
	s.Instances[0].State, s.Instances[0].Exit = rollout.StateExited, &rollout.Exit{Code: 1, Took: time.Second}
	v.changes(&s)
	assert.Equal(t, "[   1.0s]  step 1 of 6: steady\n[   1.0s]  proxy-1        up\n[   1.0s]  proxy-1        exited with code 1, 1.00s after SIGTERM\n", b.String())
}
