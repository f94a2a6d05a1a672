#!/usr/bin/env bash
# The lab's own tests; then, in a lab of each proxy mode (MODES="nftables iptables userspace
# ebpf", two at a time; IPVS has its virtual machine), the stories of test/lab and a stage of
# Kubernetes' e2e suite (E2E=short, another stage, or none). Fails when anything was skipped.
# Every part tells how long it took.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 FAIRWAY_REQUIRE_LAB=1 FAIRWAY_LAB_SCRIPT=1
[ "$(id -u)" = 0 ] || { echo "the lab needs root"; exit 1; }

# timed WHAT COMMAND...
timed() {
	local what=$1 from=$SECONDS code=0
	shift
	echo "== $what"
	"$@" || code=$?
	echo "== $what: $((SECONDS - from)) s, exit code $code"
	return $code
}

# twice runs the stories; those that failed get one more try, alone and said aloud: two
# clusters and their clients share the cores of one machine.
twice() {
	local out failed status=0
	out=$(mktemp)
	go test -count=1 -parallel 4 -timeout 25m ./test/lab 2>&1 | tee "$out" || status=$?
	failed=$(sed -nE 's/^ +--- FAIL: Test[A-Za-z]+\/([^ ]+) .*/\1/p' "$out" | sort -u | paste -sd'|')
	rm -f "$out"
	[ "$status" != 0 ] || return 0
	[ -n "$failed" ] || return "$status"
	echo "== once more: $failed"
	go test -count=1 -parallel 1 -timeout 15m -run "^Test(Stories|Alone)\$/^($failed)\$" ./test/lab
}

# stories MODE: its own lab, up to down.
stories() {
	local mode=$1 name=test-$1-$$ code=0
	# Written out now: at the exit of the subshell the local name is gone.
	trap "bin/fairway-lab --name '$name' down || true" EXIT
	timed "lab" bin/fairway-lab --name "$name" up --nodes 2 --proxy-mode "$mode"
	FAIRWAY_LAB=$name FAIRWAY_LAB_MODE=$mode timed "stories" twice || code=1
	if [ "${E2E:-short}" != none ]; then
		timed "e2e, stage ${E2E:-short}" bin/e2e --name "$name" --stage "${E2E:-short}" --parallel 4 || code=1
	fi
	return $code
}

code=0
timed "the lab's own tests" go -C lab test -count=1 ./... || code=1
jobs=()
finish() {
	local job
	for job in "${jobs[@]}"; do
		wait "$job" || code=1
	done
	jobs=()
}
for mode in ${MODES:-nftables iptables userspace ebpf}; do
	(stories "$mode") > >(sed -u "s/^/$mode  /") 2>&1 &
	jobs+=($!)
	[ "${#jobs[@]}" -lt 2 ] || finish
done
finish
echo "== all of it: $SECONDS s"
exit $code
