// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Command plain is the demo service with dubbo-go alone, to compare with.
package main

import (
	_ "dubbo.apache.org/dubbo-go/v3/imports"
)

import (
	"github.com/dubbogo/graceful/internal/shop"
)

func main() { shop.Main(shop.Hooks{}) }
