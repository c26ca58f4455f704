// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"fmt"
	"sync"
)

import (
	gxset "github.com/dubbogo/gost/container/set"
	"github.com/dubbogo/gost/log/logger"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/config_center"
	"dubbo.apache.org/dubbo-go/v3/config_center/parser"
)

// configFactory makes the config centre of an explicit `config-center: {protocol: graceful}`; dubbo-go uses no registry as one.
type configFactory struct{}

func (configFactory) GetDynamicConfiguration(u *common.URL) (config_center.DynamicConfiguration, error) {
	delegate, err := delegateOf(u)
	if err != nil {
		return nil, err
	}
	factory, err := extension.GetConfigCenterFactory(delegate)
	if err != nil {
		return nil, fmt.Errorf("%w=%q has no config centre: %w", ErrDelegate, delegate, err)
	}
	return &configCenter{delegate: delegate, url: delegateURL(u, delegate), factory: factory, parser: &parser.DefaultConfigurationParser{}}, nil
}

// configCenter delegates. It connects on first use, and returns errors where the delegate panics.
type configCenter struct {
	delegate string
	url      *common.URL
	factory  config_center.DynamicConfigurationFactory

	mu     sync.Mutex
	parser parser.ConfigurationParser
	built  config_center.DynamicConfiguration
}

var _ config_center.DynamicConfiguration = (*configCenter)(nil)

func (c *configCenter) use(f func(config_center.DynamicConfiguration) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s config centre %s: %v", c.delegate, c.url.Location, p)
		}
	}()
	d, err := c.theCenter()
	if err != nil {
		return err
	}
	return f(d)
}

func (c *configCenter) theCenter() (config_center.DynamicConfiguration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.built != nil {
		return c.built, nil
	}
	d, err := c.factory.GetDynamicConfiguration(c.url.Clone())
	if err != nil {
		return nil, fmt.Errorf("%s config centre %s: %w", c.delegate, c.url.Location, err)
	}
	d.SetParser(c.parser)
	c.built = d
	return d, nil
}

func (c *configCenter) Parser() parser.ConfigurationParser {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parser
}

func (c *configCenter) SetParser(p parser.ConfigurationParser) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parser = p
	if c.built != nil {
		c.built.SetParser(p)
	}
}

func (c *configCenter) AddListener(key string, l config_center.ConfigurationListener, opts ...config_center.Option) {
	err := c.use(func(d config_center.DynamicConfiguration) error { d.AddListener(key, l, opts...); return nil })
	if err != nil {
		logger.Warnf("[Graceful][ConfigCenter] changes of key=%s will not be seen: %v", key, err)
	}
}

func (c *configCenter) RemoveListener(key string, l config_center.ConfigurationListener, opts ...config_center.Option) {
	err := c.use(func(d config_center.DynamicConfiguration) error { d.RemoveListener(key, l, opts...); return nil })
	if err != nil {
		logger.Warnf("[Graceful][ConfigCenter] key=%s is still listened to: %v", key, err)
	}
}

func (c *configCenter) text(f func(config_center.DynamicConfiguration) (string, error)) (s string, err error) {
	err = c.use(func(d config_center.DynamicConfiguration) (e error) {
		s, e = f(d)
		return e
	})
	return s, err
}

func (c *configCenter) GetProperties(key string, opts ...config_center.Option) (string, error) {
	return c.text(func(d config_center.DynamicConfiguration) (string, error) { return d.GetProperties(key, opts...) })
}

func (c *configCenter) GetRule(key string, opts ...config_center.Option) (string, error) {
	return c.text(func(d config_center.DynamicConfiguration) (string, error) { return d.GetRule(key, opts...) })
}

func (c *configCenter) GetInternalProperty(key string, opts ...config_center.Option) (string, error) {
	return c.text(func(d config_center.DynamicConfiguration) (string, error) { return d.GetInternalProperty(key, opts...) })
}

func (c *configCenter) PublishConfig(key, group, value string) error {
	return c.use(func(d config_center.DynamicConfiguration) error { return d.PublishConfig(key, group, value) })
}

func (c *configCenter) RemoveConfig(key, group string) error {
	return c.use(func(d config_center.DynamicConfiguration) error { return d.RemoveConfig(key, group) })
}

func (c *configCenter) GetConfigKeysByGroup(group string) (keys *gxset.HashSet, err error) {
	err = c.use(func(d config_center.DynamicConfiguration) (e error) {
		keys, e = d.GetConfigKeysByGroup(group)
		return e
	})
	return keys, err
}
