#!/usr/bin/env bash
# The README's two commands on a new machine, to prove that the project's own
# files install everything they need.
#
#   hack/fresh.sh [--shared-caches] [--quick]
#
# Comes in: HEAD of this repository, this machine's Go, and its way to Debian
# packages and Go modules (mirror, proxies, certificates, resolver). Goes out:
# what the commands print, a table of steps with their times, and exit status 0
# when all passed. They run in a root made by debootstrap that has git, make,
# ca-certificates and Go, and nothing else, in namespaces of its own; only the
# network is the machine's, for downloads. Nothing is left behind, not even
# after Ctrl-C.
#   --shared-caches  use this machine's Go caches: minutes instead of an hour
#   --quick          make test-quick in the place of make test
# FAIRWAY_FRESH_DIR (/var/tmp) is where the root is made: 3 GB, 12 GB with
# caches of its own.
set -euo pipefail

say() { echo "fresh: $*" >&2; }
die() { say "$*"; exit 1; }

# step NAME COMMAND… runs the command. A line of file 3 gets its name and start,
# then its end and status.
step() {
	local name=$1 status=0
	shift
	echo "== fresh: $name"
	printf '%s\t%d\t' "$name" "$(date +%s)" >&3
	"$@" 3>&- || status=$?
	printf '%d\t%d\n' "$(date +%s)" "$status" >&3
	return "$status"
}

# --- in the namespaces -------------------------------------------------------

# enter ROOT makes the directory the root of this mount namespace. The lab
# pivots roots itself, so a chroot would not do.
enter() {
	mount --bind "$1" "$1"
	mount --bind /dev "$1/dev"
	mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$1/dev/pts"
	mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$1/dev/shm"
	mount -t proc proc "$1/proc"
	mount -t sysfs sysfs "$1/sys"
	mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup" # as every booted Debian has it
	mount -t tmpfs -o mode=755,nosuid,nodev tmpfs "$1/run"
	bind "$FRESH_GOROOT" "$1/usr/local/go"
	mount -o remount,bind,ro "$1/usr/local/go"
	[ -z "${GOCACHE:-}" ] || bind "$GOCACHE" "$1$GOCACHE"
	[ -z "${GOMODCACHE:-}" ] || bind "$GOMODCACHE" "$1$GOMODCACHE"
	hostname fresh
	cd "$1"
	pivot_root . mnt
	cd /
	umount -l /mnt
	hash -r
}

bind() { mkdir -p "$2" && mount --bind "$1" "$2"; }

# readme_example is what README.md says can be done next.
readme_example() {
	bin/fairway-lab kubectl create deployment web --image=nginx --replicas=3 &&
		bin/fairway-lab kubectl expose deployment web --port=80 &&
		bin/fairway-lab kubectl rollout status deployment web --timeout=60s &&
		bin/fairway-lab exec node1 -- curl -sS --fail --retry 5 --retry-connrefused --output /dev/null \
			"http://$(bin/fairway-lab kubectl get svc web -o 'jsonpath={.spec.clusterIP}')"
}

# inside is process 1 of the clean machine: when it ends, all others do.
inside() {
	enter "$1"
	cd /root/fairway
	step "make lab" make lab
	step "README's example" readme_example
	step "fairway-lab down" bin/fairway-lab down
	step "make $2" make "$2"
}

# --- on this machine ---------------------------------------------------------

# source_of SUITE prints where this machine gets that part of Debian from.
source_of() {
	apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
		awk -v suite="$1" '$1 == suite && $2 == "main" && !n++ { print $3 }'
}

# debian fills $root.
debian() {
	local mirror suite uri try
	mirror=$(source_of "$codename")
	[ -n "$mirror" ] || { say "apt has no source of $codename main"; return 1; }
	for try in 1 2 3; do
		isolated debootstrap --variant=minbase --include=ca-certificates,git,make "$codename" "$root" "$mirror" && break
		rm -rf --one-file-system "$root"
		say "try $try: no Debian root from $mirror (is the mirror reached?)"
		[ "$try" -lt 3 ] || return 1
		sleep 10
	done
	for suite in "$codename" "$codename-updates" "$codename-security"; do
		uri=$(source_of "$suite")
		[ -z "$uri" ] || echo "deb $uri $suite main"
	done >"$root/etc/apt/sources.list"
	rm -rf "$root"/var/lib/apt/lists/*
	inherit
}

# inherit gives the root this machine's way to the network.
inherit() {
	apt-config dump Acquire | grep -E '^Acquire::(https?|ftp|Check-|Retries|AllowInsecure|ForceIPv)' \
		>"$root/etc/apt/apt.conf.d/90machine" || true
	cp -L "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$root/etc/ssl/certs/ca-certificates.crt" || return 1
	cp -L /etc/resolv.conf "$root/etc/resolv.conf" || return 1
	printf '127.0.0.1 localhost fresh\n::1 localhost\n' >"$root/etc/hosts"
}

copy() {
	if git -C "$repo" rev-parse --quiet --verify HEAD >/dev/null 2>&1; then
		git clone --quiet --no-hardlinks "$repo" "$root/root/fairway"
		git -C "$root/root/fairway" log -1 --format='%h %s'
		return
	fi
	say "$repo is no git repository: its files are copied as they are"
	mkdir "$root/root/fairway" && tar -C "$repo" --exclude=./bin -c . | tar -C "$root/root/fairway" -x
}

# clean_env fills $environment with all that the clean machine gets of ours.
clean_env() {
	local name value
	environment=(HOME=/root "TERM=${TERM:-dumb}" FRESH_GOROOT="$(go env GOROOT)"
		PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
	for name in GOPROXY GOSUMDB GONOSUMDB GOPRIVATE GONOPROXY GOINSECURE; do
		value=$(go env "$name")
		[ -z "$value" ] || environment+=("$name=$value")
	done
	for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
		[ -z "${!name:-}" ] || environment+=("$name=${!name}")
	done
	if [ "$shared" = 1 ]; then
		# No test may be taken from the cache: it would hide a missing package.
		environment+=("GOCACHE=$(go env GOCACHE)" "GOMODCACHE=$(go env GOMODCACHE)" GOFLAGS=-count=1)
	fi
}

# isolated COMMAND… runs it in new namespaces. Its processes and mounts end
# with it, and it ends with this script.
isolated() {
	set -m # a process group of its own: Ctrl-C reaches this script alone
	unshare --mount --pid --ipc --uts --fork --kill-child "$@" </dev/null &
	child=$!
	set +m
	local status=0
	wait "$child" || status=$?
	child=
	return "$status"
}

table() {
	[ -s "$work/steps" ] || return 0
	echo "== fresh: $(cat "$work/head"), $([ "$shared" = 1 ] && echo "this machine's Go caches" || echo "empty Go caches")"
	awk -F '\t' -v now="$(date +%s)" '
		function row(seconds, what) { printf "%4d:%02d  %s\n", seconds / 60, seconds % 60, what }
		{
			end = $3 == "" ? now : $3
			row(end - $2, ($3 == "" ? "stopped " : $4 ? "FAILED  " : "passed  ") $1)
			all += end - $2
		}
		END { row(all, "in all") }' "$work/steps"
}

# finish leaves nothing behind, and prints the table last.
finish() {
	local status=$? try
	trap '' INT TERM HUP
	if [ -n "$child" ]; then
		kill -KILL "$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	fi
	for try in 1 2 3 4 5; do # what died with it may take a moment
		rm -rf --one-file-system "$root" 2>/dev/null && break
		sleep 1
	done
	table
	rm -rf --one-file-system "$work"
	[ "$status" = 0 ] || say "failed (exit status $status)"
	exit "$status"
}

if [ "${1:-}" = --inside ]; then
	inside "$2" "$3"
	exit
fi

shared=0 test=test
for arg; do
	case $arg in
	--shared-caches) shared=1 ;;
	--quick) test=test-quick ;;
	*) die "unknown argument $arg; the settings are --shared-caches and --quick" ;;
	esac
done
[ "$(id -u)" = 0 ] || die "making a root needs root"
codename=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME") ||
	die "this is no Debian machine: its own release and mirror are what the clean root is made from"
self=$(realpath "$0")
repo=$(dirname "$(dirname "$self")")
cd "$repo"
hack/packages.sh "debootstrap:makes the clean Debian root"

child=
work=$(mktemp -d "${FAIRWAY_FRESH_DIR:-/var/tmp}/fairway-fresh.XXXXXX")
root=$work/root
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
exec 3>>"$work/steps"
git describe --always >"$work/head" 2>/dev/null || echo "files" >"$work/head"

step "clean Debian $codename" debian
step "copy of the repository" copy
clean_env
isolated env -i "${environment[@]}" bash "$self" --inside "$root" "$test"
