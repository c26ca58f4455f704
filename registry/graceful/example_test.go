// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful_test

import (
	"context"
	"errors"
	"fmt"
)

import (
	"dubbo.apache.org/dubbo-go/v3/registry"
)

import (
	"github.com/dubbogo/graceful/registry/graceful"
)

// An app made with dubbo.NewInstance names its registry so; the option goes to dubbo.WithRegistry.
func ExampleWith() {
	o := registry.NewOptions(
		graceful.With("zookeeper"),
		registry.WithAddress("127.0.0.1:2181"),
		registry.WithRegisterInterface(),
	)
	fmt.Println(o.Registry.Protocol, o.Registry.Params)
	// Output: graceful map[graceful.delegate:zookeeper]
}

// The instance is registered once its cache is warm.
func ExampleRegisterReadiness() {
	warm := make(chan struct{})
	graceful.RegisterReadiness("cache", func(context.Context) error {
		select {
		case <-warm:
			return nil
		default:
			return errors.New("still loading")
		}
	})
	close(warm)
}

func ExampleOnRecover() {
	graceful.OnRecover(func(registryID string) {
		fmt.Println("registry", registryID, "is back and up to date")
	})
}
