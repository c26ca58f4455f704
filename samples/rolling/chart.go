// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/rollout"
)

// Geometry of the picture, in units of its view box.
const (
	chartWidth  = 1120
	marginLeft  = 112
	marginRight = 16
	plotWidth   = chartWidth - marginLeft - marginRight
	labelsTop   = 34 // room for the names of the steps
	rateHeight  = 96
	gap         = 28
	timeHeight  = 124
	laneHeight  = 14
)

// scale is shared by the pictures of all runs, so that they can be compared by eye.
type scale struct {
	end     time.Duration // of the time axis
	lowest  float64       // bottom of the success rate, in percent
	fastest float64       // bottom and top of the latencies, in ms, powers of ten
	slowest float64
}

func scaleOf(reports []*rollout.Report) scale {
	s := scale{end: time.Second, lowest: 100, fastest: histogramTop, slowest: 1}
	for _, r := range reports {
		s.end = max(s.end, r.End.Sub(r.Start))
		for _, b := range r.Series {
			if b.Sent == 0 {
				continue
			}
			s.lowest = min(s.lowest, successRate(b))
			s.fastest = min(s.fastest, toMS(b.P50))
			s.slowest = max(s.slowest, toMS(b.P99))
		}
	}
	for _, floor := range []float64{90, 80, 50, 0} {
		if s.lowest >= floor {
			s.lowest = floor
			break
		}
	}
	s.fastest = min(s.fastest, s.slowest)
	s.fastest = math.Pow(10, math.Floor(math.Log10(max(0.1, s.fastest*0.9))))
	s.slowest = max(s.fastest*10, math.Pow(10, math.Ceil(math.Log10(s.slowest*1.05))))
	return s
}

// histogramTop is a minute in ms, what no latency is above.
const histogramTop = 60_000.0

func successRate(b rollout.Bucket) float64 {
	return 100 * float64(b.Sent-b.Failed) / float64(b.Sent)
}

func toMS(d time.Duration) float64 { return max(0.1, float64(d)/float64(time.Millisecond)) }

// canvas draws one run.
type canvas struct {
	strings.Builder
	r *rollout.Report
	scale
	rateTop, timeTop, laneTop, bottom float64
}

func chart(r *rollout.Report, s scale) template.HTML {
	c := &canvas{r: r, scale: s}
	c.rateTop = labelsTop
	c.timeTop = c.rateTop + rateHeight + gap
	c.laneTop = c.timeTop + timeHeight + gap
	c.bottom = c.laneTop + float64(len(r.Shares))*laneHeight
	height := c.bottom + 30
	fmt.Fprintf(c, `<svg viewBox="0 0 %d %.0f" role="img" aria-label="success rate, latency and instances over time">`, chartWidth, height)
	c.steps()
	c.rate()
	c.latency()
	c.lanes()
	c.moments()
	c.timeAxis()
	c.WriteString("</svg>")
	return template.HTML(c.String()) //nolint:gosec // every text in it went through html.EscapeString
}

func (c *canvas) x(d time.Duration) float64 {
	return marginLeft + plotWidth*min(1, max(0, float64(d)/float64(c.end)))
}

func (c *canvas) at(t time.Time) float64 { return c.x(t.Sub(c.r.Start)) }

func (c *canvas) yRate(percent float64) float64 {
	return c.rateTop + rateHeight*(100-percent)/(100-c.lowest)
}

func (c *canvas) yTime(ms float64) float64 {
	low, high := math.Log10(c.fastest), math.Log10(c.slowest)
	return c.timeTop + timeHeight*(high-min(high, max(low, math.Log10(ms))))/(high-low)
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(c, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, class, x1, y1, x2, y2)
}

func (c *canvas) text(class string, x, y float64, s string) {
	fmt.Fprintf(c, `<text class="%s" x="%.1f" y="%.1f">%s</text>`, class, x, y, html.EscapeString(s))
}

func (c *canvas) rect(class string, x, y, w, h float64, title string) {
	fmt.Fprintf(c, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`,
		class, x, y, max(0, w), h, html.EscapeString(title))
}

// steps shades every other step and writes its name above.
func (c *canvas) steps() {
	const letter = 6.7 // width, about
	up := false
	for i, s := range c.r.Steps {
		x1, x2 := c.at(s.Start), c.at(s.End)
		if i%2 == 1 {
			c.rect("band", x1, c.rateTop-20, x2-x1, c.bottom-c.rateTop+20, s.Name)
		}
		y := c.rateTop - 7
		if up = !up && float64(len(s.Name))*letter > x2-x1-5; up {
			y -= 14 // out of the way of the next one
		}
		c.text("step", x1+5, y, s.Name)
	}
}

func (c *canvas) rate() {
	for _, p := range []float64{100, (100 + c.lowest) / 2, c.lowest} {
		c.line("grid", marginLeft, c.yRate(p), marginLeft+plotWidth, c.yRate(p))
		c.text("tick end", marginLeft-8, c.yRate(p)+4, fmt.Sprintf("%g %%", p))
	}
	c.text("panel", marginLeft+5, c.rateTop+rateHeight-6, "successful requests")
	var line, fall strings.Builder
	for _, b := range c.r.Series {
		if b.Sent == 0 {
			continue
		}
		x1, x2, y := c.x(b.At), c.x(b.At+rollout.BucketWidth), c.yRate(successRate(b))
		fmt.Fprintf(&line, "%s%.1f,%.1f L%.1f,%.1f ", pen(&line), x1, y, x2, y)
		if b.Failed > 0 {
			fmt.Fprintf(&fall, `<rect class="fall" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%.1fs: %d of %d failed</title></rect>`,
				x1, c.yRate(100), x2-x1, y-c.yRate(100), b.At.Seconds(), b.Failed, b.Sent)
		}
	}
	c.WriteString(fall.String())
	fmt.Fprintf(c, `<path class="line ok" d="%s"/>`, line.String())
}

// pen moves to the first point of a path and draws to the others.
func pen(b *strings.Builder) string {
	if b.Len() == 0 {
		return "M"
	}
	return "L"
}

func (c *canvas) latency() {
	for decade := c.fastest; decade <= c.slowest*1.001; decade *= 10 {
		for i := 1.0; i < 10 && decade*i <= c.slowest*1.001; i++ {
			class := "grid faint"
			if i == 1 {
				class = "grid"
				c.text("tick end", marginLeft-8, c.yTime(decade)+4, msTick(decade))
			}
			c.line(class, marginLeft, c.yTime(decade*i), marginLeft+plotWidth, c.yTime(decade*i))
		}
	}
	c.text("panel", marginLeft+5, c.timeTop+14, "latency")
	for _, q := range []struct {
		class string
		of    func(rollout.Bucket) time.Duration
	}{
		{"p99", func(b rollout.Bucket) time.Duration { return b.P99 }},
		{"p50", func(b rollout.Bucket) time.Duration { return b.P50 }},
	} {
		var line strings.Builder
		for _, b := range c.r.Series {
			if b.Sent > 0 {
				fmt.Fprintf(&line, "%s%.1f,%.1f ", pen(&line), c.x(b.At+rollout.BucketWidth/2), c.yTime(toMS(q.of(b))))
			}
		}
		fmt.Fprintf(c, `<path class="line %s" d="%s"/>`, q.class, line.String())
	}
}

func msTick(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%g s", ms/1000)
	}
	return fmt.Sprintf("%g ms", ms)
}

// life is what is known of one process.
type life struct {
	started, ready, term, kill, exited time.Time
}

func (c *canvas) lives() map[string]*life {
	all := map[string]*life{}
	for _, m := range c.r.Moments {
		l := all[m.Process]
		if l == nil {
			l = new(life)
			all[m.Process] = l
		}
		switch m.What {
		case rollout.MomentStarted:
			l.started = m.At
		case rollout.MomentReady:
			l.ready = m.At
		case rollout.MomentTerm:
			l.term = m.At
		case rollout.MomentKill:
			l.kill = m.At
		case rollout.MomentExited:
			l.exited = m.At
		}
	}
	return all
}

// lanes draws the life of each process: starting, serving, draining.
func (c *canvas) lanes() {
	lives := c.lives()
	for i, s := range c.r.Shares {
		l, y := lives[s.Process], c.laneTop+float64(i)*laneHeight
		if l == nil {
			continue
		}
		c.text("lane end", marginLeft-8, y+11, s.Process)
		end := first(l.exited, c.r.End)
		ready := first(l.ready, end)
		leave := first(l.term, first(l.kill, end))
		part := func(class string, from, to time.Time, what string) {
			if to.After(c.r.Start) && to.After(from) {
				c.rect(class, c.at(from), y+3, c.at(to)-c.at(from), laneHeight-6,
					fmt.Sprintf("%s %s for %s, answered %d", s.Process, what, ms(to.Sub(from)), s.Answered))
			}
		}
		part("starting", l.started, ready, "starting")
		part("serving", ready, leave, "serving")
		if !l.term.IsZero() {
			part("draining", l.term, end, "draining")
		}
		if !l.kill.IsZero() {
			x, m := c.at(l.kill), y+laneHeight/2
			fmt.Fprintf(c, `<path class="cross" d="M%.1f,%.1f l8,8 m0,-8 l-8,8"><title>%s: SIGKILL</title></path>`, x-4, m-4, html.EscapeString(s.Process))
		}
	}
}

func first(t, otherwise time.Time) time.Time {
	if t.IsZero() {
		return otherwise
	}
	return t
}

// moments draws a line through everything where an instance was told to go.
func (c *canvas) moments() {
	for _, m := range c.r.Moments {
		class := ""
		switch m.What {
		case rollout.MomentTerm:
			class = "term"
		case rollout.MomentKill:
			class = "kill"
		}
		if class == "" || m.At.After(c.r.End) {
			continue
		}
		x := c.at(m.At)
		fmt.Fprintf(c, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"><title>%s to %s</title></line>`,
			class, x, c.rateTop, x, c.bottom, m.What, html.EscapeString(m.Process))
	}
}

func (c *canvas) timeAxis() {
	c.line("axis", marginLeft, c.bottom+4, marginLeft+plotWidth, c.bottom+4)
	step := 5 * time.Second
	for c.end/step > 14 {
		step *= 2
	}
	for t := time.Duration(0); t <= c.end; t += step {
		c.text("tick middle", c.x(t), c.bottom+20, fmt.Sprintf("%g s", t.Seconds()))
	}
}
