// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"html/template"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/rollout"
	"github.com/dubbogo/graceful/internal/shop"
)

const (
	reportName = "report.html"
	dataName   = "report.json"
)

//go:embed report.html.tmpl
var pageText string

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"ms":      ms,
	"n":       thousands,
	"shorten": shorten,
	"exits":   func(s rollout.StepReport) string { return exitTimes(&s) },
}).Parse(pageText))

// writeReport writes the page for people and the same figures as JSON.
func writeReport(out string, f *flags, reports []*rollout.Report) (string, error) {
	data, err := json.MarshalIndent(reports, "", " ")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(out, dataName), data, 0o644); err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := page.Execute(&b, pageOf(f, reports)); err != nil {
		return "", err
	}
	path := filepath.Join(out, reportName)
	return path, os.WriteFile(path, b.Bytes(), 0o644)
}

type pageData struct {
	Intro   string
	Made    string
	Machine string
	Runs    []runData
	Notes   []string
}

type runData struct {
	*rollout.Report
	Setting string
	// Lost are the failures that no killed process explains: the number that must be 0.
	Lost, InFlight int
	Slowest        string
	Chart          template.HTML
	Failures       []rollout.Failure
	More           int
	Shares         []shareData
}

type shareData struct {
	rollout.Share
	Exit string
}

func rank(r shop.Role) int { return slices.Index([]shop.Role{shop.Provider, shop.Proxy}, r) }

// listed is the number of failures that the page lists; report.json has all.
const listed = 200

func pageOf(f *flags, reports []*rollout.Report) pageData {
	d := pageData{
		Intro: count(f.providers, "provider", "providers") + ", " + count(f.proxies, "proxy", "proxies") + ", " +
			ms(f.handler) + " of work for each request. Every process is replaced while the load goes on; then one is added, one taken away, one killed.",
		Made:    time.Now().Format("2006-01-02 15:04"),
		Machine: count(runtime.NumCPU(), "core", "cores") + ", " + runtime.GOOS + "/" + runtime.GOARCH,
	}
	scale := scaleOf(reports)
	for _, r := range reports {
		// Providers first: the replacements of a role then stand below each other.
		slices.SortStableFunc(r.Shares, func(a, b rollout.Share) int { return cmp.Compare(rank(a.Role), rank(b.Role)) })
		lost := len(r.Unexplained())
		run := runData{
			Report: r, Setting: setting(r), Lost: lost, InFlight: len(r.Failures) - lost,
			Slowest: ms(slowestExit(r)), Chart: chart(r, scale), Failures: r.Failures,
		}
		if run.More = len(r.Failures) - listed; run.More > 0 {
			run.Failures = r.Failures[:listed]
		}
		for _, s := range r.Shares {
			run.Shares = append(run.Shares, shareData{Share: s, Exit: exitOf(r, s.Process)})
		}
		d.Runs = append(d.Runs, run)
	}
	if f.compare && f.registry == rollout.Etcd {
		d.Notes = append(d.Notes, "dubbo-go alone runs on the same kind of registry as the other run. The etcd registry of dubbo-go 3.3.2 never takes a provider "+
			"off a consumer's list on interface level and never adds one on service level; graceful brings its own. Try -registry zookeeper or nacos for a registry that works without it.")
	}
	if f.level == string(shop.LevelService) {
		d.Notes = append(d.Notes, "Service level: one record per process, the interfaces are in its metadata.")
	}
	return d
}

// thousands groups the digits of a number by threes.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

func slowestExit(r *rollout.Report) time.Duration {
	var d time.Duration
	for i := range r.Steps {
		d = max(d, r.Steps[i].SlowestExit())
	}
	return d
}

func exitOf(r *rollout.Report, process string) string {
	for _, e := range r.Exits {
		if e.Process != process {
			continue
		}
		if e.Signal != "" {
			return e.Signal
		}
		return ms(e.Took)
	}
	return ""
}
