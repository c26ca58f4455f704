// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"reflect"
	"slices"
	"strings"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"

	"github.com/dubbogo/gost/log/logger"
)

import (
	"github.com/dubbogo/graceful/config"
)

// Names under which filter/active registers. They stand here as well because an adapter imports this package, never the
// other way round.
const (
	providerFilter = "pgraceful"
	consumerFilter = "cgraceful"
)

// balancers are the load balancers of this module. They see only what cgraceful has seen.
var balancers = []string{"blacklist", "warmup"}

// adaptService puts the filters that count requests in front of the provider's chain. dubbo-go's default has pshutdown
// last, where a request that is still inside accesslog, tps or execute does not count, and would be cut off.
func adaptService(url *common.URL) {
	chain, added := providerChain(split(url.GetParam(constant.ServiceFilterKey, "")), registered(providerFilter), same(constant.GracefulShutdownProviderFilterKey, providerFilter))
	if added {
		logger.Infof("[Graceful][Bootstrap] service=%s filter=%s was missing in its filter chain and has been added", url.Service(), providerFilter)
	}
	url.SetParam(constant.ServiceFilterKey, strings.Join(chain, ","))
}

// providerChain is the pure part of adaptService. has tells whether pgraceful is registered: dubbo-go makes a nil filter of an
// unknown name and panics at the first request. taken tells whether pshutdown is pgraceful under another name.
func providerChain(chain []string, has, taken bool) (_ []string, added bool) {
	var front, rest []string
	for _, f := range chain {
		switch f {
		case providerFilter, constant.GracefulShutdownProviderFilterKey:
			if !slices.Contains(front, f) {
				front = append(front, f)
			}
		default:
			rest = append(rest, f)
		}
	}
	counted := slices.Contains(front, providerFilter) || taken && slices.Contains(front, constant.GracefulShutdownProviderFilterKey)
	if has && !counted {
		front, added = append([]string{providerFilter}, front...), true
	}
	// Ours first: what it rejects must not reach upstream's counter.
	slices.SortStableFunc(front, func(a, b string) int { return rank(a) - rank(b) })
	return append(front, rest...), added
}

func rank(filter string) int {
	if filter == providerFilter {
		return 0
	}
	return 1
}

// adaptReference gives the reference its load balancer and what that needs.
func adaptReference(url *common.URL, s *config.Settings) {
	balancer := url.GetParam(constant.LoadbalanceKey, "")
	adaptive := url.GetParam(constant.ClusterKey, "") == constant.ClusterKeyAdaptiveService
	switch {
	case adaptive:
		// It overwrote cluster and loadbalance of the reference already; the two ideas of choosing do not mix.
		if s.Loadbalance != "" {
			logger.Infof("[Graceful][Bootstrap] reference=%s consumer.adaptive-service is on, graceful.loadbalance=%s is left out", url.Service(), s.Loadbalance)
		}
	case balancer == "" && s.Loadbalance != "":
		balancer = s.Loadbalance
		url.SetParam(constant.LoadbalanceKey, balancer)
	}
	if balancer != "" {
		prevail(url, balancer)
	}
	if !usesOurs(url, balancer) {
		return
	}
	chain := split(url.GetParam(constant.ReferenceFilterKey, ""))
	counted := slices.Contains(chain, consumerFilter) ||
		same(constant.GracefulShutdownConsumerFilterKey, consumerFilter) && slices.Contains(chain, constant.GracefulShutdownConsumerFilterKey)
	if counted || !registered(consumerFilter) {
		return
	}
	logger.Infof("[Graceful][Bootstrap] reference=%s filter=%s was missing in its filter chain and has been added", url.Service(), consumerFilter)
	url.SetParam(constant.ReferenceFilterKey, strings.Join(append([]string{consumerFilter}, chain...), ","))
}

// usesOurs looks at the methods too: each may name a balancer of its own.
func usesOurs(url *common.URL, balancer string) bool {
	if slices.Contains(balancers, balancer) {
		return true
	}
	ours := false
	url.RangeParams(func(key, value string) bool {
		ours = strings.HasPrefix(key, "methods.") && strings.HasSuffix(key, "."+constant.LoadbalanceKey) && slices.Contains(balancers, value)
		return !ours
	})
	return ours
}

// prevail makes the reference's load balancer win over the provider's. Every provider publishes one ("random" where nothing is
// set), and when dubbo-go merges the two URLs the reference's wins only for the methods that its URL lists: all of
// them with generated code, none without.
//
// Where the methods are known from the service struct each gets the balancer as its own. Where they are not (a generic
// reference, a plain Dial) the URL lists one method, which is enough for dubbo-go to let the reference's loadbalance,
// cluster, retries and timeout win, as with generated code.
func prevail(url *common.URL, balancer string) {
	if len(url.Methods) > 0 {
		return
	}
	names := methods(url)
	for _, method := range names {
		if key := "methods." + method + "." + constant.LoadbalanceKey; url.GetParam(key, "") == "" {
			url.SetParam(key, balancer)
		}
	}
	if len(names) > 0 {
		return
	}
	url.Methods = []string{constant.AnyValue}
	if url.GetParam(constant.GenericKey, "") != "" {
		url.Methods = []string{constant.Generic}
	}
}

// methods returns the method names of a reference without generated code: the function fields of its service struct, under
// the name of the field and under that of its tag, since callers use either.
func methods(url *common.URL) (names []string) {
	service, _ := url.GetAttribute(constant.RpcServiceKey)
	t := reflect.TypeOf(service)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for _, field := range reflect.VisibleFields(t) {
		if !field.IsExported() || field.Type.Kind() != reflect.Func {
			continue
		}
		names = append(names, field.Name)
		if tag := field.Tag.Get("dubbo"); tag != "" {
			names = append(names, tag)
		}
	}
	return names
}

func split(chain string) (names []string) {
	for _, f := range strings.Split(chain, ",") {
		if f = strings.TrimSpace(f); f != "" {
			names = append(names, f)
		}
	}
	return names
}

func registered(filter string) bool {
	f, ok := extension.GetFilter(filter)
	return ok && f != nil
}

// same reports whether two names stand for the same filter: the coordinator registers ours under dubbo-go's names too.
func same(a, b string) bool {
	fa, okA := extension.GetFilter(a)
	fb, okB := extension.GetFilter(b)
	return okA && okB && reflect.TypeOf(fa) == reflect.TypeOf(fb)
}
