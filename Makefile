# `make help` lists everything. CGO is off in every build: changing it would compile
# everything, Kubernetes included, a second time.
export CGO_ENABLED = 0
SHELL := /bin/bash
GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS = -s -w -X main.version=$(VERSION)
TIME ?= 30s

.PHONY: help bpf bpf-check bpf-packages build build-lab lab test test-quick test-kernel test-ipvs test-lab test-peer e2e e2e-build bench-quick bench-proxy bench-dns fuzz golden lint fresh clean packages

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

build: ## bin/fairway
	@mkdir -p bin
	$(GO) build -ldflags "$(LDFLAGS)" -o bin/fairway ./cmd/fairway

build-lab: build ## bin/fairway-lab with a Kubernetes control plane, kubelet and kubectl in it (first time: minutes)
	lab/build.sh
	lab/agnhost/build.sh

lab: packages build-lab ## a cluster of three nodes with Fairway on each; then: bin/fairway-lab kubectl get pods -A
	@if bin/fairway-lab list | grep -q '^lab	running$$'; then bin/fairway-lab status && \
	echo "it was up already; for the Fairway just built: bin/fairway-lab kubectl -n fairway-system rollout restart ds/fairway"; \
	else bin/fairway-lab up; fi

test: packages test-quick bpf-check test-ipvs test-lab test-peer ## everything: unit, stories, kernel (needs root), a virtual machine, the lab with real kubectl, a short e2e

test-quick: ## unit tests, stories and, as root, the kernel tests in network namespaces
	@if [ $$(id -u) = 0 ]; then export FAIRWAY_REQUIRE_KERNEL=1; else echo "not root: kernel tests will be skipped"; fi; \
	$(GO) test ./... && $(GO) -C lab/e2e test ./...

test-kernel: packages ## only the tests that program a real kernel, in network namespaces
	FAIRWAY_REQUIRE_KERNEL=1 $(GO) test -count=1 ./kernel/... ./loop/... ./announce/... ./test/kernel/... && \
	FAIRWAY_REQUIRE_KERNEL=1 $(GO) test -count=1 -v -run Packets ./test/matrix

test-ipvs: packages ## IPVS mode on a real kernel that has it, in small virtual machines (no KVM); IPVS=REGEX for some tests
	IPVS="$(IPVS)" test/ipvs.sh

test-lab: packages build-lab e2e-build ## the articles' stories with kubectl in a lab, and the short e2e stage, in four proxy modes
	test/lab.sh

test-peer: packages build ## ports and metrics beside Kubernetes' own kube-proxy, answers beside CoreDNS, from one configuration file
	bench/kubeproxy/build.sh
	$(GO) -C bench/dns/coredns build -o $(CURDIR)/bin/bench-coredns .
	FAIRWAY_REQUIRE_PEER=1 $(GO) test -count=1 ./test/peer

e2e-build: ## bin/e2e.test, Kubernetes' own suite (first time: minutes)
	lab/e2e/build.sh

e2e: packages build-lab e2e-build ## [sig-network] Conformance against a lab of its own; MODE=nftables|iptables|userspace|ebpf STAGE=... FOCUS=...
	test/e2e.sh

bpf: bpf-packages ## compile the eBPF mode's programs again (kernel/bpf/balancer.o, which is committed)
	hack/bpf.sh kernel/bpf/balancer.o

bpf-check: bpf-packages ## fails when kernel/bpf/balancer.o is not, byte for byte, what its sources give
	@t=$$(mktemp -d) && trap 'rm -rf "$$t"' EXIT && hack/bpf.sh "$$t/balancer.o" && \
	cmp "$$t/balancer.o" kernel/bpf/balancer.o && echo "kernel/bpf/balancer.o is what its sources give"

bpf-packages:
	@hack/packages.sh \
	"clang-14:compiles the eBPF mode's programs" \
	"llvm-14:strips what only a debugger needs from them" \
	"libbpf-dev:the headers they include" \
	"linux-libc-dev:the kernel's constants they include"

bench-quick: packages ## cold sync and +1 endpoint at 1k and 10k Services, nftables and iptables
	$(GO) run ./bench/proxy

bench-proxy: packages build ## Fairway beside kube-proxy, every mode, up to 30k Services (root; an hour); BENCH="-sizes 1000 -modes nftables" or "-resume"
	bench/kubeproxy/build.sh
	$(GO) run ./bench/compare $(BENCH)

bench-dns: build ## Fairway's DNS beside CoreDNS, NSD and Knot on loopback (minutes); BENCH="-services 1000,10000 -rounds 5"
	@hack/packages.sh "dnsperf:the load" "nsd:a rival" "knot:a rival"
	$(GO) -C bench/dns/coredns build -o $(CURDIR)/bin/bench-coredns .
	$(GO) run ./bench/dns $(BENCH)

fuzz: ## every fuzz target for TIME (30s) each
	@for pkg in $$(grep -rl --include='*_test.go' 'func Fuzz' . --exclude-dir=lab | xargs -n1 dirname | sort -u); do \
	for f in $$(grep -rhoE 'func (Fuzz[A-Za-z0-9_]+)' $$pkg/*_test.go | cut -d' ' -f2); do \
	echo "== $$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(TIME) $$pkg || exit 1; done; done

golden: ## rewrite the want-* sections of all stories; look at the diff before committing
	$(GO) test ./proxy/... ./dns/... ./lb/... ./ingress/... -update

lint: ## gofmt, go vet, staticcheck, ineffassign, misspell
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not gofmt-ed:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) tool -modfile=hack/tools/go.mod staticcheck ./...
	$(GO) tool -modfile=hack/tools/go.mod ineffassign ./...
	$(GO) tool -modfile=hack/tools/go.mod misspell -error $$(git ls-files '*.go' '*.md')

fresh: ## the README's two commands in a clean Debian root (root; an hour); FRESH=--shared-caches (minutes)
	hack/fresh.sh $(FRESH)

clean: ## remove bin/; labs are taken down with bin/fairway-lab down
	rm -rf bin

packages:
	@hack/packages.sh \
	"nftables:the nft command compares what is in the kernel" \
	"iptables:the iptables proxy mode, and its tests" \
	"iproute2:network namespaces" \
	"conntrack:looking at flows in tests" \
	"procps:ps and sysctl in the lab" \
	"curl:a client in the lab and in tests" \
	"bind9-dnsutils:dig, the DNS client of tests and of the lab's images" \
	"netcat-openbsd:nc, what Kubernetes' e2e suite probes ports with" \
	"iputils-ping:ping in the lab's images" \
	"nginx-light:the web server of the lab's images" \
	"ipset:the IPVS proxy mode, and its tests" \
	"ipvsadm:comparing with IPVS itself in tests" \
	"qemu-system-x86:the virtual machine of the IPVS tests, whose kernel is fetched once" \
	"openssl:certificates in the lab's stories"
