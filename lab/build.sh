#!/bin/sh
# Builds the lab's programs into bin/ at the top of the repository:
#   fairway-lab  the lab, with Kubernetes and kubectl in it
#   cinit        starts a container's first process
#   webd         the web server that stands for nginx where there is none
set -eu
cd "$(dirname "$0")"
kubernetes=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
bin=../bin
mkdir -p "$bin"

# One setting for every program: changing it compiles everything anew.
export CGO_ENABLED=0

version=k8s.io/component-base/version
ldflags="-s -w
 -X $version.gitVersion=$kubernetes
 -X $version.gitMajor=$(echo "${kubernetes#v}" | cut -d. -f1)
 -X $version.gitMinor=$(echo "${kubernetes#v}" | cut -d. -f2)
 -X $version.gitTreeState=clean"

for small in cinit webd; do
	echo "lab: building $small"
	go build -ldflags "-s -w" -o "$bin/$small" "./cmd/$small"
done

echo "lab: building fairway-lab with Kubernetes $kubernetes"
echo "lab: the first build compiles Kubernetes, 3 to 10 minutes on two cores; later ones take seconds"
# -v names each package as it is compiled; one line in a hundred is enough to
# see it move.
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT
{
	go build -v -ldflags "$ldflags" -o "$bin/fairway-lab" ./cmd/fairway-lab 2>&1 || echo failed >"$failed"
} | awk '
	/^go: downloading/ { if (got++ % 50 == 0) { print "lab: downloading modules (" got " so far)"; fflush() } next }
	/^[a-zA-Z0-9._\/-]+$/ { if (++n % 100 == 0) { print "lab: compiled " n " packages of about 2900"; fflush() } next }
	{ print; fflush() }'
if [ -s "$failed" ]; then
	echo "lab: the build failed" >&2
	exit 1
fi
echo "lab: built $(cd "$bin" && pwd)/fairway-lab"
