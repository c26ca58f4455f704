// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package graceful decorates the registries of dubbo-go so that instances come and go without losing a request.
//
// A provider is registered when it can serve: everything is exported, its listeners accept connections, its references
// have providers, and the checks given to [RegisterReadiness] pass. Before it leaves, its records say DRAINING, written
// over the records as they are, and only later are they removed. What it has registered survives every reconnect.
//
// A consumer follows the list by itself through every trouble of the registry, puts what the records say of each instance
// into the instance table, and keeps an instance that is gone from the list, hidden from new calls, until the calls
// under way to it have ended.
//
// It is used as the registry `graceful`, on interface level and on service level:
//
//	dubbo:
//	  registries:
//	    main: {protocol: graceful, address: "127.0.0.1:2181", params: {graceful.delegate: zookeeper}}
//
// The delegates are zookeeper, nacos and etcdv3.
package graceful
