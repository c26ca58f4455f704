// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common/extension"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

import (
	"github.com/dubbogo/graceful"
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/filter/active"
	"github.com/dubbogo/graceful/internal/settings"
)

// One blank import registers everything that dubbogo.yml can name.
func TestEverythingIsRegistered(t *testing.T) {
	for _, name := range []string{active.ProviderKey, active.ConsumerKey} {
		f, ok := extension.GetFilter(name)
		assert.True(t, ok && f != nil, name)
	}
	for name, ours := range map[string]string{"pshutdown": active.ProviderKey, "cshutdown": active.ConsumerKey} {
		f, _ := extension.GetFilter(name)
		want, _ := extension.GetFilter(ours)
		assert.Same(t, want, f, "the coordinator takes over %s", name)
	}
	for _, name := range []string{"blacklist", "warmup"} {
		assert.Contains(t, extension.GetAllLoadbalanceNames(), name)
	}
	assert.Contains(t, extension.GetRouterFactories(), "graceful-draining")
	assert.NotNil(t, extension.GetConfigPostProcessor("graceful"))
	protocols := []string{config.Protocol}
	for _, d := range config.Delegates() {
		protocols = append(protocols, config.Protocol+"+"+d)
	}
	for _, name := range protocols {
		assert.NotNil(t, extension.GetMetadataReportFactory(name), name)
		_, err := extension.GetConfigCenterFactory(name)
		assert.NoError(t, err, name)
	}
}

// Who reads settings must see to it that they are loaded, also in an application that imports that package alone.
func TestReadersOfSettingsLoadThem(t *testing.T) {
	const module = "github.com/dubbogo/graceful"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...").Output()
	require.NoError(t, err)
	readers := 0
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		path, rest, _ := strings.Cut(line, " ")
		deps := strings.Fields(rest)
		if path == module+"/internal/bootstrap" || !slices.Contains(deps, module+"/internal/settings") {
			continue
		}
		readers++
		assert.True(t, slices.Contains(deps, module+"/internal/bootstrap"), "%s reads settings that nobody loads", path)
	}
	assert.NotZero(t, readers)
}

func TestConfigure(t *testing.T) {
	settings.Isolate(t)
	err := graceful.Configure(config.WithDrainTimeout(-time.Second))
	require.ErrorIs(t, err, config.ErrInvalid)
	assert.EqualError(t, err, "graceful: graceful.drain.timeout: -1s is not allowed; allowed: a duration from 0s to 24h")
	require.NoError(t, graceful.Configure(config.WithDrainTimeout(time.Second)))
	require.NoError(t, settings.Load(nil))
	assert.Equal(t, time.Second, settings.Get().Drain.Timeout)
	assert.ErrorIs(t, graceful.Configure(), graceful.ErrTooLate)
	assert.Error(t, graceful.FromInstance(nil))
}
