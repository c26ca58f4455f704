// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

import (
	gxset "github.com/dubbogo/gost/container/set"
	gxetcd "github.com/dubbogo/gost/database/kv/etcd/v3"
	"github.com/dubbogo/gost/gof/observer"
	"github.com/dubbogo/gost/log/logger"

	perrors "github.com/pkg/errors"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/metadata/info"
	"dubbo.apache.org/dubbo-go/v3/metadata/mapping"
	"dubbo.apache.org/dubbo-go/v3/metadata/report"
	"dubbo.apache.org/dubbo-go/v3/registry"
)

import (
	"github.com/dubbogo/graceful/internal/announce"
	"github.com/dubbogo/graceful/internal/wire"
)

// reportFactory makes the metadata reports of graceful registries. dubbo-go asks for one two or three times a process, and
// its ZooKeeper report opens a connection of its own each time: here there is one per server.
type reportFactory struct {
	mu      sync.Mutex
	reports map[string]*metadataReport
}

var reports = &reportFactory{reports: make(map[string]*metadataReport)}

// CreateMetadataReport has no effects: the delegate's report is built, and connected, by its first use.
func (f *reportFactory) CreateMetadataReport(u *common.URL) report.MetadataReport {
	delegate, err := delegateOf(u)
	if err != nil {
		// The settings have been checked before; what is left are registries that nobody has checked.
		return &metadataReport{url: u, broken: err}
	}
	d := delegateURL(u, delegate)
	if d.GetParam("metadata", "") != "" {
		d.SetParam("metadata", delegate)
	}
	key := strings.Join([]string{
		delegate, d.Location, d.GetParam(constant.MetadataReportGroupKey, ""), d.GetParam(constant.MetadataReportNamespaceKey, ""),
	}, "|")
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.reports[key]
	if r == nil || r.isClosed() {
		r = newMetadataReport(delegate, d)
		f.reports[key] = r
	}
	return r
}

// metadataReport delegates, and turns the panics of a report whose server is down into errors. What a process must tell
// its consumers (the mapping, its metadata) is told later if it cannot be told now, and a reference whose mapping could
// not be read learns it later: otherwise a server that is down for a moment would end the start of a provider, and
// leave a consumer without providers for good.
type metadataReport struct {
	url      *common.URL
	delegate string
	broken   error

	mu     sync.Mutex
	built  report.MetadataReport
	later  map[string]func() error // what is still to be done, by what it is about
	wake   chan struct{}
	ctx    context.Context
	stop   context.CancelFunc
	remove func()
	work   sync.WaitGroup
	begun  bool
}

var (
	_ report.MetadataReport = (*metadataReport)(nil)
	_ announce.Publisher    = (*metadataReport)(nil)
)

func newMetadataReport(delegate string, u *common.URL) *metadataReport {
	r := &metadataReport{url: u, delegate: delegate, later: make(map[string]func() error), wake: make(chan struct{}, 1)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// Name implements announce.Publisher, as do the next four: the coordinator only has to close this.
func (r *metadataReport) Name() string { return r.delegate + " " + r.url.Location + " metadata report" }

// Announce implements announce.Publisher.
func (r *metadataReport) Announce(context.Context, wire.Mark) error { return nil }

// Withdraw implements announce.Publisher.
func (r *metadataReport) Withdraw(context.Context) error { return nil }

// Confirmed implements announce.Publisher.
func (r *metadataReport) Confirmed(context.Context, wire.Mark) error { return nil }

// Close implements announce.Publisher: nothing is told later any more.
func (r *metadataReport) Close(context.Context) error {
	r.mu.Lock()
	remove := r.remove
	r.mu.Unlock()
	if r.stop == nil {
		return nil
	}
	r.stop()
	if remove != nil {
		remove()
	}
	r.work.Wait()
	return nil
}

func (r *metadataReport) isClosed() bool { return r.ctx != nil && r.ctx.Err() != nil }

// theReport builds the delegate's report at its first use.
func (r *metadataReport) theReport() (report.MetadataReport, error) {
	if r.broken != nil {
		return nil, r.broken
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.built != nil {
		return r.built, nil
	}
	factory := extension.GetMetadataReportFactory(r.delegate)
	if factory == nil {
		return nil, fmt.Errorf("%w=%q has no metadata report", ErrDelegate, r.delegate)
	}
	built := factory.CreateMetadataReport(r.url.Clone())
	if built == nil {
		return nil, fmt.Errorf("%s could not be built", r.Name())
	}
	r.built = built
	return built, nil
}

// use runs f with the delegate's report; a panic is an error.
func (r *metadataReport) use(f func(report.MetadataReport) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v", r.Name(), p)
		}
	}()
	d, err := r.theReport()
	if err != nil {
		return err
	}
	if err = f(d); !errors.Is(perrors.Cause(err), gxetcd.ErrNilETCDV3Client) {
		return err
	}
	// dubbo-go's etcd client gives up for good when its server was away for two seconds.
	r.mu.Lock()
	if r.built == d {
		r.built = nil
	}
	r.mu.Unlock()
	if d, err = r.theReport(); err != nil {
		return err
	}
	return f(d)
}

// nowOrLater runs f, and if it fails runs it again in the background until it succeeds. What is about the same thing
// replaces what was to be done.
func (r *metadataReport) nowOrLater(about string, f func() error) error {
	err := f()
	if err == nil || errors.Is(err, report.ErrMappingCASConflict) || r.broken != nil {
		return err
	}
	logger.Warnf("[Graceful][Metadata] %s cannot be written (%s), retrying in the background: %v", r.Name(), about, err)
	r.doLater(about, f)
	return nil
}

func (r *metadataReport) doLater(about string, f func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	r.later[about] = f
	if !r.begun {
		r.begun = true
		r.remove = announce.Add(r)
		r.work.Go(r.run)
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run does what was put off. It ends with Close.
func (r *metadataReport) run() {
	pause := firstRetry
	for {
		r.mu.Lock()
		left := len(r.later)
		r.mu.Unlock()
		if left == 0 {
			pause = firstRetry
			select {
			case <-r.ctx.Done():
				return
			case <-r.wake:
				continue
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-r.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, maxRetry)
		r.mu.Lock()
		todo := make(map[string]func() error, len(r.later))
		for about, f := range r.later {
			todo[about] = f
		}
		clear(r.later)
		r.mu.Unlock()
		for about, f := range todo {
			if r.ctx.Err() != nil {
				return
			}
			if err := f(); err != nil {
				logger.Debugf("[Graceful][Metadata] %s still cannot be used (%s): %v", r.Name(), about, err)
				r.mu.Lock()
				if _, newer := r.later[about]; !newer {
					r.later[about] = f
				}
				r.mu.Unlock()
				continue
			}
			logger.Infof("[Graceful][Metadata] %s is back: %s done", r.Name(), about)
		}
	}
}

// URL returns the URL of the report.
func (r *metadataReport) URL() *common.URL { return r.url }

// GetAppMetadata reads the metadata of a revision.
func (r *metadataReport) GetAppMetadata(application, revision string) (m *info.MetadataInfo, err error) {
	err = r.use(func(d report.MetadataReport) (e error) {
		m, e = d.GetAppMetadata(application, revision)
		return e
	})
	return m, err
}

// PublishAppMetadata writes the metadata of a revision, later if not now.
func (r *metadataReport) PublishAppMetadata(application, revision string, m *info.MetadataInfo) error {
	return r.nowOrLater("metadata of "+application+" revision "+revision, func() error {
		return r.use(func(d report.MetadataReport) error { return d.PublishAppMetadata(application, revision, m) })
	})
}

// UnPublishAppMetadata removes the metadata of a revision.
func (r *metadataReport) UnPublishAppMetadata(application, revision string) error {
	return r.use(func(d report.MetadataReport) error { return d.UnPublishAppMetadata(application, revision) })
}

// ListAppRevisions lists the revisions of an application.
func (r *metadataReport) ListAppRevisions(application string) (revisions []report.AppRevision, err error) {
	err = r.use(func(d report.MetadataReport) (e error) {
		revisions, e = d.ListAppRevisions(application)
		return e
	})
	return revisions, err
}

// RegisterServiceAppMapping tells which application provides an interface, later if not now.
func (r *metadataReport) RegisterServiceAppMapping(name, group, application string) error {
	return r.nowOrLater("mapping of "+name+" to "+application, func() error {
		return r.use(func(d report.MetadataReport) error { return d.RegisterServiceAppMapping(name, group, application) })
	})
}

// GetServiceAppMapping reads which applications provide an interface. A reference (with a listener) that could not read it
// learns it as soon as it is there.
func (r *metadataReport) GetServiceAppMapping(name, group string, listener mapping.MappingListener) (*gxset.HashSet, error) {
	if listener == nil || r.broken != nil {
		return r.mappingOf(name, group, listener)
	}
	waiting := &waitingListener{MappingListener: listener, have: gate.need("interface " + name)}
	apps, err := r.mappingOf(name, group, waiting)
	if err == nil {
		if !apps.Empty() {
			waiting.have()
		}
		return apps, nil
	}
	r.doLater("mapping of "+name, func() error {
		again, readErr := r.mappingOf(name, group, waiting)
		if readErr != nil {
			return readErr
		}
		if again.Empty() {
			return errNoProvider
		}
		return waiting.OnEvent(registry.NewServiceMappingChangedEvent(name, again))
	})
	return apps, err
}

// waitingListener notes that the reference it listens for knows its applications.
type waitingListener struct {
	mapping.MappingListener
	have func()
}

func (l *waitingListener) OnEvent(e observer.Event) error {
	if m, ok := e.(*registry.ServiceMappingChangeEvent); ok && !m.GetServiceNames().Empty() {
		l.have()
	}
	return l.MappingListener.OnEvent(e)
}

func (r *metadataReport) mappingOf(name, group string, listener mapping.MappingListener) (apps *gxset.HashSet, err error) {
	err = r.use(func(d report.MetadataReport) (e error) {
		apps, e = d.GetServiceAppMapping(name, group, listener)
		return e
	})
	if apps == nil {
		apps = gxset.NewSet()
	}
	return apps, err
}

// RemoveServiceAppMappingListener ends the listening to a mapping.
func (r *metadataReport) RemoveServiceAppMappingListener(name, group string) error {
	r.mu.Lock()
	delete(r.later, "mapping of "+name)
	r.mu.Unlock()
	return r.use(func(d report.MetadataReport) error { return d.RemoveServiceAppMappingListener(name, group) })
}
