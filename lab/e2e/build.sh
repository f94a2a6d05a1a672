#!/bin/sh
# Build Kubernetes' own end-to-end suite as bin/e2e.test, and the program that
# runs its stages against a lab as bin/e2e, both at the repository root. The
# first build takes minutes, a repeat takes seconds.
set -eu

cd "$(dirname "$0")"
suite=k8s.io/kubernetes/test/e2e
root=$(cd ../.. && pwd)
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
# The suite reports this version and compares it with the cluster's.
v=k8s.io/component-base/version
stamp="-X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*}"

mkdir -p "$root/bin"
echo "e2e: building bin/e2e.test from Kubernetes $version (the first time 2 CPU-minutes after bin/fairway-lab, 10 on its own)" >&2
export CGO_ENABLED=0

# `go test -c` compiles in silence, so what the suite imports is built first by
# a command that counts.
imports=$(go list -f '{{join .Imports "\n"}}{{"\n"}}{{join .TestImports "\n"}}' "$suite" | sort -u)
# shellcheck disable=SC2086 # one word per package
"$root/hack/progress.sh" e2e.test go build -v $imports
echo "e2e: linking bin/e2e.test" >&2
go test -c -vet=off -ldflags "-s -w $stamp" -o "$root/bin/e2e.test" "$suite"
go build -o "$root/bin/e2e" ./cmd/e2e
