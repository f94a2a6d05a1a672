#!/usr/bin/env bash
# IPVS mode on a real kernel that has it: the kernel tests' stories and the packet matrix in
# small virtual machines (hack/vm), two at a time, since each is one thread of emulation.
# IPVS=REGEX narrows the tests. Fails instead of skipping.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 FAIRWAY_REQUIRE_KERNEL=1 FAIRWAY_REQUIRE_IPVS=1
mkdir -p bin
go build -o bin/ ./hack/vm/vmexec ./hack/vm/vminit

# machine WHAT ARGS...: go test in a machine of its own; tells how long it took.
machine() {
	local what=$1 from=$SECONDS code=0
	shift
	go test -count=1 -timeout 40m -exec "$PWD/bin/vmexec" "$@" || code=$?
	echo "== $what: $((SECONDS - from)) s, exit code $code"
	return $code
}

if [ -n "${IPVS:-}" ]; then
	machine "$IPVS" -run "$IPVS" ./test/kernel
	exit
fi
code=0
machine stories -run '^TestIPVSStories$' ./test/kernel &
lane=$!
machine "all but the stories" -run IPVS -skip '^TestIPVSStories$' ./test/kernel || code=1
machine matrix -short -run TestPackets/ipvs ./test/matrix || code=1
wait "$lane" || code=1
go test -count=1 ./hack/vm/... || code=1
exit $code
