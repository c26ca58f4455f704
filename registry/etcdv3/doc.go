// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdv3 is a working etcd v3 registry and service discovery for dubbo-go, registered over dubbo-go's own of that name.
//
// The one of dubbo-go v3.3.2 neither unregisters nor notices that a provider is gone (interface level), and never learns of a
// new instance (service level). This one keeps the same keys, so providers and consumers of both kinds find each other. The
// metadata report and the config centre stay dubbo-go's own.
//
// Import it for its effect:
//
//	import _ "github.com/dubbogo/graceful/registry/etcdv3"
//
// and use it as always:
//
//	dubbo:
//	  registries:
//	    main: {protocol: etcdv3, address: "10.0.0.1:2379,10.0.0.2:2379", timeout: 5s, params: {etcd.lease-ttl: 10s}}
//
// Nothing is opened before the first use. While the server is down every call ends with an error within the timeout, and what
// is subscribed or registered already recovers by itself.
package etcdv3
