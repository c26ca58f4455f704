// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
)

const (
	// Protocol is the registry protocol of the decorator. An address may also name both at once: graceful+nacos://host:port.
	Protocol = "graceful"

	// DelegateKey is the registry parameter that names the registry behind the decorator.
	DelegateKey = "graceful.delegate"
)

// delegates are the registries that the decorator can publish a status in.
var delegates = []string{"zookeeper", "nacos", "etcdv3"}

// Delegates returns the names that graceful.delegate may have.
func Delegates() []string { return slices.Clone(delegates) }

// Delegate returns the registry behind the decorator, "" for a registry that has nothing to do with it.
//
// protocol is the registry's protocol as dubbo-go sees it: a scheme in its address has overwritten the protocol key by
// then. params are the registry's parameters. An error is an *Error whose Key is either "protocol" or "params.graceful.delegate",
// for the caller to put the path of the registry before.
func Delegate(protocol string, params map[string]string) (string, error) {
	named, given := params[DelegateKey]
	allowed := strings.Join(delegates, ", ")
	combined, isCombined := strings.CutPrefix(protocol, Protocol+"+")
	switch {
	case isCombined && !slices.Contains(delegates, combined):
		return "", &Error{
			Key: "protocol", Value: protocol, Problem: "names a registry that is not supported",
			Allowed: Protocol + "+ and one of " + allowed,
		}
	case isCombined && given && named != combined:
		return "", &Error{
			Key: "params." + DelegateKey, Value: show(named), Problem: "contradicts the scheme " + protocol + " of the address",
			Allowed: combined + ", or nothing",
		}
	case isCombined:
		return combined, nil
	case protocol == Protocol && !given:
		return "", &Error{
			Key: "params." + DelegateKey, Value: "nothing", Problem: "is set, but the protocol graceful needs a registry behind it",
			Allowed: allowed,
		}
	case protocol == Protocol && !slices.Contains(delegates, named):
		return "", &Error{Key: "params." + DelegateKey, Value: show(named), Problem: "is no supported registry", Allowed: allowed}
	case protocol == Protocol:
		return named, nil
	case given:
		return "", &Error{
			Key: "protocol", Value: show(protocol), Problem: "ignores " + DelegateKey + "=" + named + " (a scheme in address overwrites protocol)",
			Allowed: Protocol + " with an address without a scheme, or an address that begins with " + Protocol + "+" + firstOr(named) + "://",
		}
	default:
		return "", nil
	}
}

// firstOr keeps a wrong delegate out of the advice.
func firstOr(named string) string {
	if slices.Contains(delegates, named) {
		return named
	}
	return delegates[0]
}
