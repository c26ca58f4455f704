// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Command graceful is the demo service with this module.
package main

import (
	_ "dubbo.apache.org/dubbo-go/v3/imports"
)

import (
	_ "github.com/dubbogo/graceful"
	"github.com/dubbogo/graceful/internal/shop"
)

func main() { shop.Main(shop.Hooks{}) }
