// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// ErrInvalid is what every error of this package is, for errors.Is.
var ErrInvalid = errors.New("invalid setting")

// Error tells which setting is wrong. Its text is one line.
type Error struct {
	// Key in full, such as graceful.drain.timeout.
	Key string
	// Value as it was given.
	Value string
	// Problem with it, and where one is obvious, what was probably meant.
	Problem string
	// Allowed is what could stand there.
	Allowed string
}

// Error names the key, the value and what is allowed.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s %s; allowed: %s", oneLine(e.Key), oneLine(e.Value), oneLine(e.Problem), oneLine(e.Allowed))
}

// Is reports every Error as ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// oneLine keeps a text that came from a file on one line of reasonable length: the whole error is printed as one.
func oneLine(s string) string {
	const limit = 200
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit]) + "..."
	}
	return s
}
