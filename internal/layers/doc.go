// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package layers holds no code: its test reads the imports of the whole module and checks that none points upwards.
package layers
