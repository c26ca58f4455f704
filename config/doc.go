// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config has the typed settings of this module: their defaults, how they are read from dubbogo.yml, and what is
// allowed.
//
// In dubbogo.yml they stand under dubbo.custom.config-map, nested or flat:
//
//	dubbo:
//	  custom:
//	    config-map:
//	      graceful:
//	        drain: {timeout: 3s}
//	      graceful.warmup.window: 90s
//
// The package is pure: it reads no file and no environment, so that every rule in it can be tested with a table.
package config
