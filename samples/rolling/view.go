// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

import (
	"github.com/guptarohit/asciigraph"
)

import (
	"github.com/dubbogo/graceful/internal/rollout"
	"github.com/dubbogo/graceful/internal/shop"
)

const (
	refresh     = 100 * time.Millisecond // of the view on a terminal
	lineEvery   = 2 * time.Second        // between lines of figures elsewhere
	sampleEvery = 500 * time.Millisecond // between points of the little graph
	samples     = 60
	lingers     = 3 * time.Second // how long an instance that is gone stays in the view
)

// view shows a run while it goes on: on a terminal as one picture that is drawn over and over,
// elsewhere as lines.
type view struct {
	w        io.Writer
	flags    *flags
	title    string
	terminal bool

	mu    sync.Mutex
	at, n int // step and number of steps
	name  string

	drawn int // lines of the last picture
	seen  map[string]string
	p50s  []float64
	p99s  []float64

	quit, done chan struct{}
}

func newView(w io.Writer, f *flags, title string, terminal bool) *view {
	return &view{w: w, flags: f, title: title, terminal: terminal, seen: map[string]string{}}
}

// note prints a line before the view begins.
func (v *view) note(s string) { fmt.Fprintf(v.w, "%s: %s\n", v.title, s) }

// step says where the scenario is; at counts from 0.
func (v *view) step(at, n int, name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at, v.n, v.name = at, n, name
}

// follow shows run until stop.
func (v *view) follow(run *rollout.Run) {
	v.quit, v.done = make(chan struct{}), make(chan struct{})
	go v.loop(run)
}

// stop draws once more and ends the view.
func (v *view) stop() {
	if v.quit == nil {
		return
	}
	close(v.quit)
	<-v.done
	v.quit = nil
}

func (v *view) loop(run *rollout.Run) {
	defer close(v.done)
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	var line, sample time.Time
	if v.terminal {
		fmt.Fprint(v.w, hideCursor)
		defer fmt.Fprint(v.w, showCursor)
	}
	for end := false; ; {
		s := run.Snapshot()
		if s.At.Sub(sample) >= sampleEvery && s.Rate > 0 {
			sample = s.At
			v.p50s, v.p99s = push(v.p50s, s.P50), push(v.p99s, s.P99)
		}
		if v.terminal {
			v.draw(&s)
		} else {
			v.changes(&s)
			if s.At.Sub(line) >= lineEvery || end {
				line = s.At
				fmt.Fprintf(v.w, "%s  %s\n", clock(&s), v.figures(&s))
			}
		}
		if end {
			return
		}
		select {
		case <-tick.C:
		case <-v.quit:
			end = true
		}
	}
}

func push(series []float64, d time.Duration) []float64 {
	series = append(series, float64(d)/float64(time.Millisecond))
	return series[max(0, len(series)-samples):]
}

func clock(s *rollout.Snapshot) string {
	return fmt.Sprintf("[%6.1fs]", s.At.Sub(s.Start).Seconds())
}

// changes prints what is new since the last call, for an output that is no terminal.
func (v *view) changes(s *rollout.Snapshot) {
	v.mu.Lock()
	at, n, name := v.at, v.n, v.name
	v.mu.Unlock()
	if key := fmt.Sprint(at, name); v.seen[""] != key && name != "" && at < n {
		v.seen[""] = key
		fmt.Fprintf(v.w, "%s  step %d of %d: %s\n", clock(s), at+1, n, name)
	}
	for _, i := range s.Instances {
		if v.seen[i.Name] == i.State {
			continue
		}
		v.seen[i.Name] = i.State
		fmt.Fprintf(v.w, "%s  %-14s %s%s\n", clock(s), i.Name, i.State, exitText(&i))
	}
}

func exitText(i *rollout.InstanceView) string {
	if i.Exit == nil || i.State != rollout.StateExited {
		return ""
	}
	return fmt.Sprintf(" with code %d, %s after SIGTERM", i.Exit.Code, ms(i.Exit.Took))
}

func (v *view) figures(s *rollout.Snapshot) string {
	return fmt.Sprintf("%4d req/s   p50 %-6s p99 %-6s answered %-6d failed %-4d retried %d",
		s.Rate, ms(s.P50), ms(s.P99), s.Answered, s.Failed, s.Retried)
}

// Escape sequences that every terminal of the last forty years knows.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearLine  = "\x1b[2K"
	clearBelow = "\x1b[J"
	bold       = "\x1b[1m"
	dim        = "\x1b[2m"
	red        = "\x1b[31m"
	green      = "\x1b[32m"
	yellow     = "\x1b[33m"
	cyan       = "\x1b[36m"
	reset      = "\x1b[0m"
)

// draw puts the picture over the last one.
func (v *view) draw(s *rollout.Snapshot) {
	var b bytes.Buffer
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn)
	}
	lines := v.picture(s)
	for _, l := range lines {
		b.WriteString("\r" + clearLine + l + "\n")
	}
	b.WriteString(clearBelow)
	v.drawn = len(lines)
	_, _ = v.w.Write(b.Bytes()) // one write, so that nothing flickers
}

func (v *view) picture(s *rollout.Snapshot) []string {
	v.mu.Lock()
	at, n, name := v.at, v.n, v.name
	v.mu.Unlock()
	elapsed := max(0, s.At.Sub(s.Start))
	lines := []string{
		"",
		bold + v.title + reset + dim + fmt.Sprintf("   %s, %s level, %s", v.flags.registry, v.flags.level, v.flags.protocol) + reset,
		fmt.Sprintf("%s  %-24s %6.1fs", bar(at, n, 40), fmt.Sprintf("%d/%d %s", min(at+1, n), n, name), elapsed.Seconds()),
		"",
		dim + fmt.Sprintf("%-15s %-24s %7s %6s  %s", "instance", "phase", "for", "req/s", "share") + reset,
	}
	sum := map[shop.Role]int{}
	for _, i := range s.Instances {
		sum[i.Role] += i.Recent
	}
	gone := 0
	order := slices.Clone(s.Instances)
	slices.SortStableFunc(order, func(a, b rollout.InstanceView) int { return strings.Compare(string(b.Role), string(a.Role)) })
	for _, i := range order {
		if (i.State == rollout.StateExited || i.State == rollout.StateKilled) && s.At.Sub(i.Since) > lingers {
			gone++
			continue
		}
		lines = append(lines, instanceLine(&i, s.At, sum[i.Role]))
	}
	if gone > 0 {
		lines = append(lines, dim+fmt.Sprintf("%d replaced and gone", gone)+reset)
	}
	failed := green
	if s.Failed > 0 {
		failed = red
	}
	lines = append(lines, "",
		fmt.Sprintf("%s%d req/s%s   p50 %s   p99 %s   answered %d   %sfailed %d%s   retried %d",
			bold, s.Rate, reset, ms(s.P50), ms(s.P99), s.Answered, failed+bold, s.Failed, reset, s.Retried))
	if s.LastError != "" {
		lines = append(lines, red+"last error: "+shorten(s.LastError, 66)+reset)
	}
	if len(v.p99s) > 1 {
		lines = append(lines, "")
		graph := asciigraph.PlotMany([][]float64{v.p99s, v.p50s}, asciigraph.Height(5),
			asciigraph.LowerBound(0), asciigraph.Precision(0),
			asciigraph.SeriesColors(asciigraph.Yellow, asciigraph.Cyan), asciigraph.SeriesLegends("p99 in ms", "p50 in ms"))
		lines = append(lines, strings.Split(graph, "\n")...)
	}
	return lines
}

func instanceLine(i *rollout.InstanceView, now time.Time, sum int) string {
	colour, phase := green, i.State
	switch i.State {
	case rollout.StateStarting:
		colour = cyan
	case rollout.StateDraining:
		colour = yellow
		if i.Phase != "" && i.Phase != "serving" {
			phase += ": " + i.Phase
		}
	case rollout.StateExited:
		colour = dim
		if i.Exit != nil {
			phase += fmt.Sprintf(" %d after %s", i.Exit.Code, ms(i.Exit.Took))
		}
	case rollout.StateKilled:
		colour = red
	}
	share := 0.0
	if sum > 0 {
		share = float64(i.Recent) / float64(sum)
	}
	const width = 15
	filled := int(share*width + 0.5)
	return fmt.Sprintf("%-15s %s%-24s%s %6.1fs %6d  %s%s %3.0f %%",
		i.Name, colour, phase, reset, now.Sub(i.Since).Seconds(), i.Recent,
		strings.Repeat("█", filled), dim+strings.Repeat("·", width-filled)+reset, share*100)
}

func bar(at, n, width int) string {
	if n == 0 {
		n = 1
	}
	filled := min(width, at*width/n)
	return green + strings.Repeat("█", filled) + reset + dim + strings.Repeat("░", width-filled) + reset
}
