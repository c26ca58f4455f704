// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package pick

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/invocation"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"go.uber.org/goleak"

	"pgregory.net/rapid"
)

import (
	"github.com/dubbogo/graceful/cluster/instance"
	"github.com/dubbogo/graceful/internal/attempt"
	"github.com/dubbogo/graceful/internal/wire"
)

// What dubbo-go's packages started in their init is none of ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

var defaults = Limits{MaxPercent: 50, PanicPercent: 20}

type failer interface {
	Fatalf(format string, args ...any)
}

// fleet is a list of instances, a table that knows them, and a picker whose chance has a fixed seed.
type fleet struct {
	Picker
	invokers []base.Invoker
	calls    base.Invocation
}

func newFleet(t failer, n int, params ...string) *fleet {
	f := &fleet{calls: invocation.NewRPCInvocationWithOptions(invocation.WithMethodName("Order"))}
	f.Table = instance.New(instance.DefaultSettings())
	f.Table.SetJitter(func() float64 { return 0.5 })
	f.Source = rand.NewPCG(1, uint64(n))
	for i := range n {
		query := "weight=0"
		if i < len(params) {
			query = params[i]
		}
		f.invokers = append(f.invokers, base.NewBaseInvoker(newURL(t, i, query)))
		f.Table.Observe(f.addr(i), instance.Observation{Preexisting: true}, time.Now())
	}
	return f
}

func newURL(t failer, i int, query string) *common.URL {
	url, err := common.NewURL(fmt.Sprintf("tri://127.0.0.1:%d/shop.Backend?interface=shop.Backend&%s", 20000+i, query))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return url
}

func (f *fleet) addr(i int) string             { return f.invokers[i].GetURL().Location }
func (f *fleet) entry(i int) *instance.Entry   { return f.Table.Lookup(f.addr(i)) }
func (f *fleet) healthy(l Limits) base.Invoker { return f.Healthy(f.invokers, f.calls, l) }

func (f *fleet) fail(i int, c attempt.Class) {
	for range 5 { // timeouts eject at the fifth
		f.entry(i).Begin(time.Now())
		if f.entry(i).End(c, 0, time.Now()) {
			return
		}
	}
}

func (f *fleet) drain(i int) {
	f.Table.Observe(f.addr(i), instance.Observation{Mark: wire.Mark{Status: wire.Draining, Start: "1-1", Seq: 2}}, time.Now())
}

// fresh lets an instance appear now.
func (f *fleet) fresh(i int) {
	f.Table.Observe(f.addr(i), instance.Observation{Mark: wire.Mark{Status: wire.Up, Start: fmt.Sprint("2-", i)}}, time.Now())
}

// count has a selection made n times and returns how often each instance was chosen.
func (f *fleet) count(n int, choose func() base.Invoker) []int {
	index := make(map[base.Invoker]int)
	for i, invoker := range f.invokers {
		index[invoker] = i
	}
	chosen := make([]int, len(f.invokers))
	for range n {
		if i, ok := index[choose()]; ok {
			chosen[i]++
		}
	}
	return chosen
}

// requireShares checks counts against weights, six standard deviations wide.
func requireShares(t failer, chosen []int, weights []float64) {
	var n, sum float64
	for i := range chosen {
		n += float64(chosen[i])
		sum += weights[i]
	}
	for i := range chosen {
		p := weights[i] / sum
		if d := math.Abs(float64(chosen[i]) - n*p); d > 6*math.Sqrt(n*p*(1-p))+1e-9 {
			t.Fatalf("instance %d: chosen %d of %.0f times, its weight says %.1f; all: %v for %v", i, chosen[i], n, n*p, chosen, weights)
		}
	}
}

func TestShareGrowsWithAge(t *testing.T) {
	for _, tc := range []struct {
		age   time.Duration
		share float64 // of a full weight
	}{
		{0, 0.1}, {6 * time.Second, 0.1}, {30 * time.Second, 0.25}, {time.Minute, 0.5}, {108 * time.Second, 0.9}, {4 * time.Minute, 1},
	} {
		t.Run(tc.age.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 4)
				f.fresh(3)
				time.Sleep(tc.age)
				weights := []float64{1, 1, 1, tc.share}
				requireShares(t, f.count(40_000, func() base.Invoker { return f.Weighted(f.invokers, f.calls) }), weights)
				requireShares(t, f.count(40_000, func() base.Invoker { return f.healthy(defaults) }), weights)
			})
		})
	}
}

func TestSharesAreEqualWhenAllWarmUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5)
		for i := range f.invokers {
			f.fresh(i)
		}
		for range 4 {
			requireShares(t, f.count(20_000, func() base.Invoker { return f.Weighted(f.invokers, f.calls) }), []float64{1, 1, 1, 1, 1})
			time.Sleep(40 * time.Second)
		}
	})
}

// The weights of any list, whoever warms up in it, are what is observed.
func TestSharesFollowWeights(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(rt, "n")
		params, weights := make([]string, n), make([]float64, n)
		for i := range n {
			w := rapid.IntRange(0, 300).Draw(rt, "weight")
			params[i] = fmt.Sprintf("weight=%d", w)
			if w == 0 {
				w = defaultWeight
			}
			weights[i] = float64(w)
		}
		ages := rapid.SliceOfN(rapid.IntRange(0, 150), n, n).Draw(rt, "ages")
		now := time.Now()
		f := newFleet(rt, n, params...)
		f.Source = rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)
		for i, age := range ages {
			if age < 120 {
				// A window of an hour and more: the time that the test takes moves no share by much.
				f.Table.Observe(f.addr(i), instance.Observation{
					Mark: wire.Mark{Start: fmt.Sprint("3-", i), Warmup: "1000h"},
				}, now.Add(-time.Duration(age)*time.Hour))
				weights[i] *= instance.WarmupShare(time.Duration(age)*time.Hour, 1000*time.Hour, 1, 0.1)
			}
		}
		requireShares(rt, f.count(1_000, func() base.Invoker { return f.Weighted(f.invokers, f.calls) }), weights)
		requireShares(rt, f.count(1_000, func() base.Invoker { return f.healthy(defaults) }), weights)
	})
}

func TestEjectedInstancesAreLeftOut(t *testing.T) {
	for _, tc := range []struct {
		name     string
		n        int
		limits   Limits
		ejected  int // the first ones; broken connections
		refused  int // the ones after them
		expected []float64
	}{
		{name: "one of two always may", n: 2, limits: Limits{MaxPercent: 10, PanicPercent: 20}, ejected: 1, expected: []float64{0, 1}},
		{name: "half may", n: 4, limits: defaults, ejected: 2, expected: []float64{0, 0, 1, 1}},
		{name: "more than half is ignored", n: 4, limits: defaults, ejected: 3, expected: []float64{1, 1, 1, 1}},
		{name: "refused ones do not count", n: 4, limits: defaults, refused: 3, expected: []float64{0, 0, 0, 1}},
		{name: "nor do they come back with the others", n: 5, limits: defaults, ejected: 3, refused: 1, expected: []float64{1, 1, 1, 0, 1}},
		{name: "panic", n: 10, limits: Limits{MaxPercent: 100, PanicPercent: 20}, ejected: 9, expected: []float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{name: "no panic yet", n: 5, limits: Limits{MaxPercent: 100, PanicPercent: 20}, ejected: 4, expected: []float64{0, 0, 0, 0, 1}},
		{name: "panic calls no refused one", n: 10, limits: Limits{MaxPercent: 100, PanicPercent: 20}, ejected: 1, refused: 8, expected: []float64{1, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
		{name: "all ejected", n: 2, limits: Limits{MaxPercent: 100, PanicPercent: 0}, ejected: 2, expected: []float64{1, 1}},
		{name: "alone", n: 1, limits: defaults, ejected: 1, expected: []float64{1}},
		{name: "alone and refused", n: 1, limits: defaults, refused: 1, expected: []float64{1}},
		{name: "an ejected one before refused ones", n: 3, limits: defaults, ejected: 1, refused: 2, expected: []float64{1, 0, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, class := range []attempt.Class{attempt.Transport, attempt.Timeout} {
				f := newFleet(t, tc.n)
				for i := range tc.ejected {
					f.fail(i, class)
				}
				for i := range tc.refused {
					f.fail(tc.ejected+i, attempt.NotExecuted)
				}
				requireShares(t, f.count(4_000, func() base.Invoker { return f.healthy(tc.limits) }), tc.expected)
				requireShares(t, f.count(4_000, func() base.Invoker {
					return f.Through(&uniform{f.Source}, f.invokers, f.calls, tc.limits)
				}), tc.expected)
			}
		})
	}
}

// uniform is a balancer of somebody else's.
type uniform struct{ rand.Source }

func (u *uniform) Select(invokers []base.Invoker, _ base.Invocation) base.Invoker {
	return invokers[rand.New(u).IntN(len(invokers))]
}

func TestOrderOfLastResorts(t *testing.T) {
	f := newFleet(t, 5)
	limits := Limits{MaxPercent: 100}
	choose := map[string]func() base.Invoker{
		"healthy": func() base.Invoker { return f.healthy(limits) },
		"through": func() base.Invoker { return f.Through(&uniform{f.Source}, f.invokers, f.calls, limits) },
	}
	only := func(i int) {
		t.Helper()
		for name, c := range choose {
			chosen := f.count(300, c)
			require.Equalf(t, 300, chosen[i], "%s: %v", name, chosen)
		}
	}
	f.fail(1, attempt.Transport)
	f.fail(2, attempt.NotExecuted)
	f.drain(3)
	f.entry(4).SetHeld(true)
	only(0)
	f.entry(0).SetHeld(true)
	only(1)
	f.entry(1).SetHeld(true)
	only(2)
	f.entry(2).SetHeld(true)
	only(3)
	f.entry(3).SetHeld(true)
	for name, c := range choose {
		nobody := c()
		require.NotNil(t, nobody, name)
		assert.NotContains(t, f.invokers, nobody, name)
		assert.True(t, nobody.IsAvailable(), name)
		err := nobody.Invoke(context.Background(), f.calls).Error()
		require.ErrorIs(t, err, ErrNoInstance, name)
		assert.Contains(t, err.Error(), "shop.Backend", name)
	}
}

// dubbo 4714: the only provider says that it leaves, and nobody serves.
func TestLoneDrainingInstanceIsUsed(t *testing.T) {
	f := newFleet(t, 1)
	f.drain(0)
	assert.Same(t, f.invokers[0], f.healthy(defaults))
	assert.Same(t, f.invokers[0], f.Through(&uniform{f.Source}, f.invokers, f.calls, defaults))
}

func TestHalfOpenLetsOneRequestThrough(t *testing.T) {
	for name, choose := range map[string]func(*fleet) base.Invoker{
		"healthy": func(f *fleet) base.Invoker { return f.healthy(defaults) },
		"through": func(f *fleet) base.Invoker { return f.Through(first{}, f.invokers, f.calls, defaults) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 3)
				f.Source = nil // it is called from many goroutines
				f.fail(0, attempt.Transport)
				all := func() (chosen int64) {
					var n atomic.Int64
					var wg sync.WaitGroup
					for range 50 {
						wg.Go(func() {
							for range 20 {
								if choose(f) == f.invokers[0] {
									n.Add(1)
									f.entry(0).Begin(time.Now()) // it stays in flight
								}
							}
						})
					}
					wg.Wait()
					return n.Load()
				}
				assert.Zero(t, all(), "before its time is over")
				time.Sleep(time.Minute)
				assert.Zero(t, all(), "without a dial")
				f.entry(0).Dialed(true, time.Now())
				assert.EqualValues(t, 1, all())
				time.Sleep(20 * time.Second)
				f.entry(0).End(attempt.Transport, time.Second, time.Now())
				assert.Zero(t, all(), "ejected for longer")
				time.Sleep(time.Minute)
				f.entry(0).Dialed(true, time.Now())
				assert.EqualValues(t, 1, all())
				f.entry(0).End(attempt.Answered, 0, time.Now())
				assert.Greater(t, all(), int64(100), "restored")
			})
		})
	}
}

// first is a balancer that always wants the first one.
type first struct{}

func (first) Select(invokers []base.Invoker, _ base.Invocation) base.Invoker { return invokers[0] }

// A trial that nobody else can serve: the loser of the race gets the instance all the same.
func TestTrialOfTheLastInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1)
		f.fail(0, attempt.Transport)
		time.Sleep(time.Minute)
		f.entry(0).Dialed(true, time.Now())
		for range 3 {
			assert.Same(t, f.invokers[0], f.healthy(defaults))
			assert.Same(t, f.invokers[0], f.Through(first{}, f.invokers, f.calls, defaults))
		}
		assert.False(t, f.entry(0).TryTrial(time.Now()), "the first choice claimed it")
	})
}

func TestUnavailableInvokersAreLeftOut(t *testing.T) {
	f := newFleet(t, 4)
	for _, i := range []int{0, 2} {
		f.invokers[i].(base.AvailabilitySetter).SetAvailable(false)
	}
	want := []float64{0, 1, 0, 1}
	requireShares(t, f.count(5_000, func() base.Invoker { return f.Weighted(f.invokers, f.calls) }), want)
	requireShares(t, f.count(5_000, func() base.Invoker { return f.healthy(defaults) }), want)
	for _, i := range []int{1, 3} {
		f.invokers[i].(base.AvailabilitySetter).SetAvailable(false)
	}
	assert.Contains(t, f.invokers, f.healthy(defaults), "dubbo-go reports it itself when nobody is available")
}

// Whatever the instances are in, a choice is one that the rules allow, and every one that they allow is chosen some time.
func TestChoiceObeysTheRules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(rt, "n")
		limits := Limits{
			MaxPercent:   rapid.IntRange(0, 100).Draw(rt, "max"),
			PanicPercent: rapid.IntRange(0, 100).Draw(rt, "panic"),
		}
		f := newFleet(rt, n)
		f.Source = rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)
		states := make([]standing, n)
		for i := range states {
			states[i] = rapid.SampledFrom([]standing{usable, usable, ejected, unreachable, draining, removed}).Draw(rt, "state")
			switch states[i] {
			case ejected:
				f.fail(i, rapid.SampledFrom([]attempt.Class{attempt.Transport, attempt.Timeout}).Draw(rt, "class"))
			case unreachable:
				f.fail(i, attempt.NotExecuted)
			case draining:
				f.drain(i)
			case removed:
				f.entry(i).SetHeld(true)
			}
		}
		allowed := model(states, limits)
		for name, choose := range map[string]func() base.Invoker{
			"healthy": func() base.Invoker { return f.healthy(limits) },
			"through": func() base.Invoker { return f.Through(&uniform{f.Source}, f.invokers, f.calls, limits) },
		} {
			for i, times := range f.count(400, choose) {
				if times > 0 != allowed[i] {
					rt.Fatalf("%s: instance %d was chosen %d times; states %v, allowed %v", name, i, times, states, allowed)
				}
			}
		}
	})
}

// model says it in the plainest way.
func model(states []standing, l Limits) []bool {
	number := map[standing]int{}
	for _, s := range states {
		number[s]++
	}
	n := len(states)
	over := number[ejected] > 1 && number[ejected]*100 > l.MaxPercent*n
	panicking := number[usable]*100 < l.PanicPercent*n
	var best standing
	for best = usable; best < removed && number[best] == 0; best++ {
		continue
	}
	allowed := make([]bool, n)
	for i, s := range states {
		allowed[i] = s != removed && (s == best || s == ejected && (over || panicking))
	}
	return allowed
}

func TestWeightsAreReadOnce(t *testing.T) {
	f := newFleet(t, 3, "weight=50", "weight=0", "weight=200&methods.Order.weight=400&methods.Cancel.weight=0")
	requireShares(t, f.count(20_000, func() base.Invoker { return f.Weighted(f.invokers, f.calls) }), []float64{50, 100, 400})
	cancel := invocation.NewRPCInvocationWithOptions(invocation.WithMethodName("Cancel"))
	requireShares(t, f.count(20_000, func() base.Invoker { return f.Weighted(f.invokers, cancel) }), []float64{50, 100, 200})

	// dubbo-go 2864: a weight changes while the consumer runs; dubbo-go hands in another invoker.
	f.invokers[0] = base.NewBaseInvoker(newURL(t, 0, "weight=800"))
	requireShares(t, f.count(20_000, func() base.Invoker { return f.Weighted(f.invokers, f.calls) }), []float64{800, 100, 400})
	assert.Equal(t, 4, f.weights.current.Load().used)
}

func TestWeightOfURL(t *testing.T) {
	for query, want := range map[string]weight{
		"":                            {base: 100},
		"weight=":                     {base: 100},
		"weight=0":                    {base: 100},
		"weight=-5":                   {base: 100},
		"weight=abc":                  {base: 100},
		"weight=7":                    {base: 7},
		"weight=7&registry.weight=20": {base: 7},
		"weight=7&registry.weight=20&registry.label=true": {base: 20},
		"registry.label=true":                             {base: 100},
		"methods.A.weight=3&methods.B.retries=2":          {base: 100, methods: map[string]int64{"A": 3}},
		"methods.A.weight=0&methods.B.weight=x&weight=2":  {base: 2},
	} {
		assert.Equal(t, want, *parse(newURL(t, 1, query)), query)
	}
}

func TestWeightsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 2, "weight=1000", "weight=10")
		f.Weighted(f.invokers, f.calls)
		before := f.weights.current.Load()
		f.invokers[0] = base.NewBaseInvoker(newURL(t, 0, "weight=10"))
		time.Sleep(generationAge)
		f.count(5_000, func() base.Invoker { return f.Weighted(f.invokers, f.calls) })
		after := f.weights.current.Load()
		require.NotSame(t, before, after)
		assert.Equal(t, 2, after.used)
		assert.EqualValues(t, 10, after.groups["shop.Backend"].max.Load(), "the greatest weight is gone with its owner")
	})
}

// shifting makes a new URL each time it is asked.
type shifting struct{ *base.BaseInvoker }

func (s shifting) GetURL() *common.URL { return s.BaseInvoker.GetURL().Clone() }

func TestInvokersWithoutSteadyURLFillNoMemory(t *testing.T) {
	defer func(old int) { generationSize = old }(generationSize)
	generationSize = 1 << 10
	f := newFleet(t, 2)
	for i, invoker := range f.invokers {
		f.invokers[i] = shifting{invoker.(*base.BaseInvoker)}
	}
	chosen := f.count(3*generationSize/2, func() base.Invoker { return f.Weighted(f.invokers, f.calls) })
	requireShares(t, chosen, []float64{1, 1})
	assert.LessOrEqual(t, f.weights.current.Load().used, generationSize+3)
}

func TestManyCallersLearnTogether(t *testing.T) {
	f := newFleet(t, 200)
	f.Source = nil
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				if i%100 == g {
					f.weights.current.Store(nil)
				}
				list := f.invokers[i%150 : i%150+50]
				if invoker := f.Weighted(list, f.calls); invoker == nil {
					t.Error("nobody was chosen")
				}
			}
		})
	}
	wg.Wait()
}

func TestEmptyList(t *testing.T) {
	f := newFleet(t, 0)
	assert.Nil(t, f.Weighted(nil, f.calls))
	assert.Nil(t, f.healthy(defaults))
}

func TestForeignBalancerGetsTheListItself(t *testing.T) {
	f := newFleet(t, 3)
	see := &seeing{}
	f.Through(see, f.invokers, f.calls, defaults)
	assert.Same(t, &f.invokers[0], &see.list[0], "nothing is wrong")
	f.fresh(2)
	require.True(t, f.Troubled())
	f.Through(see, f.invokers, f.calls, defaults)
	assert.Same(t, &f.invokers[0], &see.list[0], "warming up excludes nobody")
	f.fail(0, attempt.Transport)
	f.Through(see, f.invokers, f.calls, defaults)
	assert.Equal(t, f.invokers[1:], see.list)
}

type seeing struct{ list []base.Invoker }

func (s *seeing) Select(invokers []base.Invoker, _ base.Invocation) base.Invoker {
	s.list = invokers
	return invokers[0]
}

func TestChoiceAllocatesNothing(t *testing.T) {
	healthy, one, half := newFleet(t, 100), newFleet(t, 100), newFleet(t, 100)
	one.fail(0, attempt.Transport)
	for i := range half.invokers {
		if half.fresh(i); i%2 == 0 {
			half.fail(i, attempt.NotExecuted)
		}
	}
	for name, f := range map[string]*fleet{"healthy": healthy, "one ejected": one, "half unreachable, all warming": half} {
		f.Weighted(f.invokers, f.calls)
		assert.Zero(t, testing.AllocsPerRun(2000, func() { f.healthy(defaults) }), name)
		assert.Zero(t, testing.AllocsPerRun(2000, func() { f.Weighted(f.invokers, f.calls) }), name)
	}
}

func TestErrNoInstanceIsNoSurprise(t *testing.T) {
	err := nobody(newURL(t, 0, "")).Invoke(context.Background(), nil).Error()
	assert.True(t, errors.Is(err, ErrNoInstance) && strings.HasPrefix(err.Error(), "service shop.Backend: no provider"))
}
