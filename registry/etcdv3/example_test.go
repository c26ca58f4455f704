// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdv3_test

import (
	"fmt"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
)

import (
	_ "github.com/dubbogo/graceful/registry/etcdv3"
)

// The import is all it takes: whoever names etcdv3 gets this registry. Nothing is opened before the first use, so a server that
// is down does not stop the start.
func Example() {
	url, err := common.NewURL("etcdv3://127.0.0.1:2379?registry.timeout=5s&etcd.lease-ttl=10s")
	if err != nil {
		panic(err)
	}
	registry, err := extension.GetRegistry("etcdv3", url)
	if err != nil {
		panic(err)
	}
	defer registry.Destroy()
	fmt.Println(registry.GetURL().Location, registry.IsAvailable())
	// Output: 127.0.0.1:2379 true
}

// A setting that cannot be right is refused at once.
func Example_badSetting() {
	url, err := common.NewURL("etcdv3://127.0.0.1:2379?etcd.lease-ttl=10")
	if err != nil {
		panic(err)
	}
	_, err = extension.GetRegistry("etcdv3", url)
	fmt.Println(err)
	// Output: etcd registry address: etcd.lease-ttl="10": want a duration from 2s to 10m0s, such as 10s
}
