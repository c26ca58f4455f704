// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rule says which values of a key are allowed, in words and in code. Both come from one constructor, so that the words
// in an error and in the README cannot drift from what is checked.
type rule struct {
	allowed string
	// ok gets the value itself: a time.Duration, int, float64, bool or string, as the field of the key is.
	ok func(v any) bool
}

// longest is the upper bound of every duration. No wait in here makes sense beyond a day; a larger value is a slip in
// the unit.
const longest = 24 * time.Hour

// exitReserve is what the shutdown keeps back of the platform's grace period: one that is not longer leaves nothing.
const exitReserve = 5 * time.Second

func duration(shortest time.Duration) rule {
	return rule{
		allowed: fmt.Sprintf("a duration from %s to %s", Short(shortest), Short(longest)),
		ok: func(v any) bool {
			d := v.(time.Duration)
			return d >= shortest && d <= longest
		},
	}
}

// zeroOrAbove is for durations where 0 has a meaning of its own.
func zeroOrAbove(above time.Duration) rule {
	return rule{
		allowed: fmt.Sprintf("0s, or a duration above %s and up to %s", Short(above), Short(longest)),
		ok: func(v any) bool {
			d := v.(time.Duration)
			return d == 0 || d > above && d <= longest
		},
	}
}

func whole(least, most int) rule {
	return rule{
		allowed: fmt.Sprintf("a whole number from %d to %d", least, most),
		ok: func(v any) bool {
			n := v.(int)
			return n >= least && n <= most
		},
	}
}

// above is for numbers that must not be 0. NaN fails both comparisons.
func above(bound, most float64) rule {
	return rule{
		allowed: fmt.Sprintf("a number above %v and up to %v", bound, most),
		ok: func(v any) bool {
			f := v.(float64)
			return f > bound && f <= most
		},
	}
}

func oneOf(values ...string) rule {
	return rule{
		allowed: strings.Join(values, ", "),
		ok:      func(v any) bool { return slices.Contains(values, v.(string)) },
	}
}

func boolean() rule {
	return rule{allowed: "true, false", ok: func(any) bool { return true }}
}

// balancer is a name that is registered with dubbo-go. Whether it is registered is not known here: internal/settings
// asks dubbo-go when everything has been imported.
func balancer(empty bool, forbidden ...string) rule {
	allowed := "the name of a registered load balancer"
	if empty {
		allowed += ", or nothing"
	}
	if len(forbidden) > 0 {
		allowed += " other than " + strings.Join(forbidden, ", ")
	}
	return rule{
		allowed: allowed,
		ok: func(v any) bool {
			name := v.(string)
			if name == "" {
				return empty
			}
			return !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' }) && !slices.Contains(forbidden, name)
		},
	}
}

// assign converts what the decoder of dubbogo.yml made of a value, and stores it in the field. It returns what is wrong
// with it, "" if nothing. A string stands for any type, because a placeholder such as ${TIMEOUT:3s} always becomes one.
func assign(field, value any) (problem string) {
	switch field := field.(type) {
	case *time.Duration:
		return assignDuration(field, value)
	case *int:
		n, ok := integer(value)
		if !ok {
			return "is no whole number"
		}
		*field = n
	case *float64:
		f, ok := number(value)
		if !ok {
			return "is no number"
		}
		*field = f
	case *bool:
		switch value {
		case true, "true":
			*field = true
		case false, "false":
			*field = false
		default:
			return "is neither true nor false"
		}
	case *string:
		s, ok := value.(string)
		if !ok {
			return "is no text"
		}
		*field = s
	}
	return ""
}

func assignDuration(field *time.Duration, value any) (problem string) {
	if d, ok := value.(time.Duration); ok {
		*field = d
		return ""
	}
	if n, ok := number(value); ok {
		if n == 0 {
			*field = 0
			return ""
		}
		return fmt.Sprintf("has no unit, write %sms", plain(n))
	}
	s, ok := value.(string)
	if !ok {
		return "is no duration"
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return "is no duration"
	}
	*field = d
	return ""
}

func integer(value any) (int, bool) {
	if s, ok := value.(string); ok {
		n, err := strconv.Atoi(s)
		return n, err == nil
	}
	f, ok := number(value)
	// Beyond 2^53 a float64 is no exact integer any more; no key comes near.
	if !ok || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int(f), true
}

// number accepts every numeric type that a decoder of YAML, JSON or TOML produces, and a string that holds one.
func number(value any) (float64, bool) {
	switch v := value.(type) {
	case int:
		return float64(v), true
	case int8:
		return float64(v), true
	case int16:
		return float64(v), true
	case int32:
		return float64(v), true
	case int64:
		return float64(v), true
	case uint:
		return float64(v), true
	case uint8:
		return float64(v), true
	case uint16:
		return float64(v), true
	case uint32:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float32:
		return float64(v), true
	case float64:
		return v, true
	case string:
		f, err := strconv.ParseFloat(v, 64)
		return f, err == nil
	default:
		return 0, false
	}
}

func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// Short writes a duration without the zero parts that time.Duration.String appends: 2m, not 2m0s.
func Short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
