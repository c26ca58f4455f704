// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package instance is what a consumer knows of each provider instance: who it is, what it said of itself, how
// it has answered lately, and how warm it is.
//
// One [Table] per process, keyed by address ("ip:port"), one [Entry] per instance. Registries, filters, the
// health prober and the balancers meet here and nowhere else.
//
// # Reading
//
// What runs on the path of a request (Lookup, Hidden, Troubled, Begin, End of an answered request, Verdict, Weight,
// Flight) takes no lock and allocates nothing. While nothing is wrong, one atomic load tells so. An entry may be
// kept for the time of a call, not for longer: an address that was left is forgotten after a while.
//
// # Identity
//
// Clocks differ and addresses are used again, so start ids are compared for equality only. For one id the higher
// sequence number wins. Between ids the registry decides, in the order of its events: a different id is a new
// instance, with new figures, unless that id was seen leaving this address in the last ten minutes. A list
// read from disk, a response and a rejection touch only an entry of their own id. See [Table.Observe].
//
// # Ejection
//
// Failures count by class; an answer, whatever it says, never does. For a time of
//
//	min(Max, Base * 2^(n-1)), of which the second half is random,
//
// a broken instance gets no requests; n rises with each ejection and falls by one for each HealthyInterval
// without one. A refused connection is different: the instance is unreachable until a dial succeeds, since
// that costs no live request and tells all there is to know. After a broken connection or timeouts a dial proves less
// (a frozen process accepts connections): when the time is over AND a dial has succeeded, one live request at a time is
// let through ([Entry.TryTrial]); its success restores the instance, its failure ejects it for longer. Failures of
// requests that were sent before the ejection are part of what caused it and do not count again.
//
// Ejected is a fact of the entry. How many may be left out of one selection is the balancer's decision.
//
// # Warm-up
//
//	weight = W * max(floor, (age/window)^curve)
//
// by the consumer's own monotonic clock since it saw the instance appear. See [Entry.Weight].
//
// # Time
//
// The package never asks for the time and starts no goroutine: now is a parameter, and decisions are pure
// functions of state, time and settings.
package instance
