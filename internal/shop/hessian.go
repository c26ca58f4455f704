// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package shop

import (
	hessian "github.com/apache/dubbo-go-hessian2"
)

func init() {
	hessian.RegisterPOJO(&dubboRequest{})
	hessian.RegisterPOJO(&dubboReply{})
}

// dubboRequest and dubboReply are the messages of shop.proto for the dubbo protocol, which carries
// Hessian and knows nothing of protobuf.
type dubboRequest struct {
	ID string
}

func (*dubboRequest) JavaClassName() string { return "shop.OrderRequest" }

type dubboReply struct {
	ID       string
	ServedBy string
	Via      string
	Attempts int32
	Payload  []byte
}

func (*dubboReply) JavaClassName() string { return "shop.OrderReply" }
