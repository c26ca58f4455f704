// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package config

// Option changes one setting. There is one for each key, for applications that are configured in code.
type Option func(*Settings)
