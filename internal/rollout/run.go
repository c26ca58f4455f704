// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

import (
	"github.com/dubbogo/graceful/internal/shop"
)

// Config describes a scenario's processes and load.
type Config struct {
	Title string
	// Binary is what every process runs; Binaries overrides it by role, as for a run of vanilla
	// consumers with providers that have the module.
	Binary   string
	Binaries map[shop.Role]string
	// Dir gets the logs and ledgers of all processes. It must exist.
	Dir string
	// Registry of every process; Registries overrides it by role.
	Registry   shop.Registry
	Registries map[shop.Role]shop.Registry
	// Protocol is "tri" or "dubbo".
	Protocol           string
	Providers, Proxies int
	// Rate is the number of requests a second, open loop. 0 starts no load.
	Rate        float64
	HandlerTime time.Duration
	// RequestTimeout of the proxies; 0 leaves dubbo-go's 3 s. The client waits two seconds longer.
	RequestTimeout time.Duration
	// Edit has the last word on the options of each process.
	Edit func(*shop.Options)
	// Repeats says that the cluster strategy may run a request more than once, failover after a
	// reset for one. Without it that is a problem.
	Repeats bool
	// OnEvent sees every event of every process but the answered requests. It must not block.
	OnEvent func(Event)
	// ReadyTimeout bounds the start of one process; 0 means 60 s.
	ReadyTimeout time.Duration
}

// defaultTimeout is dubbo-go's.
const defaultTimeout = 3 * time.Second

// Event is an event of a process in a scenario.
type Event struct {
	Process string
	Role    shop.Role
	shop.Event
}

// What happened to a process, as a moment of a run.
const (
	MomentStarted = "started"
	MomentReady   = "ready"
	MomentTerm    = "SIGTERM"
	MomentKill    = "SIGKILL"
	MomentExited  = "exited"
)

// Moment is a turning point in the life of a process.
type Moment struct {
	At      time.Time `json:"at"`
	Process string    `json:"process"`
	Role    shop.Role `json:"role"`
	What    string    `json:"what"`
}

// State of an instance as the scenario sees it.
const (
	StateStarting = "starting"
	StateUp       = "up"
	StateDraining = "draining" // it has got its SIGTERM
	StateExited   = "exited"
	StateKilled   = "killed"
)

// InstanceView is one line of a [Snapshot].
type InstanceView struct {
	Name  string
	Role  shop.Role
	Addr  string
	PID   int
	State string
	// Phase is the last phase that the coordinator reported, "" without the module.
	Phase string
	Since time.Time
	// Recent is the number of answers of the last second that it had a part in, Total of all.
	Recent, Total int
	Exit          *Exit
}

// Snapshot is a scenario at one moment.
type Snapshot struct {
	At, Start time.Time
	Step      string
	Instances []InstanceView
	// Rate, P50 and P99 are those of the last second.
	Rate     int
	P50, P99 time.Duration
	// Answered, Failed and Retried count from the start.
	Answered, Failed, Retried int
	LastError                 string
}

type member struct {
	*Process
	state string
	phase string
	since time.Time
	gen   int
	slot  int
	total int
	termd bool
	kill  time.Time // moment that a SIGKILL was sent
}

type step struct {
	name       string
	start, end time.Time
	exits      []string
}

// Run is a scenario that runs.
type Run struct {
	cfg   Config
	dir   Directory
	start time.Time

	mu      sync.Mutex
	members []*member
	slots   map[shop.Role]int
	records []*shop.Record // in the order of their answers
	failed  int
	retried int
	lastErr string
	steps   []*step
	moments []Moment
	client  *Process
	closed  sync.Once
}

// Start starts providers, proxies and a client, one role after the other, and then the load. What
// was started is stopped again if it fails.
func Start(ctx context.Context, cfg Config) (*Run, error) {
	if cfg.ReadyTimeout == 0 {
		cfg.ReadyTimeout = time.Minute
	}
	dir, err := OpenDirectory(ctx, cfg.Registry)
	if err != nil {
		return nil, err
	}
	r := &Run{cfg: cfg, dir: dir, slots: map[shop.Role]int{}, start: time.Now()}
	if err := r.launch(ctx); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Run) launch(ctx context.Context) error {
	for _, role := range []shop.Role{shop.Provider, shop.Proxy} {
		n := r.cfg.Providers
		if role == shop.Proxy {
			n = r.cfg.Proxies
		}
		var started []*member
		for range n {
			m, err := r.spawn(role, 0)
			if err != nil {
				return err
			}
			started = append(started, m)
		}
		for _, m := range started {
			if err := r.awaitReady(ctx, m); err != nil {
				return err
			}
		}
	}
	m, err := r.spawn(shop.Client, 0)
	if err != nil {
		return err
	}
	r.client = m.Process
	if err := r.awaitReady(ctx, m); err != nil {
		return err
	}
	if r.cfg.Rate <= 0 {
		return nil
	}
	r.start = time.Now()
	return r.client.Call(ctx, "load", shop.LoadArgs{Rate: r.cfg.Rate, Prefix: LoadPrefix}, nil)
}

// LoadPrefix begins the ids of the requests of a scenario's load.
const LoadPrefix = "r"

// options of a new process; slot 0 takes the next free slot of its role, another one makes a
// further generation of that slot.
func (r *Run) options(role shop.Role, slot int) (o shop.Options, gotSlot, gen int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gen = 1
	if slot == 0 {
		r.slots[role]++
		slot = r.slots[role]
	} else {
		for _, m := range r.members {
			if m.Role == role && m.slot == slot {
				gen = max(gen, m.gen+1)
			}
		}
	}
	name := string(role) + "-" + strconv.Itoa(slot)
	if gen > 1 {
		name += "." + strconv.Itoa(gen)
	}
	reg, ok := r.cfg.Registries[role]
	if !ok {
		reg = r.cfg.Registry
	}
	timeout := r.cfg.RequestTimeout
	if role == shop.Client {
		// The outer call outlives the inner one, as it should everywhere. Over the dubbo protocol
		// it must: an answer that comes after the timeout makes the client of dubbo-go 3.3.2 panic
		// in its decoder and drop the connection, with all other requests on it.
		timeout = cmp.Or(timeout, defaultTimeout) + 2*time.Second
	}
	return shop.Options{
		Role: role, Name: name, Dir: r.cfg.Dir, Protocol: r.cfg.Protocol,
		Registries:  map[string]shop.Registry{"main": reg},
		HandlerTime: r.cfg.HandlerTime, RequestTimeout: timeout,
		Cluster: "failfast",
	}, slot, gen
}

func (r *Run) spawn(role shop.Role, slot int) (*member, error) {
	o, slot, gen := r.options(role, slot)
	return r.spawnAs(o, slot, gen)
}

func (r *Run) spawnAs(o shop.Options, slot, gen int) (*member, error) {
	if r.cfg.Edit != nil {
		r.cfg.Edit(&o)
	}
	binary := r.cfg.Binaries[o.Role]
	if binary == "" {
		binary = r.cfg.Binary
	}
	m := &member{slot: slot, gen: gen, state: StateStarting, since: time.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Under the lock, so that the first event finds the process in m.
	p, err := StartProcess(binary, o, func(p *Process, ev shop.Event) { r.onEvent(m, ev) })
	if err != nil {
		return nil, err
	}
	m.Process = p
	r.members = append(r.members, m)
	r.moment(m, MomentStarted, p.Started())
	return m, nil
}

func (r *Run) awaitReady(ctx context.Context, m *member) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ReadyTimeout)
	defer cancel()
	if err := m.Ready(ctx, r.dir); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.state == StateStarting {
		m.state, m.since = StateUp, time.Now()
	}
	r.moment(m, MomentReady, time.Now())
	return nil
}

// moment is called with the lock held.
func (r *Run) moment(m *member, what string, at time.Time) {
	r.moments = append(r.moments, Moment{At: at, Process: m.Name, Role: m.Role, What: what})
}

func (r *Run) onEvent(m *member, ev shop.Event) {
	r.mu.Lock()
	switch ev.Kind {
	case shop.KindRequest:
		r.record(ev.Request)
		r.mu.Unlock()
		return
	case shop.KindPhase:
		if ev.Detail == shop.PhaseStarted {
			m.phase, m.since = ev.Name, ev.At
		}
	case KindExited:
		m.state, m.since = StateExited, ev.At
		if !m.kill.IsZero() {
			m.state = StateKilled
		}
		r.moment(m, MomentExited, ev.At)
	}
	r.mu.Unlock()
	if r.cfg.OnEvent != nil {
		r.cfg.OnEvent(Event{Process: m.Name, Role: m.Role, Event: ev})
	}
}

// record is called with the lock held.
func (r *Run) record(rec *shop.Record) {
	r.records = append(r.records, rec)
	r.retried += max(0, len(rec.Tried)-1) + max(0, rec.ProxyAttempts-1)
	if rec.Failed() {
		r.failed++
		r.lastErr = rec.Error
		return
	}
	for _, m := range r.members {
		if m.Name == rec.ServedBy || m.Name == rec.Via {
			m.total++
		}
	}
}

// Client is the process that sends the load.
func (r *Run) Client() *Process { return r.client }

// Directory is the registry, seen from outside.
func (r *Run) Directory() Directory { return r.dir }

// Live returns the processes of a role that serve, oldest first.
func (r *Run) Live(role shop.Role) []*Process {
	var ps []*Process
	for _, m := range r.live(role) {
		ps = append(ps, m.Process)
	}
	return ps
}

func (r *Run) live(role shop.Role) []*member {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ms []*member
	for _, m := range r.members {
		if m.Role == role && m.state == StateUp {
			ms = append(ms, m)
		}
	}
	return ms
}

func (r *Run) memberOf(p *Process) (*member, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.members, func(m *member) bool { return m.Process == p })
	if i < 0 {
		return nil, fmt.Errorf("%s is no process of this run", p.Name)
	}
	return r.members[i], nil
}

// Step runs f and gives everything that was sent meanwhile to the step of that name.
func (r *Run) Step(ctx context.Context, name string, f func(context.Context) error) error {
	s := &step{name: name, start: time.Now()}
	r.mu.Lock()
	if n := len(r.steps); n > 0 && r.steps[n-1].end.IsZero() {
		r.mu.Unlock()
		return fmt.Errorf("step %s begins inside step %s", name, r.steps[n-1].name)
	}
	r.steps = append(r.steps, s)
	r.mu.Unlock()
	err := f(ctx)
	r.mu.Lock()
	s.end = time.Now()
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("step %s: %w", name, err)
	}
	return nil
}

// Hold lets the load go on for d.
func (r *Run) Hold(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Roll replaces every process of a role, one after the other and without a pause: the replacement
// is started, and the moment it accepts connections and is registered the predecessor gets
// SIGTERM. At the end all predecessors have exited.
func (r *Run) Roll(ctx context.Context, role shop.Role) error {
	olds := r.live(role)
	for _, old := range olds {
		if err := r.replace(ctx, old); err != nil {
			return err
		}
	}
	for _, old := range olds {
		if _, err := old.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Replace rolls one process and returns its replacement; it does not wait for the end of the old.
func (r *Run) Replace(ctx context.Context, p *Process) (*Process, error) {
	m, err := r.memberOf(p)
	if err != nil {
		return nil, err
	}
	if err := r.replace(ctx, m); err != nil {
		return nil, err
	}
	live := r.live(p.Role)
	return live[len(live)-1].Process, nil
}

func (r *Run) replace(ctx context.Context, old *member) error {
	m, err := r.spawn(old.Role, old.slot)
	if err != nil {
		return err
	}
	if err := r.awaitReady(ctx, m); err != nil {
		return err
	}
	return r.term(old)
}

func (r *Run) term(m *member) error {
	r.mu.Lock()
	m.state, m.since, m.termd = StateDraining, time.Now(), true
	r.moment(m, MomentTerm, time.Now())
	if n := len(r.steps); n > 0 {
		r.steps[n-1].exits = append(r.steps[n-1].exits, m.Name)
	}
	r.mu.Unlock()
	return m.Term()
}

// RestartInPlace ends a process with SIGTERM and, when it has exited, starts it again on the same
// port. It returns when the new one is ready.
func (r *Run) RestartInPlace(ctx context.Context, p *Process) (*Process, error) {
	m, err := r.memberOf(p)
	if err != nil {
		return nil, err
	}
	if err := r.term(m); err != nil {
		return nil, err
	}
	if _, err := m.Wait(ctx); err != nil {
		return nil, err
	}
	o, slot, gen := r.options(p.Role, m.slot)
	o.Port = p.Port
	next, err := r.spawnAs(o, slot, gen)
	if err != nil {
		return nil, err
	}
	return next.Process, r.awaitReady(ctx, next)
}

// ScaleOut adds a process of a role and returns when it is ready.
func (r *Run) ScaleOut(ctx context.Context, role shop.Role) (*Process, error) {
	m, err := r.spawn(role, 0)
	if err != nil {
		return nil, err
	}
	return m.Process, r.awaitReady(ctx, m)
}

// ErrNobody says that no process of the role is up.
var ErrNobody = errors.New("no live process of that role")

// ScaleIn ends the oldest process of a role with SIGTERM and returns when it has exited.
func (r *Run) ScaleIn(ctx context.Context, role shop.Role) (Exit, error) {
	live := r.live(role)
	if len(live) == 0 {
		return Exit{}, fmt.Errorf("%w: %s", ErrNobody, role)
	}
	if err := r.term(live[0]); err != nil {
		return Exit{}, err
	}
	return live[0].Wait(ctx)
}

// Kill ends the newest process of a role with SIGKILL and returns when it is gone.
func (r *Run) Kill(ctx context.Context, role shop.Role) (*Process, error) {
	live := r.live(role)
	if len(live) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNobody, role)
	}
	m := live[len(live)-1]
	r.mu.Lock()
	m.kill = time.Now()
	m.state, m.since = StateKilled, m.kill
	r.moment(m, MomentKill, m.kill)
	r.mu.Unlock()
	if err := m.Process.Kill(); err != nil {
		return nil, err
	}
	_, err := m.Wait(ctx)
	return m.Process, err
}

// Snapshot is the present state, for a view.
func (r *Run) Snapshot() Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	s := Snapshot{
		At: now, Start: r.start, Answered: len(r.records), Failed: r.failed, Retried: r.retried, LastError: r.lastErr,
	}
	if n := len(r.steps); n > 0 {
		s.Step = r.steps[n-1].name
	}
	h := newHistogram()
	recent := map[string]int{}
	for i := len(r.records) - 1; i >= 0 && now.Sub(r.records[i].Done) < time.Second; i-- {
		rec := r.records[i]
		s.Rate++
		h.add(rec.Latency())
		recent[rec.ServedBy]++
		recent[rec.Via]++
	}
	s.P50, s.P99 = h.quantile(50), h.quantile(99)
	for _, m := range r.members {
		if m.Role == shop.Client {
			continue
		}
		v := InstanceView{
			Name: m.Name, Role: m.Role, Addr: m.Addr(), PID: m.PID(), State: m.state, Phase: m.phase,
			Since: m.since, Recent: recent[m.Name], Total: m.total,
		}
		if isClosed(m.done) {
			e := m.exit
			v.Exit = &e
		}
		s.Instances = append(s.Instances, v)
	}
	return s
}

// Finish stops the load, waits for every answer and accounts for all requests. The processes still
// run afterwards; [Run.Close] ends them.
func (r *Run) Finish(ctx context.Context) (*Report, error) {
	var sum shop.LoadSummary
	if r.cfg.Rate > 0 {
		if err := r.client.Call(ctx, "stop", nil, &sum); err != nil {
			return nil, err
		}
	}
	in := accounting{
		title: r.cfg.Title, cfg: &r.cfg, summary: sum, start: r.start,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	in.records, in.moments = slices.Clone(r.records), slices.Clone(r.moments)
	for _, s := range r.steps {
		in.steps = append(in.steps, *s)
	}
	for _, m := range r.members {
		if m.Role == shop.Client {
			continue
		}
		entries, err := m.Ledger()
		if err != nil {
			return nil, err
		}
		w := witness{name: m.Name, role: m.Role, addr: m.Addr(), ledger: entries, killed: m.kill}
		if isClosed(m.done) {
			e := m.exit
			w.exit = &e
		}
		in.witnesses = append(in.witnesses, w)
	}
	return in.report(), nil
}

// Close ends every process that still runs, at once, and waits for them. Closing twice is harmless.
func (r *Run) Close() {
	r.closed.Do(r.close)
}

func (r *Run) close() {
	r.mu.Lock()
	members := slices.Clone(r.members)
	r.mu.Unlock()
	for _, m := range members {
		m.Process.Stop()
	}
	_ = r.dir.Close() // nothing is written there
}

// Logs returns the last lines of the logs of all processes, for a test that failed.
func (r *Run) Logs(lines int) string {
	r.mu.Lock()
	members := slices.Clone(r.members)
	r.mu.Unlock()
	var b strings.Builder
	for _, m := range members {
		fmt.Fprintf(&b, "--- %s\n%s\n", m.LogPath(), tail(m.LogPath(), lines))
	}
	return b.String()
}

// Shutdown ends every process that still serves with SIGTERM, client first, all of a role at once,
// and waits for them as long as ctx allows. What is left then is up to [Run.Close].
func (r *Run) Shutdown(ctx context.Context) {
	for _, role := range []shop.Role{shop.Client, shop.Proxy, shop.Provider} {
		ms := r.live(role)
		for _, m := range ms {
			if role == shop.Client {
				// It has nothing left to do, and alone it would take dubbo-go three seconds to say so.
				m.Process.Stop()
				continue
			}
			_ = r.term(m) // it may have ended this moment
		}
		for _, m := range ms {
			_, _ = m.Wait(ctx)
		}
	}
}
