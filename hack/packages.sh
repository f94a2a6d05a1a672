#!/bin/sh
# Install the Debian packages a make target needs and this machine lacks.
#
#   hack/packages.sh PACKAGE:WHY…
#
# Comes in: the packages with the reason for each. Goes out: nothing when all
# are there; otherwise one line per missing package and, as root, its
# installation. Without root, or without apt-get, it prints the command to run
# and exits 1. It never removes or upgrades anything, and no daemon of a
# package it installs is started.
# FAIRWAY_SKIP_PACKAGES=1 skips the check, for machines without dpkg whose
# owner has installed the tools in another way.
set -eu

say() { echo "packages: $*" >&2; }

# A removed package whose configuration remains makes `dpkg -s` succeed, so
# the state itself is read.
installed() {
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

have() { command -v "$1" >/dev/null 2>&1; }

# Set $missing to the packages that are not installed, naming each.
look() {
	missing=
	for arg in "$@"; do
		package=${arg%%:*} why=${arg#*:}
		if [ -z "$package" ] || [ -z "$why" ] || [ "$package" = "$arg" ]; then
			say "bad argument '$arg': want PACKAGE:WHY"
			exit 2
		fi
		if have dpkg-query && installed "$package"; then
			continue
		fi
		say "missing $package: $why"
		missing="$missing $package"
	done
}

# Print the command for the user, and give up.
refuse() {
	say "$1; run this, then try again:"
	echo "  sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends$missing'" >&2
	exit 1
}

# The tools are wanted, not the services around them: a policy that forbids
# starting any is in place while apt works, unless the machine has its own.
forbid_daemons() {
	policy=${FAIRWAY_POLICY_RC_D:-/usr/sbin/policy-rc.d}
	if [ -e "$policy" ]; then
		return
	fi
	trap 'rm -f "$policy"' EXIT
	trap 'exit 1' HUP INT TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
}

apt() {
	DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 \
		-o Dpkg::Use-Pty=0 "$@" >&2
}

update() {
	say "apt-get update"
	apt update
}

install() {
	say "apt-get install$missing"
	# shellcheck disable=SC2086 # one word per package
	apt install -y --no-install-recommends $missing
}

look "$@"
if [ -z "$missing" ] || [ "${FAIRWAY_SKIP_PACKAGES:-}" = 1 ]; then
	exit 0
fi
have apt-get || refuse "this machine has no apt-get (elsewhere the packages may have other names)"
[ "$(id -u)" = 0 ] || refuse "installing needs root"
forbid_daemons
lists=${FAIRWAY_APT_LISTS:-/var/lib/apt/lists}
if ! ls "$lists"/*_Packages* >/dev/null 2>&1; then
	update
	install
else
	install || { update && install; } # the lists may be older than the mirror
fi
look "$@"
[ -z "$missing" ] || { say "still missing after apt-get install:$missing"; exit 1; }
