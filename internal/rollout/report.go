// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

import (
	"github.com/HdrHistogram/hdrhistogram-go"
)

import (
	"github.com/dubbogo/graceful/internal/shop"
)

// Figures of a set of requests. Latency counts from the moment that the plan asked for, failed
// requests included.
type Figures struct {
	Requests int `json:"requests"`
	// Failed means that the caller got an error or an answer to nothing.
	Failed int `json:"failed"`
	// Retried counts attempts beyond the first one of a call, at client and proxies.
	Retried int           `json:"retried"`
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
	P999    time.Duration `json:"p999"`
	Max     time.Duration `json:"max"`
}

// StepReport is one line of the final table.
type StepReport struct {
	Name  string    `json:"name"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	Figures
	// Exits of the processes that got their SIGTERM in this step.
	Exits []Exit `json:"exits,omitempty"`
}

// SlowestExit is the longest time from SIGTERM to exit in this step.
func (s *StepReport) SlowestExit() time.Duration {
	var d time.Duration
	for _, e := range s.Exits {
		d = max(d, e.Took)
	}
	return d
}

// Failure is one request that the caller got an error for.
type Failure struct {
	ID    string        `json:"id"`
	Step  string        `json:"step"`
	At    time.Time     `json:"at"`
	After time.Duration `json:"after"`
	Error string        `json:"error"`
	// Path names the processes that the request came to.
	Path string `json:"path"`
	// Cause says which killed process the request was lost with; it is empty if none explains it.
	Cause string `json:"cause,omitempty"`
}

// Explained reports whether the request was lost with a process that was killed.
func (f *Failure) Explained() bool { return f.Cause != "" }

// Bucket is a stretch of time in the report's picture.
type Bucket struct {
	// At is the start of the stretch, from the start of the load.
	At     time.Duration `json:"at"`
	Sent   int           `json:"sent"`
	Failed int           `json:"failed"`
	P50    time.Duration `json:"p50"`
	P99    time.Duration `json:"p99"`
	Max    time.Duration `json:"max"`
}

// BucketWidth is the length of a [Bucket].
const BucketWidth = 250 * time.Millisecond

// Share is how many requests a process answered.
type Share struct {
	Process  string    `json:"process"`
	Role     shop.Role `json:"role"`
	Answered int       `json:"answered"`
}

// Report is the account of a run.
type Report struct {
	Title    string           `json:"title"`
	Registry shop.Registry    `json:"registry"`
	Protocol string           `json:"protocol"`
	Start    time.Time        `json:"start"`
	End      time.Time        `json:"end"`
	Load     shop.LoadSummary `json:"load"`
	Total    Figures          `json:"total"`
	Steps    []StepReport     `json:"steps"`
	Failures []Failure        `json:"failures,omitempty"`
	// Problems are contradictions between plan, answers and ledgers; there must be none.
	Problems []string `json:"problems,omitempty"`
	Series   []Bucket `json:"series"`
	Moments  []Moment `json:"moments"`
	Shares   []Share  `json:"shares"`
	Exits    []Exit   `json:"exits"`
	// Executions counts how often a provider's handler took up a request of the load.
	Executions int `json:"executions"`

	// Records are all requests in the order they were intended.
	Records []*shop.Record `json:"-"`
}

// Unexplained returns the failures that no killed process accounts for.
func (r *Report) Unexplained() []Failure {
	var fs []Failure
	for _, f := range r.Failures {
		if !f.Explained() {
			fs = append(fs, f)
		}
	}
	return fs
}

// OK reports whether nothing failed but what was lost with a killed process, and nothing
// contradicts.
func (r *Report) OK() bool { return len(r.Unexplained()) == 0 && len(r.Problems) == 0 }

// witness is a process as the account needs it.
type witness struct {
	name   string
	role   shop.Role
	addr   string
	ledger []*shop.Entry
	killed time.Time // when SIGKILL was sent
	exit   *Exit
}

// accounting is everything that a report follows from.
type accounting struct {
	title     string
	cfg       *Config
	summary   shop.LoadSummary
	start     time.Time
	records   []*shop.Record
	steps     []step
	moments   []Moment
	witnesses []witness
}

func (a *accounting) report() *Report {
	slices.SortStableFunc(a.records, func(x, y *shop.Record) int { return x.Intended.Compare(y.Intended) })
	slices.SortStableFunc(a.moments, func(x, y Moment) int { return x.At.Compare(y.At) })
	r := &Report{
		Title: a.title, Registry: a.cfg.Registry, Protocol: a.cfg.Protocol, Start: a.start, End: a.summary.Stop,
		Load: a.summary, Moments: a.moments, Records: a.records,
	}
	b := a.book()
	r.Total = figures(a.records, b)
	r.Steps = a.stepReports(b)
	r.Series = a.series()
	r.Shares = a.shares()
	for i := range a.witnesses {
		if e := a.witnesses[i].exit; e != nil {
			r.Exits = append(r.Exits, *e)
		}
	}
	for _, rec := range a.records {
		if rec.Failed() {
			r.Failures = append(r.Failures, a.explain(rec, b))
		}
	}
	r.Executions, r.Problems = a.check(b)
	return r
}

// book holds what the ledgers say, by request id.
type book map[string][]mark

type mark struct {
	w *witness
	*shop.Entry
}

func (a *accounting) book() book {
	b := book{}
	for i := range a.witnesses {
		w := &a.witnesses[i]
		for _, e := range w.ledger {
			b[e.ID] = append(b[e.ID], mark{w, e})
		}
	}
	return b
}

// executions counts the marks of one role.
func (b book) executions(id string, role shop.Role) int {
	n := 0
	for _, m := range b[id] {
		if m.w.role == role {
			n++
		}
	}
	return n
}

// retries counts the attempts beyond the first one: of the client, and of each proxy's handler.
func (b book) retries(rec *shop.Record) int {
	n := max(0, len(rec.Tried)-1)
	for _, m := range b[rec.ID] {
		n += max(0, len(m.Tried)-1)
	}
	return n
}

func (a *accounting) stepReports(b book) []StepReport {
	var out []StepReport
	for i, s := range a.steps {
		// A step lasts until the next one begins, so that every request belongs to one.
		from, to := s.start, a.summary.Stop
		if i == 0 {
			from = time.Time{}
		}
		if i+1 < len(a.steps) {
			to = a.steps[i+1].start
		}
		var recs []*shop.Record
		for _, rec := range a.records {
			if !rec.Intended.Before(from) && (rec.Intended.Before(to) || i+1 == len(a.steps)) {
				recs = append(recs, rec)
			}
		}
		sr := StepReport{Name: s.name, Start: s.start, End: to, Figures: figures(recs, b)}
		for _, name := range s.exits {
			for j := range a.witnesses {
				if w := &a.witnesses[j]; w.name == name && w.exit != nil {
					sr.Exits = append(sr.Exits, *w.exit)
				}
			}
		}
		out = append(out, sr)
	}
	return out
}

func (a *accounting) stepOf(at time.Time) string {
	name := ""
	for _, s := range a.steps {
		if name == "" || !at.Before(s.start) {
			name = s.name
		}
	}
	return name
}

func (a *accounting) series() []Bucket {
	if len(a.records) == 0 {
		return nil
	}
	var (
		out []Bucket
		h   = newHistogram()
	)
	flush := func() {
		if n := len(out); n > 0 {
			out[n-1].P50, out[n-1].P99, out[n-1].Max = h.quantile(50), h.quantile(99), h.max
		}
		h = newHistogram()
	}
	for _, rec := range a.records {
		i := int(max(0, rec.Intended.Sub(a.start)) / BucketWidth)
		for len(out) <= i {
			flush()
			out = append(out, Bucket{At: time.Duration(len(out)) * BucketWidth})
		}
		out[i].Sent++
		if rec.Failed() {
			out[i].Failed++
		}
		h.add(rec.Latency())
	}
	flush()
	return out
}

func (a *accounting) shares() []Share {
	answered := map[string]int{}
	for _, rec := range a.records {
		if !rec.Failed() {
			answered[rec.ServedBy]++
			answered[rec.Via]++
		}
	}
	var out []Share
	for _, w := range a.witnesses {
		out = append(out, Share{Process: w.name, Role: w.role, Answered: answered[w.name]})
	}
	return out
}

// answerTime is how long an answer may be on its way after its handler has written the end mark.
const answerTime = 20 * time.Millisecond

// explain finds the killed process that a failed request was lost with: either its handler had
// taken the request up and never came to the end, or had just come to it and its answer was cut, or the request was sent to it before it was gone
// and its handler did not get it any more.
func (a *accounting) explain(rec *shop.Record, b book) Failure {
	f := Failure{ID: rec.ID, Step: a.stepOf(rec.Intended), At: rec.Intended, After: rec.Latency(), Error: rec.Error}
	var path []string
	for _, m := range b[rec.ID] {
		p := m.w.name
		if m.End.IsZero() {
			p += " (no end)"
		}
		path = append(path, p)
	}
	f.Path = strings.Join(path, ", ")
	for i := range a.witnesses {
		w := &a.witnesses[i]
		if w.killed.IsZero() || w.exit == nil || rec.Done.Before(w.killed) {
			continue
		}
		took := slices.ContainsFunc(b[rec.ID], func(m mark) bool { return m.w == w })
		switch {
		case slices.ContainsFunc(b[rec.ID], func(m mark) bool { return m.w == w && m.End.IsZero() }):
			f.Cause = "being served by " + w.name + " when it was killed"
		case slices.ContainsFunc(b[rec.ID], func(m mark) bool { return m.w == w && w.killed.Sub(m.End) < answerTime }):
			f.Cause = "its answer on the wire from " + w.name + " when it was killed"
		case !took && a.sentTo(rec, b, w):
			f.Cause = "on the wire to " + w.name + " when it was killed"
		default:
			continue
		}
		return f
	}
	return f
}

// sentTo reports whether an attempt of the request went to w before w was gone.
func (a *accounting) sentTo(rec *shop.Record, b book, w *witness) bool {
	if w.role == shop.Proxy {
		return slices.Contains(rec.Tried, w.addr) && rec.Sent.Before(w.exit.At)
	}
	return slices.ContainsFunc(b[rec.ID], func(m mark) bool {
		return slices.ContainsFunc(m.Tried, func(t shop.Try) bool { return t.Addr == w.addr && t.At.Before(w.exit.At) })
	})
}

// problems beyond this number say nothing new.
const maxProblems = 20

// check holds plan, answers and ledgers against each other.
func (a *accounting) check(b book) (executions int, problems []string) {
	say := func(format string, args ...any) {
		if len(problems) < maxProblems {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	if s := a.summary; s.Planned != s.Sent || s.Sent != s.Answered || s.Answered != len(a.records) {
		say("planned %d, sent %d, answered %d, recorded %d: want all the same", s.Planned, s.Sent, s.Answered, len(a.records))
	}
	if !a.hasLedgers() {
		return 0, problems
	}
	known := map[string]bool{}
	for _, rec := range a.records {
		if known[rec.ID] {
			say("%s was answered twice", rec.ID)
		}
		known[rec.ID] = true
		for _, role := range []shop.Role{shop.Proxy, shop.Provider} {
			n := b.executions(rec.ID, role)
			if role == shop.Provider {
				executions += n
			}
			switch {
			case n == 0 && !rec.Failed():
				say("%s succeeded but no %s ran it", rec.ID, role)
			case n > 1 && !a.cfg.Repeats:
				say("%s was run %d times by a %s", rec.ID, n, role)
			}
		}
	}
	for id := range b {
		if !known[id] && !strings.HasPrefix(id, shop.WarmPrefix) && strings.HasPrefix(id, LoadPrefix+"-") {
			say("%s was run but never answered", id)
		}
	}
	slices.SortFunc(problems, cmp.Compare[string])
	return executions, problems
}

func (a *accounting) hasLedgers() bool {
	return slices.ContainsFunc(a.witnesses, func(w witness) bool { return len(w.ledger) > 0 })
}

func figures(recs []*shop.Record, b book) Figures {
	f := Figures{Requests: len(recs)}
	h := newHistogram()
	for _, rec := range recs {
		if rec.Failed() {
			f.Failed++
		}
		f.Retried += b.retries(rec)
		h.add(rec.Latency())
	}
	f.P50, f.P99, f.P999, f.Max = h.quantile(50), h.quantile(99), h.quantile(99.9), h.max
	return f
}

// histogram counts microseconds up to a minute with three digits.
type histogram struct {
	h   *hdrhistogram.Histogram
	max time.Duration
}

const histogramTop = time.Minute

func newHistogram() *histogram {
	return &histogram{h: hdrhistogram.New(1, histogramTop.Microseconds(), 3)}
}

func (h *histogram) add(d time.Duration) {
	h.max = max(h.max, d)
	// Clamped into the range, so it cannot fail.
	_ = h.h.RecordValue(min(max(d, time.Microsecond), histogramTop).Microseconds())
}

func (h *histogram) quantile(q float64) time.Duration {
	if h.h.TotalCount() == 0 {
		return 0
	}
	return min(time.Duration(h.h.ValueAtQuantile(q))*time.Microsecond, h.max)
}

func tail(path string, lines int) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	all := bytes.Split(bytes.TrimRight(b, "\n"), []byte("\n"))
	return bytes.Join(all[max(0, len(all)-lines):], []byte("\n"))
}
