#!/bin/sh
# Lists the system calls that a kernel header names: HEADER_CALL(name) for each.
# Usage: list-header-calls.sh HEADER COMPILER [ARGUMENT...]. A header that is not there has none.
header=$1
shift
echo "#include <$header>" | "$@" -dM -E - 2>/dev/null |
  sed -n 's/^#define __NR_\([a-z_][a-z0-9_]*\) .*/HEADER_CALL(\1)/p' |
  grep -v -e '(syscalls)' -e '(arch_specific_syscall)' | sort
exit 0
