// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Package active holds the two filters that count requests in flight, and that say and hear who is leaving.
//
// pgraceful ([ProviderKey]) stands first in a provider's chain. It counts what the process serves (streams for as long as they
// last, health, reflection and metadata calls not at all), remembers who calls, turns requests away with a typed
// "not executed" error when the drain has come that far, and puts the mark into every response before. Whatever marks a
// handler hands up are taken out, so that a proxy which passes on what its provider said is not taken for the one that
// said it.
//
// cgraceful ([ConsumerKey]) counts what the process sends, per instance and per service, tells the instance who calls, sorts
// every outcome into a class (see [attempt.Class]) for the instance table and for the retry, and believes a mark or a
// rejection only if it comes from the very instance that this attempt went to.
//
// A chain may name a filter twice, also under two names (pshutdown and cshutdown stand for these two where graceful_shutdown is
// imported). The outermost one acts, the others hand the request on.
//
// # What cannot be seen
//
// Over the dubbo protocol dubbo-go drops the attachments of a response that is an error, so a mark there arrives with successes only; a
// caller is noted as informed only where the mark can be read. Calls that are made asynchronously over the dubbo protocol are over for
// cgraceful as soon as they are sent. A forking cluster uses one invocation from several goroutines at a time, so over Triple
// its successful responses are not searched for marks. A stream whose open failed is reported by its first Receive, after every filter has
// returned, and is therefore never sent again by the retry.
package active

import (
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/filter"
)

import (
	"github.com/dubbogo/graceful/internal/bootstrap"
)

// Names of the filters in dubbogo.yml.
const (
	ProviderKey = "pgraceful"
	ConsumerKey = "cgraceful"
)

func init() {
	extension.SetFilter(ProviderKey, func() filter.Filter { return provider })
	extension.SetFilter(ConsumerKey, func() filter.Filter { return consumer })
	bootstrap.OnReference(noteForking)
}
