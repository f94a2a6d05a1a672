#!/bin/sh
# Compile kernel/bpf/balancer.c.
#
#   hack/bpf.sh OUTPUT
#
# Comes in: the sources, and clang-14, llvm-strip-14 and libbpf's headers as Debian 12 has
# them. Goes out: the object that the program carries. The same sources give the same bytes
# on every machine with these tools: no path and no date gets in, and the kernel headers
# used are those of user space (linux-libc-dev), of which only constants and packet
# formats are taken.
set -eu
[ $# = 1 ] || { echo "usage: hack/bpf.sh OUTPUT" >&2; exit 2; }
case $1 in /*) out=$1 ;; *) out=$PWD/$1 ;; esac
cd "$(dirname "$0")/../kernel/bpf"
clang-14 -O2 -g -Wall -Werror -target bpfel -mcpu=v3 \
	-I"/usr/include/$(uname -m)-linux-gnu" \
	-fdebug-compilation-dir=. -fdebug-prefix-map="$PWD=." \
	-c balancer.c -o "$out"
llvm-strip-14 -g "$out"
