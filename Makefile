# Copyright 2026 The dubbogo/graceful Authors.
# SPDX-License-Identifier: Apache-2.0

GO            ?= go
GOLANGCI_LINT ?= github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.13.2
FUZZTIME      ?= 60s
BENCHTIME     ?= 200ms
DEMO_FLAGS    ?=

.PHONY: demo test unit integration java lint bench fuzz table

## demo: a rolling update under load with an embedded etcd; DEMO_FLAGS="-compare" sets dubbo-go alone beside it
demo:
	$(GO) run ./samples/rolling $(DEMO_FLAGS)

## test: everything, against real registries on loopback
test: unit integration

## unit: unit and child-process tests, no server needed
unit:
	$(GO) test -race -timeout 15m ./...

# The suite on real registries runs one package at a time, so that its processes have the machine to themselves, and without
# the race detector: the Nacos SDK has data races of its own while its server is away. What is ours has it in the unit tests.
INTEGRATION = $(shell grep -rl --include='*_test.go' '^//go:build integration' . | xargs -n1 dirname | sort -u)

## integration: only the suite on real registries
integration: java
	$(GO) test -tags integration -p 1 -timeout 40m $(INTEGRATION)

# The ZooKeeper and Nacos servers of the tests are Java programs.
java:
	@if command -v java >/dev/null && command -v mvn >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing default-jdk-headless and maven for the test servers"; \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y default-jdk-headless maven; \
	else \
	  echo "make test: the ZooKeeper and Nacos servers of the tests need java (17 or later) and mvn on the PATH." >&2; \
	  echo "           Install a JDK and Maven, or leave the servers out knowingly: GRACEFUL_TEST_SKIP=zookeeper,nacos make test" >&2; \
	  if [ -n "$$GRACEFUL_TEST_SKIP" ]; then exit 0; fi; exit 1; \
	fi

## lint: golangci-lint v2 from the module proxy
lint:
	$(GO) run $(GOLANGCI_LINT) run --build-tags integration ./...

## bench: ours beside upstream's in one run
bench:
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./cluster/... ./filter/... ./internal/...

## fuzz: every fuzz target in turn
fuzz:
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done

## table: writes the config table of the README from the code
table:
	$(GO) run ./internal/configtable
