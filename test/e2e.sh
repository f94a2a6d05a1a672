#!/usr/bin/env bash
# Kubernetes' own [sig-network] Conformance against a lab of its own.
#   MODE=nftables|iptables|userspace|ebpf  STAGE=services|dns|api|networking|rest|short (default: all)  FOCUS=REGEX
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${MODE:-nftables} name=e2e-${MODE:-nftables}
trap 'bin/fairway-lab --name "$name" down || true' EXIT
bin/fairway-lab --name "$name" up --nodes 2 --proxy-mode "$mode"
args=(--name "$name" --parallel "${PARALLEL:-4}")
[ -z "${STAGE:-}" ] || args+=(--stage "$STAGE")
[ -z "${FOCUS:-}" ] || args+=(--focus "$FOCUS")
bin/e2e "${args[@]}"
