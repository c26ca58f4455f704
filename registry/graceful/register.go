// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"maps"
)

import (
	"github.com/dubbogo/gost/log/logger"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/config_center"
	"dubbo.apache.org/dubbo-go/v3/metadata/report"
	"dubbo.apache.org/dubbo-go/v3/registry"

	// What is decorated.
	_ "dubbo.apache.org/dubbo-go/v3/config_center/zookeeper"
	_ "dubbo.apache.org/dubbo-go/v3/metadata/report/zookeeper"
	_ "dubbo.apache.org/dubbo-go/v3/registry/zookeeper"
)

import (
	// It also loads the settings that this package reads, where nothing else of this module is imported.
	"github.com/dubbogo/graceful/internal/bootstrap"
)

func init() {
	bootstrap.OnService(func(u *common.URL) { gate.claim(u) })
	// Every file with a publisher registers it in an init of its own, and those run in the order of the file names: this one
	// cannot ask which there are.
	for _, name := range []string{protocol, protocol + "+zookeeper", protocol + "+nacos", protocol + "+etcdv3"} {
		extension.SetRegistry(name, newInterfaceRegistry)
		extension.SetServiceDiscovery(name, newServiceDiscovery)
		extension.SetMetadataReportFactory(name, func() report.MetadataReportFactory { return reports })
		extension.SetConfigCenterFactory(name, func() config_center.DynamicConfigurationFactory { return configFactory{} })
	}
}

// With makes a registry graceful: it is With("zookeeper") beside registry.WithAddress("127.0.0.1:2181") for what
// `protocol: graceful` and `params: {graceful.delegate: zookeeper}` are in dubbogo.yml. The address must have no scheme.
func With(delegate string) registry.Option {
	return func(o *registry.Options) {
		o.Registry.Protocol = protocol
		params := maps.Clone(o.Registry.Params)
		if params == nil {
			params = make(map[string]string)
		}
		params[delegateKey] = delegate
		o.Registry.Params = params
	}
}

func logClose(name string, err error) {
	logger.Warnf("[Graceful][Registry] registry=%q did not close cleanly: %v", name, err)
}
