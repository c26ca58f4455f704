// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_shutdown

import (
	"fmt"
	"strings"
	"time"
)

import (
	"github.com/dubbogo/gost/log/logger"
)

const area = "[Graceful][Shutdown] "

func infof(format string, args ...any) { logger.Infof(area+format, args...) }
func warnf(format string, args ...any) { logger.Warnf(area+format, args...) }

// logEvent writes one line for an event that people want to see.
func logEvent(e Event) {
	if line, bad := describe(e); line != "" && bad {
		warnf("%s", line)
	} else if line != "" {
		infof("%s", line)
	}
}

// describe returns the line of an event, "" for none, and whether it is a warning.
func describe(e Event) (line string, bad bool) {
	var b strings.Builder
	add := func(format string, args ...any) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, format, args...)
	}
	switch e := e.(type) {
	case RunStarted:
		add("trigger=%q until=%s budget=%v", e.Trigger, e.Target, short(e.Budget))
		if e.Resumed {
			add("resumed=true")
		}
	case PhaseWaiting:
		add("phase=%s waiting=%v", e.Phase, short(e.Elapsed))
		if e.For != "" {
			add("for=%q", e.For)
		}
	case PhaseReached:
		add("phase=%s took=%v", e.Phase, short(e.Took))
		if unit := e.Phase.unit(); unit != "" {
			add("%s=%d", unit, e.Count)
		}
		if e.Left > 0 {
			add("left=%d", e.Left)
		}
		if e.TimedOut {
			add("timeout=true")
		}
		bad = e.TimedOut || e.Err != nil
		if e.Err != nil {
			add("err=%q", oneLine(e.Err))
		}
	case HookDone:
		add("phase=%s name=%q took=%v", e.Phase, e.Name, short(e.Took))
		if bad = e.Err != nil; bad {
			add("err=%q", oneLine(e.Err))
		}
	case SignalReceived:
		add("signal=%q", e.Signal)
		if e.Forced {
			add("again=true, the process ends at once exit-code=%d", 128+number(e.Signal))
			bad = true
		}
	case WentOnline:
		add("online=true seq=%d", e.Seq)
		if bad = e.Err != nil; bad {
			add("err=%q", oneLine(e.Err))
		}
	case RunFinished:
		add("finished=%s took=%v", e.Target, short(e.Took))
		if e.CutOff > 0 {
			add("cut-off=%d", e.CutOff)
		}
		if e.Exiting {
			add("exit-code=%d", e.ExitCode)
		}
		if bad = e.Err != nil; bad {
			add("err=%q", oneLine(e.Err))
		}
	}
	return b.String(), bad
}

// unit names what a phase counts.
func (p Phase) unit() string {
	switch p {
	case Announced, Unregistered:
		return "registries"
	case Quiesced, Settled:
		return "callers"
	case InboundDrained, OutboundDrained:
		return "requests"
	case Closed:
		return "closed"
	case Callbacks:
		return "callbacks"
	default:
		return ""
	}
}

func short(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
