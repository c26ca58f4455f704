// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package samples_test checks what is not code in the samples.
package samples_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gopkg.in/yaml.v3"
)

import (
	"github.com/dubbogo/graceful/config"
)

// A typo in a sample is copied by everyone who starts from it.
func TestConfigurationsOfTheSamplesAreAccepted(t *testing.T) {
	files, err := filepath.Glob("app/*/dubbogo.yml")
	require.NoError(t, err)
	require.Len(t, files, 3)
	texts := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		texts[f] = string(b)
	}
	for _, m := range manifests(t) {
		if m["kind"] == "ConfigMap" {
			for name, text := range m["data"].(map[string]any) {
				texts["k8s "+name] = text.(string)
			}
		}
	}
	require.Len(t, texts, 6)
	for name, text := range texts {
		var c struct {
			Dubbo struct {
				Registries map[string]struct {
					Protocol string
					Params   map[string]string
				}
				Custom struct {
					ConfigMap map[string]any `yaml:"config-map"`
				}
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &c), name)
		settings, _, err := config.Decode(c.Dubbo.Custom.ConfigMap)
		require.NoError(t, err, name)
		require.NoError(t, settings.Validate(), name)
		require.Len(t, c.Dubbo.Registries, 1, name)
		for _, r := range c.Dubbo.Registries {
			assert.Equal(t, "graceful", r.Protocol, name)
			assert.Equal(t, "zookeeper", r.Params["graceful.delegate"], name)
		}
	}
}

func TestPodsHaveTheGracePeriodTheyAreToldOf(t *testing.T) {
	seen := 0
	for _, m := range manifests(t) {
		if m["kind"] != "Deployment" {
			continue
		}
		spec := m["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		if spec["terminationGracePeriodSeconds"] != nil {
			assert.Equal(t, 45, spec["terminationGracePeriodSeconds"])
			seen++
		}
	}
	assert.Equal(t, 2, seen)
	b, err := os.ReadFile("k8s/shop.yaml")
	require.NoError(t, err)
	assert.Equal(t, 2, bytes.Count(b, []byte("grace-period: 45s")))
}

func manifests(t *testing.T) []map[string]any {
	t.Helper()
	b, err := os.ReadFile("k8s/shop.yaml")
	require.NoError(t, err)
	var all []map[string]any
	for d := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var m map[string]any
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, m)
	}
}
