// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package graceful makes instances of dubbo-go services come and go without a caller noticing.
//
// Importing it is enough for the shutdown in phases, the filters that count requests, the router that hides leaving
// instances, and the transparent retry of requests that were never executed:
//
//	import _ "github.com/dubbogo/graceful"
//
// The registry decorator and the load balancers are named in dubbogo.yml:
//
//	dubbo:
//	  registries:
//	    main: {protocol: graceful, address: "127.0.0.1:2181", params: {graceful.delegate: zookeeper}}
//	  custom:
//	    config-map: {graceful: {loadbalance: blacklist, drain: {timeout: 3s}}}
//
// Settings stand below dubbo.custom.config-map.graceful; package config has them all, with the functional option for
// each. Applications that are configured in code give them to Configure.
package graceful
