// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package pick

import (
	"context"
	"errors"
	"fmt"
)

import (
	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"
)

// ErrNoInstance is the error of a call for which nothing is left but instances that the registry has removed.
var ErrNoInstance = errors.New("no provider available: every instance has been removed from the registry")

// none stands for the invoker that does not exist. The clusters of dubbo-go call methods of whatever a load balancer
// returns, so that it cannot be nil.
type none struct {
	*base.BaseInvoker
}

func nobody(url *common.URL) base.Invoker { return none{base.NewBaseInvoker(url)} }

// Invoke answers with ErrNoInstance.
func (n none) Invoke(context.Context, base.Invocation) result.Result {
	return &result.RPCResult{Err: fmt.Errorf("service %s: %w", n.GetURL().ServiceKey(), ErrNoInstance)}
}
