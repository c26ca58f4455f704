// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testserver runs real registries on free loopback ports for tests and measurements:
// ZooKeeper and Nacos as Java processes whose class path Maven resolves from the small poms
// beside this file, and etcd embedded in the calling process.
//
// A server belongs to the test that started it and is stopped with it. [Server.Freeze] stops a
// server process with SIGSTOP, which is how a network partition or a long pause of the garbage
// collector looks to its clients; [Server.Restart] brings it back on the same port with its data.
//
// Nothing is skipped silently: without java or mvn a test fails and says what to install. A
// registry is left out only when the environment variable GRACEFUL_TEST_SKIP names it, as in
// GRACEFUL_TEST_SKIP=nacos,zookeeper.
package testserver
