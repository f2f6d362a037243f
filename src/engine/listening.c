/* network.allow_local_binding: false. A second, small filter: no socket can be listened on, so that
 * nobody inside serves anything. UNIX sockets are among them, for the call does not tell its kind.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

#include "core/cleanup.h"
#include "engine/seccomp.h"

#define LOAD(field)                                                                                \
  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define IF(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)

/* Numbers, not names: each kernel has calls of two architectures. */
enum { LISTEN_X86_64 = 50, LISTEN_I386 = 363, SOCKETCALL_I386 = 102, SOCKETCALL_LISTEN = 4 };
enum { LISTEN_ARM64 = 201, LISTEN_ARM = 284 };

int seccomp_forbid_listening(void) {
#if defined(__x86_64__)
  struct sock_filter code[] = {
      LOAD(arch),
      IF(AUDIT_ARCH_X86_64, 0, 2),
      LOAD(nr),
      IF(LISTEN_X86_64, 6, 5),
      LOAD(nr),
      IF(LISTEN_I386, 4, 0),
      IF(SOCKETCALL_I386, 0, 2),
      LOAD(args[0]),
      IF(SOCKETCALL_LISTEN, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
  };
#elif defined(__aarch64__)
  struct sock_filter code[] = {
      LOAD(arch),
      IF(AUDIT_ARCH_AARCH64, 0, 2),
      LOAD(nr),
      IF(LISTEN_ARM64, 3, 2),
      LOAD(nr),
      IF(LISTEN_ARM, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
  };
#else
#error "the numbers of listen(2) on this architecture are not known"
#endif
  struct sock_fprog program = {.len = ARRAY_SIZE(code), .filter = code};
  return seccomp_install(&program);
}
