// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package shop

import (
	hessian "github.com/apache/dubbo-go-hessian2"
)

func init() {
	hessian.RegisterPOJO(&DubboRequest{})
	hessian.RegisterPOJO(&DubboReply{})
}

// DubboRequest and DubboReply are the messages of shop.proto for the dubbo protocol, which carries
// Hessian and knows nothing of protobuf.
type DubboRequest struct {
	ID string
}

// JavaClassName is the name of the type on the wire.
func (*DubboRequest) JavaClassName() string { return "shop.OrderRequest" }

// DubboReply is a reply over the dubbo protocol.
type DubboReply struct {
	ID       string
	ServedBy string
	Via      string
	Attempts int32
	Payload  []byte
}

// JavaClassName is the name of the type on the wire.
func (*DubboReply) JavaClassName() string { return "shop.OrderReply" }
