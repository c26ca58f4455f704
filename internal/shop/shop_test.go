// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package shop

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gopkg.in/yaml.v3"
)

func TestLedgerRoundTrip(t *testing.T) {
	path := LedgerPath(t.TempDir(), "p")
	l, err := OpenLedger(path)
	require.NoError(t, err)
	l.Start("a")
	l.Try("a", "127.0.0.1:1")
	l.Start("b")
	l.Try("a", "127.0.0.1:2")
	l.End("a")
	l.Start("a") // once more: it must not be taken for the one that ended
	require.NoError(t, l.Close())

	got, err := ReadLedger(path)
	require.NoError(t, err)
	require.Len(t, got, 3)
	assert.Equal(t, "a", got[0].ID)
	assert.False(t, got[0].End.IsZero())
	require.Len(t, got[0].Tried, 2)
	assert.Equal(t, "127.0.0.1:2", got[0].Tried[1].Addr)
	assert.True(t, got[1].End.IsZero(), "b never ended")
	assert.True(t, got[2].End.IsZero())
}

func TestLedgerThatIsNotThereIsEmpty(t *testing.T) {
	got, err := ReadLedger(filepath.Join(t.TempDir(), "none"))
	require.NoError(t, err)
	assert.Empty(t, got)
}

func TestBrokenLedgerIsAnError(t *testing.T) {
	for _, line := range []string{"start a", "start a x", "stop a 1", "end a 1"} {
		path := filepath.Join(t.TempDir(), "l")
		require.NoError(t, os.WriteFile(path, []byte(line+"\n"), 0o644))
		_, err := ReadLedger(path)
		assert.Error(t, err, line)
	}
}

// The load is open: requests go out on schedule although none has been answered.
func TestLoadDoesNotWaitForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu   sync.Mutex
			sent []time.Duration
			hold = make(chan struct{})
		)
		start := time.Now()
		g, err := newGenerator(LoadArgs{Rate: 100, Prefix: "r"}, func(_ string, intended time.Time) {
			mu.Lock()
			sent = append(sent, time.Since(start))
			mu.Unlock()
			assert.Zero(t, time.Since(intended))
			<-hold
		})
		require.NoError(t, err)
		go g.run()
		time.Sleep(95 * time.Millisecond)
		g.end()
		synctest.Wait()
		mu.Lock()
		slices.Sort(sent)
		for n, at := range sent {
			assert.Equal(t, time.Duration(n)*10*time.Millisecond, at)
		}
		assert.Len(t, sent, 10)
		mu.Unlock()

		close(hold)
		s, err := g.summary(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 10, s.Planned)
		assert.Equal(t, 10, s.Sent)
		assert.Equal(t, 10, s.Answered)
	})
}

func TestLoadOfACountEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := newGenerator(LoadArgs{Rate: 1000, Prefix: "r", Count: 25}, func(string, time.Time) {})
		require.NoError(t, err)
		go g.run()
		s, err := g.summary(t.Context())
		require.NoError(t, err)
		assert.Equal(t, LoadSummary{Start: s.Start, Stop: s.Start.Add(25 * time.Millisecond), Planned: 25, Sent: 25, Answered: 25}, s)
	})
}

// What was due before the stop is sent even if the generator is late, else planned and sent differ.
func TestLoadCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := newGenerator(LoadArgs{Rate: 1000, Prefix: "r"}, func(string, time.Time) {})
		require.NoError(t, err)
		time.Sleep(50 * time.Millisecond) // a pause of the whole process
		g.end()
		go g.run()
		s, err := g.summary(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 50, s.Planned)
		assert.Equal(t, 50, s.Sent)
		assert.Equal(t, 50*time.Millisecond, s.Late)
	})
}

func TestLoadWantsARate(t *testing.T) {
	_, err := newGenerator(LoadArgs{}, nil)
	assert.ErrorIs(t, err, errBadRate)
}

func TestYAMLSaysWhatTheOptionsSay(t *testing.T) {
	no := false
	o := &Options{
		Role: Proxy, Name: "p", Protocol: "tri", Port: 20001, Cluster: "failfast", Loadbalance: "blacklist",
		Registries:     map[string]Registry{"main": {Protocol: "graceful", Address: "127.0.0.1:2181", Level: LevelService, Params: map[string]string{"graceful.delegate": "zookeeper"}}},
		InternalSignal: &no, Custom: map[string]any{"graceful": map[string]any{"loadbalance": "blacklist"}},
		ProviderFilter: "echo,pgraceful", RequestTimeout: 9 * time.Second,
	}
	b, err := o.YAML()
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, yaml.Unmarshal(b, &got))
	d := got["dubbo"].(map[string]any)
	assert.Equal(t, map[string]any{"main": map[string]any{
		"protocol": "graceful", "address": "127.0.0.1:2181", "registry-type": "service",
		"params": map[string]any{"graceful.delegate": "zookeeper"},
	}}, d["registries"])
	ref := d["consumer"].(map[string]any)["references"].(map[string]any)["Backend"].(map[string]any)
	assert.Equal(t, map[string]any{
		"interface": "shop.Backend", "protocol": "tri", "cluster": "failfast", "retries": "0", "loadbalance": "blacklist",
	}, ref)
	assert.Equal(t, "9s", d["consumer"].(map[string]any)["request-timeout"])
	assert.Equal(t, map[string]any{"internal-signal": false}, d["shutdown"])
	assert.Equal(t, "shop.Front", d["provider"].(map[string]any)["services"].(map[string]any)["Front"].(map[string]any)["interface"])
	assert.Equal(t, "echo,pgraceful", d["provider"].(map[string]any)["filter"])
}

func TestOptionsSayWhatIsWrong(t *testing.T) {
	for text, v := range map[string]string{
		"role":     `{"role":"cook"}`,
		"protocol": `{"role":"provider","protocol":"grpc"}`,
		"JSON":     `{`,
	} {
		t.Setenv(EnvOptions, v)
		_, err := OptionsFromEnv()
		assert.ErrorContains(t, err, EnvOptions, text)
	}
}
