// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"slices"
	"sync"
	"time"
)

import (
	"github.com/dubbogo/gost/log/logger"

	"dubbo.apache.org/dubbo-go/v3/common/constant"
)

import (
	"github.com/dubbogo/graceful/internal/settings"
	"github.com/dubbogo/graceful/internal/wire"
)

const (
	// drainTag is the dubbo.tag of a record that drains, where `drain.vanilla-tag` is on: the one standard signal that moves
	// consumers without this module while the record stays. Their tag router hides tagged instances.
	drainTag = "graceful-draining"
	// askOthers bounds the look at who else is listed: the announcement must not wait long for a courtesy.
	askOthers = 300 * time.Millisecond
)

// tagged returns the records with the drain tag where it may be set: not over a tag of the app's own, and only while
// another untagged instance that does not drain is listed, since consumers find nobody once every instance is tagged.
func (n *node) tagged(ctx context.Context, recs []record) []record {
	ctx, cancel := context.WithTimeout(ctx, askOthers)
	defer cancel()
	out := slices.Clone(recs)
	var work sync.WaitGroup
	for i := range out {
		work.Go(func() {
			if ownTag(out[i]) == "" && n.hasOthers(ctx, out[i]) {
				out[i].tag = drainTag
			}
		})
	}
	work.Wait()
	return out
}

func ownTag(r record) string {
	if r.instance != nil {
		return r.instance.GetTag()
	}
	return r.url.GetParam(constant.Tagkey, "")
}

func (n *node) hasOthers(ctx context.Context, r record) bool {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return false
	}
	src := n.sourceOf(r)
	n.mu.Unlock()
	items, err := src.query(ctx)
	if err != nil {
		logger.Debugf("[Graceful][Registry] registry=%q service=%q cannot tell who else is listed, no tag is set: %v", n.Name(), r.service(), err)
		return false
	}
	return slices.ContainsFunc(items, func(it item) bool {
		return it.mark.Status != wire.Draining && !slices.Contains(it.addresses, r.address()) && it.tag() == ""
	})
}

// tag is the dubbo.tag of a listed provider.
func (it item) tag() string {
	if it.instance != nil {
		return it.instance.GetTag()
	}
	return it.url.GetParam(constant.Tagkey, "")
}

// wantsTag tells whether draining records carry the tag.
func wantsTag() bool { return settings.Get().Drain.VanillaTag }
