// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

import (
	"github.com/stretchr/testify/require"
)

const module = "github.com/dubbogo/graceful"

// layers, lowest first. A package belongs to the longest prefix that fits; it may import its own layer and those below.
var layers = []struct {
	name     string
	prefixes []string
	apart    bool // its packages do not import each other (a package and those inside it are one)
}{
	{name: "pure core", prefixes: []string{
		"internal/wire", "internal/drain", "internal/self", "internal/attempt", "internal/announce", "internal/instant",
		"internal/strmap", "cluster/instance", "config",
	}},
	{name: "shared pieces", prefixes: []string{"internal"}},
	{name: "adapters", prefixes: []string{
		"filter", "cluster/loadbalance/blacklist", "cluster/loadbalance/warmup", "cluster/router", "cluster/interceptor",
		"registry/graceful", "registry/etcdv3",
	}, apart: true},
	{name: "coordinator", prefixes: []string{"graceful_shutdown"}},
	{name: "root", prefixes: []string{""}},
	{name: "programs", prefixes: []string{
		"samples", "integrate_test",
		"internal/shop", "internal/rollout", "internal/testserver", "internal/layers", "internal/configtable",
	}},
}

// excepted are imports between adapters that have a reason.
var excepted = map[string]string{
	// By name only (a blank import): the decorator alone must be enough for etcd, where dubbo-go's own registry cannot work.
	"registry/graceful": "registry/etcdv3",
}

// pure packages and what they may import beside the standard library and each other.
var pure = map[string][]string{
	"internal/wire": nil, "internal/drain": nil, "internal/self": nil, "internal/attempt": nil, "internal/announce": nil,
	"cluster/instance": nil,
	"config":           nil,
}

type pkg struct {
	ImportPath   string
	Standard     bool
	Imports      []string
	TestImports  []string
	XTestImports []string
	Module       *struct{ Path string }
	Error        *struct{ Err string }
}

// list runs go list in the root of the module.
func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Standard,Imports,TestImports,XTestImports,Module,Error"}, args...)...)
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoErrorf(t, err, "go list %v: %s", args, &stderr)
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Error != nil {
			t.Fatalf("%s: %s", p.ImportPath, p.Error.Err)
		}
		pkgs = append(pkgs, p)
	}
}

// inModule returns the path of one of our packages inside the module.
func inModule(path string) (string, bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

func within(path, prefix string) bool {
	return prefix == "" || path == prefix || strings.HasPrefix(path, prefix+"/")
}

// layerOf returns the layer of a package, and the part of the layer that it is in.
func layerOf(path string) (layer int, part string) {
	layer = -1
	for i, l := range layers {
		for _, prefix := range l.prefixes {
			// The root package has no packages inside it: a new directory has to be given a layer.
			if prefix == "" && path != "" {
				continue
			}
			if within(path, prefix) && (layer < 0 || len(prefix) > len(part)) {
				layer, part = i, prefix
			}
		}
	}
	return layer, part
}

func TestNoImportPointsUpwards(t *testing.T) {
	for _, p := range list(t, "-tags", "integration", "./...") {
		from, _ := inModule(p.ImportPath)
		layer, part := layerOf(from)
		if layer < 0 {
			t.Errorf("%s: belongs to no layer", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			to, ours := inModule(imported)
			if !ours {
				continue
			}
			below, other := layerOf(to)
			if below > layer {
				t.Errorf("%s (%s) imports %s (%s)", from, layers[layer].name, to, layers[below].name)
			}
			if below == layer && layers[layer].apart && part != other && excepted[from] != to {
				t.Errorf("%s and %s are both %s, which do not import each other", from, to, layers[layer].name)
			}
		}
	}
}

func TestNothingImportsThePrograms(t *testing.T) {
	for _, p := range list(t, "-tags", "integration", "./...") {
		from, _ := inModule(p.ImportPath)
		for _, imported := range append(append(p.Imports, p.TestImports...), p.XTestImports...) {
			to, _ := inModule(imported)
			for _, top := range []string{"samples", "integrate_test"} {
				if within(to, top) && !within(from, top) {
					t.Errorf("%s imports %s", p.ImportPath, imported)
				}
			}
		}
	}
}

func TestPureCoreKnowsNoOtherModule(t *testing.T) {
	for path, allowed := range pure {
		t.Run(path, func(t *testing.T) {
			permitted := map[string]bool{module: true}
			for _, a := range allowed {
				permitted[a] = true
			}
			for _, p := range list(t, "-deps", "./"+path) {
				if p.Standard {
					continue
				}
				require.NotNil(t, p.Module, p.ImportPath)
				if !permitted[p.Module.Path] {
					t.Errorf("%s depends on %s", path, p.ImportPath)
				}
				if inside, ours := inModule(p.ImportPath); ours {
					layer, _ := layerOf(inside)
					require.Zerof(t, layer, "%s depends on %s", path, p.ImportPath)
				}
			}
		})
	}
}

func TestLibraryStaysSmall(t *testing.T) {
	// What a user's program gets with the blank import of the root: not every extension of dubbo-go, no server, no test tools.
	forbidden := []string{
		"dubbo.apache.org/dubbo-go/v3/imports", "go.etcd.io/etcd/server", "github.com/stretchr/testify",
		"github.com/HdrHistogram", "github.com/guptarohit/asciigraph", "pgregory.net/rapid", "go.uber.org/goleak",
	}
	ours := 0
	for _, p := range list(t, "-deps", ".") {
		for _, f := range forbidden {
			require.Falsef(t, within(p.ImportPath, f), "the library depends on %s", p.ImportPath)
		}
		if _, ok := inModule(p.ImportPath); ok {
			ours++
			require.NotContainsf(t, p.Imports, "testing", "%s is no test", p.ImportPath)
		}
	}
	require.Greater(t, ours, 10)
}

func TestLayerOf(t *testing.T) {
	for path, want := range map[string]string{
		"":                              "root",
		"internal/wire":                 "pure core",
		"internal/settings":             "shared pieces",
		"internal/shop/shoppb":          "programs",
		"cluster/loadbalance/warmup":    "adapters",
		"graceful_shutdown/admin":       "coordinator",
		"samples/rolling/view":          "programs",
		"registry/graceful":             "adapters",
		"cluster/loadbalance/blacklist": "adapters",
	} {
		layer, _ := layerOf(path)
		require.GreaterOrEqual(t, layer, 0, path)
		require.Equal(t, want, layers[layer].name, path)
	}
	layer, _ := layerOf("newdirectory")
	require.Equal(t, -1, layer, "a new directory has to be given a layer")
}
