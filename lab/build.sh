#!/bin/sh
# Builds the lab's programs into bin/ at the top of the repository:
#   fairway-lab  the lab, with Kubernetes and kubectl in it
#   cinit        starts a container's first process
#   webd         the web server that stands for nginx where there is none
set -eu
cd "$(dirname "$0")"
root=$(cd .. && pwd)
kubernetes=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
mkdir -p "$root/bin"

# One setting for every program: changing it compiles everything anew.
export CGO_ENABLED=0

# What `kubectl version` and the API server say they are.
version=k8s.io/component-base/version
number=${kubernetes#v}
ldflags="-s -w
 -X $version.gitVersion=$kubernetes
 -X $version.gitMajor=${number%%.*}
 -X $version.gitMinor=$(echo "$number" | cut -d. -f2)
 -X $version.gitTreeState=clean"

for small in cinit webd; do
	"$root/hack/progress.sh" "lab: $small" \
		go build -v -ldflags "-s -w" -o "$root/bin/$small" "./cmd/$small"
done
echo "lab: building bin/fairway-lab with Kubernetes $kubernetes in it: about 2900 packages the first time," \
	"3 to 10 minutes on two cores; seconds after that" >&2
"$root/hack/progress.sh" "lab: fairway-lab" \
	go build -v -ldflags "$ldflags" -o "$root/bin/fairway-lab" ./cmd/fairway-lab
