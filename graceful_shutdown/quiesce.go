// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"fmt"
	"strings"
	"time"
)

import (
	"github.com/dubbogo/graceful/config"
	"github.com/dubbogo/graceful/internal/drain"
)

// verdict is what the known callers say about a wait.
type verdict struct {
	done    bool
	next    time.Duration // when not done: nothing but a response or a request can change the verdict before this has passed
	callers int           // callers looked at
	left    int           // callers that are still waited for
	who     string        // some of them, for people
}

// ackSilence is how long a caller that has been sent the mark must be silent to have moved, where `drain.quiet` is longer. The mark
// was produced, not read yet, and what the caller sent before it read it is still on its way.
const ackSilence = 100 * time.Millisecond

// moved says whether a caller has gone elsewhere.
func moved(v drain.CallerView, since, now time.Time, quiet time.Duration) bool {
	return !now.Before(movedAt(v, since, quiet))
}

// movedAt is when a caller has gone elsewhere if it sends nothing more: shortly after it saw the mark, or after it has been quiet for
// long enough. An acknowledgement from before since belongs to an earlier run and counts for nothing.
func movedAt(v drain.CallerView, since time.Time, quiet time.Duration) time.Time {
	if acknowledged(v, since) {
		quiet = min(quiet, ackSilence)
	}
	return v.LastSeen.Add(quiet)
}

func acknowledged(v drain.CallerView, since time.Time) bool {
	return !v.Unknown && !v.AckedAt.IsZero() && !v.AckedAt.Before(since)
}

// quiesced decides phase 3: every caller that has this module has moved. Callers without it do not know the mark, and are not
// waited for before the unregister, which is the only thing that moves them.
func quiesced(callers []drain.CallerView, since, now time.Time, d config.Drain) verdict {
	v := verdict{done: true}
	var names []string
	for _, c := range callers {
		if c.Unknown || now.Sub(c.LastSeen) > d.CallerWindow {
			continue
		}
		v.callers++
		if moved(c, since, now, d.Quiet) {
			continue
		}
		v.done = false
		v.left++
		v.next = max(v.next, movedAt(c, since, d.Quiet).Sub(now))
		names = append(names, c.Caller.App+"@"+c.Caller.IP)
	}
	v.who = some(names, v.left)
	return v
}

// settled decides phase 5: the callers without this module have gone quiet since the unregister. There is nothing to wait for when
// every caller of the window acknowledged the mark in this run: they all know, and none of them depends on the registry.
func settled(callers []drain.CallerView, since, unregistered, now time.Time, d config.Drain) verdict {
	v := verdict{}
	last, all := unregistered, true
	for _, c := range callers {
		if now.Sub(c.LastSeen) > d.CallerWindow {
			continue
		}
		v.callers++
		if !acknowledged(c, since) {
			all = false
		}
		if c.Unknown && c.LastSeen.After(last) {
			last = c.LastSeen
			v.left = 1
			v.who = "callers without this module"
		}
	}
	wait := unregistered.Add(d.MinWait).Sub(now)
	if !all {
		wait = max(wait, last.Add(d.Quiet).Sub(now))
	}
	v.done = wait <= 0
	if v.done {
		v.left, v.who = 0, ""
		return v
	}
	v.next = wait
	return v
}

// some names at most three, so that a line of log stays a line.
func some(names []string, total int) string {
	if total == 0 {
		return ""
	}
	shown := names[:min(3, len(names))]
	out := strings.Join(shown, ", ")
	if more := total - len(shown); more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}
