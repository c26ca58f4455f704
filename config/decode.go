// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Decode reads the settings out of dubbo.custom.config-map and lays them over the defaults. It returns the names of the
// keys that were set (without the prefix), and the first error in the order of the keys' names.
//
// Keys may be nested, flat, or nested in part; one that is set twice is an error, since nobody could tell which one wins.
// Keys of other modules in the same map are left alone, but one of ours that lacks the prefix is an error: it would
// silently do nothing.
func Decode(configMap map[string]any) (Settings, map[string]bool, error) {
	s := Default()
	given, err := flatten(configMap)
	if err != nil {
		return Default(), nil, err
	}
	set := make(map[string]bool, len(given))
	for _, path := range slices.Sorted(maps.Keys(given)) {
		name := strings.TrimPrefix(path, Prefix+".")
		i, known := byName[name]
		if !known {
			return Default(), nil, unknown(name, given[path])
		}
		if problem := assign(keys[i].field(&s), given[path]); problem != "" {
			return Default(), nil, &Error{Key: path, Value: show(given[path]), Problem: problem, Allowed: keys[i].rule.allowed}
		}
		s.set |= 1 << i
		set[name] = true
	}
	if err := s.Validate(); err != nil {
		return Default(), nil, err
	}
	return s, set, nil
}

// Validate returns an error that names the first key with a value that is not allowed.
func (s Settings) Validate() error {
	for _, k := range keys {
		if v := value(k.field(&s)); !k.rule.ok(v) {
			return &Error{Key: fullName(k.name), Value: format(v), Problem: "is not allowed", Allowed: k.rule.allowed}
		}
	}
	if s.Blacklist.Max < s.Blacklist.Base {
		return &Error{
			Key: fullName("blacklist.max"), Value: Short(s.Blacklist.Max), Problem: "is shorter than the first ejection",
			Allowed: "a duration not below graceful.blacklist.base, which is " + Short(s.Blacklist.Base),
		}
	}
	if s.Shutdown.GracePeriod > 0 && s.Shutdown.Timeout > s.Shutdown.GracePeriod {
		return &Error{
			Key: fullName("shutdown.timeout"), Value: Short(s.Shutdown.Timeout), Problem: "is longer than the platform waits",
			Allowed: "a duration up to graceful.shutdown.grace-period, which is " + Short(s.Shutdown.GracePeriod),
		}
	}
	return nil
}

// flatten returns everything below the prefix by its full dotted path.
func flatten(configMap map[string]any) (map[string]any, error) {
	given := map[string]any{}
	var walk func(path string, v any) error
	walk = func(path string, v any) error {
		name := strings.TrimPrefix(path, Prefix+".")
		_, isKey := byName[name]
		m, isMap := stringMap(v)
		switch {
		case isMap && !isKey && (len(m) > 0 || isGroup(path)):
			for _, k := range slices.Sorted(maps.Keys(m)) {
				if err := walk(path+"."+k, m[k]); err != nil {
					return err
				}
			}
			return nil
		case v == nil && isGroup(path):
			return nil // `graceful:` with nothing below it sets nothing
		case isGroup(path):
			return &Error{Key: path, Value: show(v), Problem: "stands where a group of keys begins", Allowed: strings.Join(members(path), ", ")}
		case v == nil:
			return &Error{Key: path, Value: "nothing", Problem: "is no value", Allowed: allowedAt(name)}
		}
		if first, twice := given[path]; twice {
			return &Error{
				Key: path, Value: show(first) + " and " + show(v), Problem: "are both set, nested and flat",
				Allowed: "one of them",
			}
		}
		given[path] = v
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(configMap)) {
		switch {
		case k == Prefix, strings.HasPrefix(k, Prefix+"."):
			if err := walk(k, configMap[k]); err != nil {
				return nil, err
			}
		default:
			if err := withoutPrefix(k, configMap[k]); err != nil {
				return nil, err
			}
		}
	}
	return given, nil
}

// distinctive are the groups whose names are ours even without the prefix. Others, such as retry or registry, may well
// belong to the application.
var distinctive = []string{"drain.", "warmup.", "blacklist.", "health.check."}

func withoutPrefix(path string, v any) error {
	if m, ok := stringMap(v); ok {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if err := withoutPrefix(path+"."+k, m[k]); err != nil {
				return err
			}
		}
		return nil
	}
	i, known := byName[path]
	if !known || !slices.ContainsFunc(distinctive, func(group string) bool { return strings.HasPrefix(path, group) }) {
		return nil
	}
	return &Error{
		Key: path, Value: show(v), Problem: fmt.Sprintf("has no effect without the prefix, write %s", fullName(path)),
		Allowed: keys[i].rule.allowed,
	}
}

// isGroup reports whether keys begin with this path.
func isGroup(path string) bool { return len(members(path)) > 0 }

func members(path string) (names []string) {
	for _, k := range keys {
		if strings.HasPrefix(fullName(k.name), path+".") {
			names = append(names, fullName(k.name))
		}
	}
	return names
}

func allowedAt(name string) string {
	if i, ok := byName[name]; ok {
		return keys[i].rule.allowed
	}
	return fullName(nearest(name))
}

func unknown(name string, v any) error {
	near := nearest(name)
	return &Error{
		Key: fullName(name), Value: show(v), Problem: fmt.Sprintf("is set, but there is no such key, the nearest is %s", fullName(near)),
		Allowed: fmt.Sprintf("%s = %s", fullName(near), keys[byName[near]].rule.allowed),
	}
}

// nearest returns the key with the least edit distance to name. A name that only lacks or mistakes its group counts as
// near too: the distance to the last part of a key, when it is short, beats a chance likeness of the whole.
func nearest(name string) string {
	best, distance := "", 0
	last := name[strings.LastIndexByte(name, '.')+1:]
	for _, k := range keys {
		d := min(levenshtein(fold(name), fold(k.name)), levenshtein(fold(last), fold(k.name[strings.LastIndexByte(k.name, '.')+1:]))+2)
		if best == "" || d < distance {
			best, distance = k.name, d
		}
	}
	return best
}

// fold takes away what people vary most: case, and the separators within a name.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' {
			return -1
		}
		return r
	}, strings.ToLower(s))
}

func levenshtein(a, b string) int {
	// Longer names are no slip of the pen, and the cost is their product.
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// stringMap accepts both kinds of map that YAML decoders produce.
func stringMap(v any) (map[string]any, bool) {
	switch m := v.(type) {
	case map[string]any:
		return m, true
	case map[any]any:
		out := make(map[string]any, len(m))
		for k, v := range m {
			out[fmt.Sprint(k)] = v
		}
		return out, true
	default:
		return nil, false
	}
}

func show(v any) string {
	if s, ok := v.(string); ok {
		if s == "" {
			return `""`
		}
		return s
	}
	return fmt.Sprint(v)
}
