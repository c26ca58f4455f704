// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/registry"
)

// The keys are those of dubbo-go's own etcd registry, so that each side reads what the other one writes:
//
//	/<group>/<interface>/<providers|consumers>/<escaped URL>   value: free, dubbo-go writes none and reads names only
//	/services/<application>/<host>:<port>                      value: the instance as JSON

const (
	defaultGroup = "dubbo"
	servicesRoot = "/services"
)

// ErrRecord is returned for a URL or an instance that cannot be a record.
var ErrRecord = errors.New("not a record for etcd")

func root(reg *common.URL, service, category string) string {
	dir := path.Join("/", reg.GetParam(constant.RegistryGroupKey, defaultGroup), url.QueryEscape(service), category)
	return strings.ReplaceAll(dir, "$", "%24") // Java's nested interfaces
}

// ProvidersPrefix is where the providers of a service are listed.
func ProvidersPrefix(reg *common.URL, service string) string {
	return root(reg, service, common.DubboNodes[common.PROVIDER]) + "/"
}

// InterfaceKey is the key of a provider or consumer record; reg is the registry's URL, u the service's or reference's.
func InterfaceKey(reg, u *common.URL) (string, error) {
	params := url.Values{}
	u.RangeParams(func(key, value string) bool {
		params.Add(key, value)
		return true
	})
	role, err := strconv.Atoi(u.GetParam(constant.RegistryRoleKey, strconv.Itoa(common.CONSUMER)))
	if err != nil {
		return "", fmt.Errorf("%w: %s=%q of %s", ErrRecord, constant.RegistryRoleKey, u.GetParam(constant.RegistryRoleKey, ""), u.Key())
	}
	var name string
	switch role {
	case common.PROVIDER:
		if u.Path == "" || len(u.Methods) == 0 {
			return "", fmt.Errorf("%w: a provider needs a path and methods, has path=%q methods=%v", ErrRecord, u.Path, u.Methods)
		}
		params.Add(constant.AnyhostKey, "true")
		params.Add(constant.MethodsKey, strings.Join(u.Methods, ","))
		for key, values := range params {
			if len(values) > 0 && values[0] == "" {
				params.Del(key)
			}
		}
		host := u.Ip
		if host == "" {
			host = common.GetLocalIp()
		}
		name = u.Protocol + "://" + host + ":" + u.Port + u.Path
	case common.CONSUMER:
		params.Add("protocol", u.Protocol)
		name = "consumer://" + common.GetLocalIp() + u.Path
	default:
		return "", fmt.Errorf("%w: %s=%d of %s", ErrRecord, constant.RegistryRoleKey, role, u.Key())
	}
	query, err := url.QueryUnescape(params.Encode())
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrRecord, u.Key(), err)
	}
	return path.Join(root(reg, u.Service(), common.DubboNodes[role]), url.QueryEscape(name+"?"+query)), nil
}

// ParseInterfaceKey is the URL in a key below one of the prefixes above.
func ParseInterfaceKey(key string) (*common.URL, error) {
	u, err := common.NewURL(path.Base(key))
	if err != nil {
		return nil, fmt.Errorf("%w: key %s: %w", ErrRecord, key, err)
	}
	return u, nil
}

// ServicePrefix is where the instances of an application are listed.
func ServicePrefix(application string) string {
	return servicesRoot + constant.PathSeparator + application + constant.PathSeparator
}

// ServiceKey is the key of an instance.
func ServiceKey(instance registry.ServiceInstance) string {
	return ServicePrefix(instance.GetServiceName()) + instance.GetHost() + constant.KeySeparator + strconv.Itoa(instance.GetPort())
}

// EncodeInstance is the value of an instance, with metadata in place of the instance's own (nil: its own). It leaves out the
// instance's ServiceMetadata: consumers fetch that by revision, and it may be changing while this process exports services.
func EncodeInstance(instance registry.ServiceInstance, metadata map[string]string) (string, error) {
	if metadata == nil {
		metadata = instance.GetMetadata()
	}
	value := &registry.DefaultServiceInstance{
		ID: instance.GetID(), ServiceName: instance.GetServiceName(), Host: instance.GetHost(), Port: instance.GetPort(),
		Weight: instance.GetWeight(), Enable: instance.IsEnable(), Healthy: instance.IsHealthy(), Metadata: metadata,
		Address: instance.GetAddress(), Tag: instance.GetTag(),
	}
	if d, ok := instance.(*registry.DefaultServiceInstance); ok {
		value.Weight, value.GroupName = d.Weight, d.GroupName // GetWeight turns 0 into 100
	}
	data, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("%w: instance %s: %w", ErrRecord, instance.GetAddress(), err)
	}
	return string(data), nil
}

// DecodeInstance is the inverse of EncodeInstance.
func DecodeInstance(value string) (*registry.DefaultServiceInstance, error) {
	instance := &registry.DefaultServiceInstance{}
	if err := json.Unmarshal([]byte(value), instance); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	return instance, nil
}
