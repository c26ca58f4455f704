// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package graceful_shutdown takes an instance out of service so that no caller notices.
//
// Importing it takes the shutdown over from dubbo-go: the signals (unless dubbo.shutdown.internal-signal is false), dubbo-go's own
// Shutdown, and the filters pshutdown and cshutdown. A run goes through ten phases. Each is a signal that closes once, and has a slice
// of one budget:
//
//	 trigger: SIGTERM, BeforeShutdown, Shutdown, dubbo-go's Shutdown                     Offline
//	    |                                                                                   |
//	    |  who still sends requests here            what this process does                  |
//	    v                                                                                   v
//	 1 not-ready     everybody                      readiness off, responses carry the mark
//	 2 announced     everybody                      DRAINING in every registry
//	 3 quiesced      callers without this module    waits until the others saw the mark, or sent nothing for drain.quiet
//	 4 unregistered  callers that have not heard    removes the records; health says NOT_SERVING (not for Offline)
//	 5 settled       nobody who could know          waits for drain.quiet without a request      <-- Offline ends here
//	 6 rejecting     -                              a new request is answered "not executed", and tried elsewhere by its sender
//	 7 inbound       -                              waits for the requests being served, and for shutdown.linger
//	 8 outbound      -                              waits for its own requests downstream, and for shutdown.linger
//	 9 closed        -                              destroys protocols, releases registry connections
//	10 callbacks     -                              the application's callbacks, each bounded
//	    |
//	    v
//	exit 0, or shutdown.exit-code if requests were cut off (a signal); Serve returns nil (all other triggers)
//
// In an idle instance all of this takes as long as the registries need, plus drain.quiet if there were callers in the last minute.
// Nothing sleeps for a fixed time: each wait ends with the fact that it waits for.
//
// Budget. All phases together have shutdown.timeout; without it, the grace period less 5 s (shutdown.grace-period, or 30 s in
// Kubernetes); else 60 s. What a phase does not use goes to the ones after it, and no phase can take what those after it count on,
// so requests being served have at least 40 % of the budget. Whatever hangs, a registry, a callback, a log on a full pipe, the
// process ends with the budget.
//
// Signals. The first one begins the shutdown and ends the process with it: code after Serve does not run any more, what has to
// happen belongs into a callback (OnPhase, or dubbo-go's extension.AddCustomShutdownCallback). A second SIGTERM or SIGINT, at least
// one second later, ends the process at once with 128 + its number.
//
// Everything that happens is an Event; the log lines are one subscriber, Subscribe adds others.
package graceful_shutdown
