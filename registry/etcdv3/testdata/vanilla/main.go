// Copyright 2026 The dubbogo/graceful Authors.
// SPDX-License-Identifier: Apache-2.0

// Command vanilla is a process that knows only dubbo-go's own etcd registry. It does what its arguments say and prints one line
// for each thing that happens, until its standard input ends.
//
//	vanilla ADDRESS watch-interface INTERFACE | watch-service APPLICATION | provide-interface PROVIDER-URL | provide-service APPLICATION HOST PORT
package main

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

import (
	gxset "github.com/dubbogo/gost/container/set"
	"github.com/dubbogo/gost/gof/observer"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/registry"
	_ "dubbo.apache.org/dubbo-go/v3/registry/etcdv3"
	"dubbo.apache.org/dubbo-go/v3/remoting"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func run(address, what string, args []string) error {
	reg, err := common.NewURL("etcdv3://"+address, common.WithParamsValue(constant.RegistryKey, constant.EtcdV3Key),
		common.WithParamsValue(constant.RegistryTimeoutKey, "5s"))
	if err != nil {
		return err
	}
	switch what {
	case "watch-interface":
		r, err := extension.GetRegistry(constant.EtcdV3Key, reg)
		if err != nil {
			return err
		}
		ref, err := common.NewURL("tri://127.0.0.1/"+args[0], common.WithInterface(args[0]))
		if err != nil {
			return err
		}
		go func() { fmt.Println("ended", r.Subscribe(ref, events{})) }()
	case "provide-interface":
		r, err := extension.GetRegistry(constant.EtcdV3Key, reg)
		if err != nil {
			return err
		}
		u, err := common.NewURL(args[0], common.WithMethods([]string{"Get"}))
		if err != nil {
			return err
		}
		if err := r.Register(u); err != nil {
			return err
		}
	case "watch-service":
		d, err := extension.GetServiceDiscovery(reg)
		if err != nil {
			return err
		}
		if err := d.AddListener(instances{app: args[0]}); err != nil {
			return err
		}
	case "provide-service":
		d, err := extension.GetServiceDiscovery(reg)
		if err != nil {
			return err
		}
		port, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		if err := d.Register(&registry.DefaultServiceInstance{
			ID: args[1] + ":" + args[2], ServiceName: args[0], Host: args[1], Port: port, Enable: true, Healthy: true,
			Metadata: map[string]string{"who": "vanilla"},
		}); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	return nil
}

// events prints what a consumer of interface level is told.
type events struct{}

func (events) Notify(e *registry.ServiceEvent) {
	action := map[remoting.EventType]string{remoting.EventTypeAdd: "add", remoting.EventTypeUpdate: "update", remoting.EventTypeDel: "delete"}
	fmt.Println(action[e.Action], e.Service.Location, strings.Join(e.Service.Methods, "+")+e.Service.GetParam(constant.MethodsKey, ""))
}

func (events) NotifyAll(all []*registry.ServiceEvent, done func()) {
	fmt.Println("all", len(all))
	done()
}

// instances prints the lists that a consumer of service level is told.
type instances struct{ app string }

func (i instances) OnEvent(e observer.Event) error {
	ce, ok := e.(*registry.ServiceInstancesChangedEvent)
	if !ok {
		return fmt.Errorf("unexpected %T", e)
	}
	list := make([]string, 0, len(ce.Instances))
	for _, in := range ce.Instances {
		list = append(list, in.GetAddress()+"="+in.GetMetadata()["who"])
	}
	slices.Sort(list)
	fmt.Println("list", strings.Join(list, " "))
	return nil
}

func (instances) AddListenerAndNotify(string, registry.NotifyListener) {}
func (instances) RemoveListener(string)                                {}
func (i instances) GetServiceNames() *gxset.HashSet                    { return gxset.NewSet(i.app) }
func (instances) Accept(observer.Event) bool                           { return true }
func (instances) GetPriority() int                                     { return 0 }
func (instances) GetEventType() reflect.Type {
	return reflect.TypeFor[*registry.ServiceInstancesChangedEvent]()
}
