// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package graceful

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"
)

import (
	gxetcd "github.com/dubbogo/gost/database/kv/etcd/v3"

	perrors "github.com/pkg/errors"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	clientv3 "go.etcd.io/etcd/client/v3"

	"dubbo.apache.org/dubbo-go/v3/common/constant"
)

import (
	"github.com/dubbogo/graceful/internal/etcd"
	"github.com/dubbogo/graceful/internal/testserver"
	"github.com/dubbogo/graceful/internal/wire"
)

// etcdPublisherOf is one process; each timeout is a connection and a lease of its own.
func etcdPublisherOf(t *testing.T, addr string, l level, timeout string) *etcdPublisher {
	t.Helper()
	p, err := newPublisher(constant.EtcdV3Key, l, delegateURL(registryURL(t, constant.EtcdV3Key, addr, timeout), constant.EtcdV3Key))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p.(*etcdPublisher)
}

func etcdClient(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: testWait})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// watchKeys tells every event of a key that a plain client sees: "+" created, "=" written again, "-" deleted, and the status.
func watchKeys(t *testing.T, c *clientv3.Client, prefix string) func(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	events := c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-events
	var pending []*clientv3.Event
	return func(t *testing.T) string {
		t.Helper()
		for len(pending) == 0 {
			select {
			case resp := <-events:
				require.NoError(t, resp.Err())
				pending = resp.Events
			case <-time.After(testWait):
				t.Fatal("no event")
			}
		}
		e := pending[0]
		pending = pending[1:]
		sign := map[bool]string{true: "+", false: "="}[e.IsCreate()]
		if e.Type == clientv3.EventTypeDelete {
			sign = "-"
		}
		key, err := url.QueryUnescape(string(e.Kv.Key))
		require.NoError(t, err)
		port := key[strings.Index(key, "127.0.0.1:")+len("127.0.0.1:"):][:5]
		status := ""
		for _, s := range []string{"UP", "DRAINING"} {
			if strings.Contains(string(e.Kv.Value), s) {
				status = s
			}
		}
		return sign + port + status
	}
}

func TestEtcdPublisherInterfaceLevel(t *testing.T) {
	server := testserver.Etcd(t)
	const service = "shop.Interface"
	p := etcdPublisherOf(t, server.Addr, interfaceLevel, "3s")
	up, draining := marks()
	recs := []record{
		interfaceRecord(t, "tri", "127.0.0.1:20001", service), interfaceRecord(t, "dubbo", "127.0.0.1:20002", service),
	}
	raw := etcdClient(t, server.Addr)
	next := watchKeys(t, raw, "/dubbo/"+service+"/providers/")
	require.NoError(t, p.Put(testContext(t), recs[:1], up))
	assert.Equal(t, "+20001UP", next(t))
	require.NoError(t, p.Put(testContext(t), recs[:1], up), "idempotent")
	assert.Equal(t, "=20001UP", next(t), "written again, in case somebody has deleted it")
	require.NoError(t, p.Put(testContext(t), recs, up))
	assert.ElementsMatch(t, []string{"=20001UP", "+20002UP"}, []string{next(t), next(t)})
	require.NoError(t, p.Shows(testContext(t), recs, up))
	require.ErrorIs(t, p.Shows(testContext(t), recs, draining), errNotShown)
	for range 3 {
		require.NoError(t, p.Put(testContext(t), recs, draining))
		assert.ElementsMatch(t, []string{"=20001DRAINING", "=20002DRAINING"}, []string{next(t), next(t)}, "an upsert")
		require.NoError(t, p.Shows(testContext(t), recs, draining))
		require.NoError(t, p.Put(testContext(t), recs, up))
		assert.ElementsMatch(t, []string{"=20001UP", "=20002UP"}, []string{next(t), next(t)})
	}
	require.NoError(t, p.Remove(testContext(t), recs[:1]))
	assert.Equal(t, "-20001", next(t))
	require.ErrorIs(t, p.Shows(testContext(t), recs, up), errNotShown)
	require.NoError(t, p.Remove(testContext(t), recs))
	require.NoError(t, p.Remove(testContext(t), recs), "idempotent")
	assert.Equal(t, "-20002", next(t))
	left, err := raw.Get(t.Context(), "/", clientv3.WithPrefix())
	require.NoError(t, err)
	assert.Empty(t, left.Kvs)
}

func TestEtcdPublisherServiceLevel(t *testing.T) {
	server := testserver.Etcd(t)
	p := etcdPublisherOf(t, server.Addr, serviceLevel, "3s")
	up, draining := marks()
	recs := []record{serviceRecord(20001)}
	raw := etcdClient(t, server.Addr)
	next := watchKeys(t, raw, "/services/backend/")
	require.NoError(t, p.Put(testContext(t), recs, up))
	assert.Equal(t, "+20001UP", next(t))
	assert.Equal(t, "=20001UP", next(t), "once more, for dubbo-go's own discovery")
	require.NoError(t, p.Put(testContext(t), recs, draining))
	assert.Equal(t, "=20001DRAINING", next(t))
	require.NoError(t, p.Shows(testContext(t), recs, draining))
	recs[0].tag = "leaving"
	require.NoError(t, p.Put(testContext(t), recs, draining))
	assert.Equal(t, "=20001DRAINING", next(t))
	kvs, err := raw.Get(t.Context(), "/services/backend/127.0.0.1:20001")
	require.NoError(t, err)
	require.Len(t, kvs.Kvs, 1)
	instance, err := etcd.DecodeInstance(string(kvs.Kvs[0].Value))
	require.NoError(t, err)
	assert.Equal(t, "leaving", instance.GetTag())
	assert.Equal(t, "leaving", instance.GetMetadata()[constant.Tagkey])
	assert.Equal(t, "local", instance.GetMetadata()["dubbo.metadata.storage-type"])
	require.NoError(t, p.Remove(testContext(t), recs))
	assert.Equal(t, "-20001", next(t))
}

func TestEtcdRecordsComeBackWithTheLease(t *testing.T) {
	server := testserver.Etcd(t)
	p := etcdPublisherOf(t, server.Addr, serviceLevel, "3s")
	back := make(chan struct{}, 1)
	p.Watch(func() { back <- struct{}{} })
	_, draining := marks()
	recs := []record{serviceRecord(20001)}
	require.NoError(t, p.Put(testContext(t), recs, draining))
	raw := etcdClient(t, server.Addr)
	kvs, err := raw.Get(t.Context(), "/services/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, kvs.Kvs, 1)
	_, err = raw.Revoke(t.Context(), clientv3.LeaseID(kvs.Kvs[0].Lease))
	require.NoError(t, err)
	select {
	case <-back:
	case <-time.After(testWait):
		t.Fatal("the loss of the lease was not noticed")
	}
	require.NoError(t, p.Shows(testContext(t), recs, draining))
}

func TestEtcdFollowers(t *testing.T) {
	server := testserver.Etcd(t)
	const service = "shop.Followed"
	pi, ps := etcdPublisherOf(t, server.Addr, interfaceLevel, "3s"), etcdPublisherOf(t, server.Addr, serviceLevel, "3s")
	up, draining := marks()
	ofInterface := []record{interfaceRecord(t, "tri", "127.0.0.1:20001", service)}
	ofService := []record{serviceRecord(20001)}
	u := delegateURL(registryURL(t, constant.EtcdV3Key, server.Addr, "4s"), constant.EtcdV3Key)
	ref := referenceURL(t, service)
	interfaceSource := &etcdSource{
		url: u, prefix: etcd.ProvidersPrefix(u, service),
		parse: func(key, value string) (item, bool) { return etcdInterfaceItem(ref, key, value) },
	}
	serviceSource := &etcdSource{url: u, prefix: etcd.ServicePrefix("backend"), parse: etcdServiceItem}
	seen := []*followed{followSource(t, interfaceSource), followSource(t, serviceSource)}
	all := func(want string) {
		t.Helper()
		for _, f := range seen {
			f.until(t, want)
		}
	}
	put := func(m wire.Mark) {
		t.Helper()
		require.NoError(t, pi.Put(testContext(t), ofInterface, m))
		require.NoError(t, ps.Put(testContext(t), ofService, m))
	}
	all("") // the first list is told even if it is empty
	put(up)
	all("127.0.0.1:20001=UP")
	put(draining)
	all("127.0.0.1:20001=DRAINING")
	require.NoError(t, server.Restart(t.Context()))
	put(up)
	all("127.0.0.1:20001=UP")
	for _, src := range []source{interfaceSource, serviceSource} {
		items, err := src.query(testContext(t))
		require.NoError(t, err)
		require.Len(t, items, 1)
		assert.Equal(t, up, items[0].mark)
		assert.NotZero(t, items[0].order)
	}
	require.NoError(t, pi.Remove(testContext(t), ofInterface))
	require.NoError(t, ps.Remove(testContext(t), ofService))
	all("")
}

func TestEtcdThatIsDown(t *testing.T) {
	server := testserver.Etcd(t)
	require.NoError(t, server.Stop())
	p := etcdPublisherOf(t, server.Addr, serviceLevel, "3s")
	up, _ := marks()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	recs := []record{serviceRecord(20001)}
	require.ErrorIs(t, p.Put(ctx, recs, up), etcd.ErrUnavailable)
	require.ErrorIs(t, p.Shows(ctx, recs, up), etcd.ErrUnavailable)
	assert.Less(t, time.Since(began), 2*time.Second)
	require.NoError(t, server.Restart(t.Context()))
	for p.Put(testContext(t), recs, up) != nil {
		assert.Less(t, time.Since(began), testWait)
	}
	require.NoError(t, p.Shows(testContext(t), recs, up))
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Put(context.Background(), recs, up), errEtcdClosed)
}

func TestEtcdMetadataReportSurvivesItsClient(t *testing.T) {
	server := testserver.Etcd(t)
	r := reports.CreateMetadataReport(registryURL(t, constant.EtcdV3Key, server.Addr, "1s")).(*metadataReport)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	require.NoError(t, r.RegisterServiceAppMapping("shop.A", "mapping", "backend"))
	die := func() { // a report has no end but this
		t.Helper()
		dying, err := r.theReport()
		require.NoError(t, err)
		require.NoError(t, server.Stop())
		for began := time.Now(); ; {
			if _, err = dying.GetAppMetadata("backend", "1"); errors.Is(perrors.Cause(err), gxetcd.ErrNilETCDV3Client) {
				return
			}
			require.Less(t, time.Since(began), testWait, "dubbo-go's client is expected to give up")
		}
	}
	die()
	require.NoError(t, server.Restart(t.Context()))
	require.NoError(t, r.RegisterServiceAppMapping("shop.B", "mapping", "backend"))
	for _, service := range []string{"shop.A", "shop.B"} {
		apps, err := r.GetServiceAppMapping(service, "mapping", nil)
		require.NoError(t, err)
		assert.Equal(t, []any{"backend"}, apps.Values())
	}
	die()
}
