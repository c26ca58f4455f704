// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package active

import (
	"errors"
	"net/http"
)

import (
	"dubbo.apache.org/dubbo-go/v3/protocol/dubbo/hessian2"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

import (
	"github.com/dubbogo/graceful/internal/wire"
)

// stripError returns err without any mark, with the same code and otherwise the same text. False means that it has none. The error
// itself is never changed: a handler may have given it to several requests.
func stripError(err error) (error, bool) {
	var triple *triple_protocol.Error
	isTriple := errors.As(err, &triple)
	_, marked := wire.ParseReject(err.Error())
	// Only errors that came from a call have metadata that are not their own.
	var meta http.Header
	if isTriple && triple_protocol.IsWireError(triple) {
		if _, ok := triple.Meta()[headerStatus]; ok {
			marked = true
		}
		meta = triple.Meta()
	}
	if !marked {
		return err, false
	}
	text := wire.StripMarks(err.Error())
	if isTriple {
		cleaned := triple_protocol.NewError(triple.Code(), errors.New(wire.StripMarks(triple.Message())))
		if triple_protocol.IsWireError(triple) {
			cleaned = triple_protocol.NewWireError(triple.Code(), errors.New(wire.StripMarks(triple.Message())))
		}
		for _, d := range triple.Details() {
			cleaned.AddDetail(d)
		}
		for k, v := range meta {
			if k != headerStatus {
				cleaned.Meta()[k] = v
			}
		}
		return cleaned, true
	}
	var generic *hessian2.GenericException
	if errors.As(err, &generic) {
		return &hessian2.GenericException{ExceptionClass: generic.ExceptionClass, ExceptionMessage: wire.StripMarks(generic.ExceptionMessage)}, true
	}
	if s, ok := grpcStatus(err); ok && s.Code() != codes.OK {
		return status.Error(s.Code(), wire.StripMarks(s.Message())), true
	}
	return errors.New(text), true
}
