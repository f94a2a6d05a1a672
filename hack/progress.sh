#!/bin/sh
# Run a `go build -v` or `go test -c -v` and show how far it is.
#
#   hack/progress.sh WHAT COMMAND…
#
# Comes in: what is being built, and the command. Goes out: the command's exit
# status, its errors, and on stderr one counter of packages compiled with the
# time so far: rewritten in place on a terminal, a line every 15 seconds
# elsewhere. It never changes the command.
set -u

what=$1
shift
clear=
[ -t 2 ] && clear=$(printf '\r\033[K')
status=$(mktemp)
trap 'rm -f "$status"' EXIT
start=$(date +%s)
last=$start

line() {
	seconds=$((now - start))
	printf '%s: %d packages compiled, %d:%02d' "$what" "$n" $((seconds / 60)) $((seconds % 60))
}

# A package was compiled.
count() {
	n=$((n + 1))
	now=$(date +%s)
	if [ -n "$clear" ]; then
		printf '%s%s  %s' "$clear" "$(line)" "$1"
	elif [ $((now - last)) -ge 15 ]; then
		line
		echo
		last=$now
	fi
}

# go prints the import path of every package it compiles, one word a line;
# anything else is a message and is passed on.
show() {
	n=0
	while IFS= read -r text; do
		case $text in
		'' | *[!A-Za-z0-9._~/-]*) printf '%s%s\n' "$clear" "$text" ;;
		*) count "$text" ;;
		esac
	done
	now=$(date +%s)
	printf '%s%s\n' "$clear" "$(line)"
}

{ "$@" 2>&1; echo $? >"$status"; } | show >&2
exit "$(cat "$status")"
