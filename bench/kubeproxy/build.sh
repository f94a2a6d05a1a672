#!/bin/sh
# Builds kube-proxy, the program Fairway is measured against, from Kubernetes' own
# source as bin/kube-proxy at the top of the repository. It is part of no other target.
set -eu

cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
kubernetes=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)

mkdir -p "$root/bin"
echo "kube-proxy: building bin/kube-proxy $kubernetes (the first time 3 CPU-minutes; seconds when bin/fairway-lab was built before)" >&2
CGO_ENABLED=0 "$root/hack/progress.sh" kube-proxy \
	go build -v -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes" \
	-o "$root/bin/kube-proxy" k8s.io/kubernetes/cmd/kube-proxy
