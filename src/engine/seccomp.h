/* The system call filter of the workload. Programs are made at build time from syscalls.def by
 * tools/genfilter.c through libseccomp; at run time this is a table look-up and one call. */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>

/* Which calls wait for a listener: none; those that take a path (traps.def); connect(2) alone. A
 * datagram of a UNIX socket names its receiver without connect(2), in memory: where that call
 * waits, such sockets cannot be made, unless policy wants them (WAIT_CONNECT_DATAGRAMS). */
enum seccomp_waits { WAIT_NOTHING, WAIT_PATHS, WAIT_CONNECT, WAIT_CONNECT_DATAGRAMS, WAIT_COUNT };

struct seccomp_variant {
  bool debug;      /* ptrace and process_vm_* allowed */
  bool containers; /* user namespaces and mounts allowed (nested containers) */
  enum seccomp_waits waits;
};

/* The program for this machine's architecture. Never NULL. */
const struct sock_fprog *seccomp_program(struct seccomp_variant variant);

/* Installs it for good in the calling thread (no_new_privs must be set). Raw system calls only:
 * safe between clone and exec. Returns 0 or a negative errno. */
int seccomp_install(const struct sock_fprog *program);

/* The same for a variant in which calls wait; returns the listener. */
int seccomp_install_listener(const struct sock_fprog *program);

/* Before it, if asked for: listen(2) fails with EACCES from now on. */
int seccomp_forbid_listening(void);
