#!/usr/bin/env bash
# The stories of test/lab, and the short stage of Kubernetes' e2e suite, against a lab in
# each proxy mode (MODES="nftables iptables"). Fails when anything was skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 FAIRWAY_REQUIRE_LAB=1 FAIRWAY_LAB_SCRIPT=1
[ "$(id -u)" = 0 ] || { echo "the lab needs root"; exit 1; }

name=
finish() { [ -z "$name" ] || bin/fairway-lab --name "$name" down || true; }
trap finish EXIT

echo "== the lab's own tests"
(cd lab && go test ./...)

for mode in ${MODES:-nftables iptables}; do
	name=test-$mode
	echo "== lab in $mode mode"
	bin/fairway-lab --name "$name" up --nodes 2 --proxy-mode "$mode"
	FAIRWAY_LAB=$name FAIRWAY_LAB_MODE=$mode go test -count=1 -timeout 20m ./test/lab
	if [ "${E2E:-short}" != none ]; then
		echo "== e2e, stage ${E2E:-short}, $mode mode"
		bin/e2e --name "$name" --stage "${E2E:-short}" --parallel 4
	fi
	bin/fairway-lab --name "$name" down
	name=
done
