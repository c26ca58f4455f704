// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shop is the service that demo and tests roll, restart and kill: a client asks a proxy
// for an order, the proxy asks a provider.
//
//	client --Front.Order--> proxy --Backend.Order--> provider
//
// Every role is a child process. [Main] is the whole of its main function; what the process is
// comes as JSON ([Options]) in the environment, what happens to it goes out as one JSON line per
// [Event] on an inherited pipe, and commands come in as JSON lines on standard input.
//
// The package imports dubbo-go and nothing of this module that a user would import. So the same
// code runs in a binary with the module, which hands its own [Hooks] to Main, and in one without.
//
// What really ran is written down by the handlers themselves: [Ledger] is an append-only file per
// process with a mark before and after each request, which survives even SIGKILL.
package shop
