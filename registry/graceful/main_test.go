// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

package graceful

import (
	"fmt"
	"os"
	"testing"
)

import (
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(
		checked{m}, goleak.IgnoreCurrent(), // dubbo-go starts some at its import
		// The Nacos SDK never ends its UDP receiver and its log rotation.
		goleak.IgnoreAnyFunction("github.com/nacos-group/nacos-sdk-go/v2/clients/naming_client/naming_http.(*PushReceiver).startServer.func1"),
		goleak.IgnoreAnyFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"),
		// dubbo-go's ZooKeeper metadata report cannot be closed. Our own connections are counted instead.
		goleak.IgnoreAnyFunction("dubbo.apache.org/dubbo-go/v3/remoting/zookeeper.(*ZkEventListener).ListenConfigurationEvent.func1"),
		goleak.IgnoreAnyFunction("github.com/dubbogo/gost/database/kv/zk.(*DefaultHandler).HandleZkEvent"),
		goleak.IgnoreAnyFunction("github.com/dubbogo/go-zookeeper/zk.(*Conn).loop"),
	)
}

// checked runs the tests and finds connections that nobody has released.
type checked struct{ *testing.M }

func (c checked) Run() int {
	code := c.M.Run()
	zkConns.Lock()
	defer zkConns.Unlock()
	if n := len(zkConns.m); n > 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d ZooKeeper connections were not released\n", n)
		return 1
	}
	return code
}
