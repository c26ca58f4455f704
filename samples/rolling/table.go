// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/rollout"
)

// printTable prints one run: a line per step and one for all.
func printTable(w io.Writer, r *rollout.Report) {
	fmt.Fprintf(w, "\n%s, %s\n\n", r.Title, setting(r))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "step\trequests\tfailed\tretried\tp50\tp99\tp99.9\tmax\tSIGTERM to exit\t")
	row := func(name string, f rollout.Figures, exits string) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t\n",
			name, f.Requests, f.Failed, f.Retried, ms(f.P50), ms(f.P99), ms(f.P999), ms(f.Max), exits)
	}
	for _, s := range r.Steps {
		row(s.Name, s.Figures, exitTimes(&s))
	}
	row("all", r.Total, "")
	_ = t.Flush() // an error of w has nowhere to go
	fmt.Fprintf(w, "\nplanned %d = sent %d = answered %d; provider handlers ran %d, successful requests %d\n",
		r.Load.Planned, r.Load.Sent, r.Load.Answered, r.Executions, r.Total.Requests-r.Total.Failed)
	printFailures(w, r)
	for _, p := range r.Problems {
		fmt.Fprintln(w, "PROBLEM:", p)
	}
}

// shown is the number of failures that are worth their lines on a terminal; the report has all.
const shown = 6

func printFailures(w io.Writer, r *rollout.Report) {
	for i, f := range r.Failures {
		if i == shown {
			fmt.Fprintf(w, "  ... and %d more, all in the report\n", len(r.Failures)-shown)
			return
		}
		cause := f.Cause
		if cause == "" {
			cause = "NOT EXPLAINED: " + shorten(f.Error, 160)
		}
		fmt.Fprintf(w, "  failed %s in %q after %s: %s\n", f.ID, f.Step, ms(f.After), cause)
	}
}

func printVerdict(w io.Writer, reports []*rollout.Report, path string) {
	fmt.Fprintln(w)
	for _, r := range reports {
		fmt.Fprintf(w, "%s: %s\n", r.Title, verdict(r))
	}
	fmt.Fprintf(w, "report: %s\n", path)
}

// verdict is the result of a run in one sentence.
func verdict(r *rollout.Report) string {
	lost := len(r.Failures) - len(r.Unexplained())
	s := fmt.Sprintf("%d of %d requests failed", len(r.Unexplained()), r.Total.Requests)
	if lost > 0 {
		s += fmt.Sprintf(", not counting %d in flight on the process that was killed", lost)
	}
	if r.Total.Retried > 0 {
		s += fmt.Sprintf("; sent again, as not executed: %d", r.Total.Retried)
	}
	if len(r.Problems) > 0 {
		s += fmt.Sprintf("; %d contradictions", len(r.Problems))
	}
	return s
}

// setting says what was run, in a few words.
func setting(r *rollout.Report) string {
	registry := r.Registry.Protocol
	if d := r.Registry.Params["graceful.delegate"]; d != "" {
		registry = d
	}
	protocol := r.Protocol
	if protocol == "tri" {
		protocol = "Triple"
	}
	return fmt.Sprintf("%s, %s level, %s, failfast, retries 0", registry, r.Registry.Level, protocol)
}

func exitTimes(s *rollout.StepReport) string {
	switch len(s.Exits) {
	case 0:
		return ""
	case 1:
		return ms(s.Exits[0].Took)
	}
	low := s.Exits[0].Took
	for _, e := range s.Exits {
		low = min(low, e.Took)
	}
	return ms(low) + " - " + ms(s.SlowestExit())
}

func ms(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Round(time.Millisecond)/time.Millisecond)
	default:
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
}

func shorten(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
