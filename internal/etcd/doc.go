// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcd keeps the records of this process in etcd v3 and follows the records of others.
//
// All users of one etcd in a process share one [Store]: one client, and one lease that every
// record of the process hangs on. So a process that dies takes all of its records along within
// one TTL, and a process with a hundred services sends one keepalive, not a hundred.
//
// The store holds the DESIRED state. A record is declared with [Store.Put] and taken back with
// [Store.Delete]; when the lease is lost (the server was away for longer than the TTL, or came
// back without its data) the store gets a new one and writes every declared record again with
// its current value, and what a Put or Delete could not bring to the server in time is made good
// with the next keepalive.
//
// [Store.Follow] lists a prefix and watches it from the revision of that list on: no change is
// lost and none is told twice, over reconnects, compactions and lost data alike.
package etcd
