#!/bin/sh
# Build agnhost, the program behind most images of Kubernetes' own tests, as
# bin/agnhost at the repository root. Static and stripped; the first build
# compiles parts of Kubernetes and takes minutes, a repeat takes seconds.
set -eu

cd "$(dirname "$0")"
root=$(cd ../.. && pwd)

mkdir -p "$root/bin"
echo "agnhost: building bin/agnhost (the first time 3 CPU-minutes; seconds when bin/fairway-lab was built before)" >&2
CGO_ENABLED=0 "$root/hack/progress.sh" agnhost \
	go build -v -ldflags '-s -w' -o "$root/bin/agnhost" k8s.io/kubernetes/test/images/agnhost
