/* The relay's own confinement; see confine.h. Should work: TCP and UDP sockets, splicing, memory,
 * reading resolv.conf and hosts. Must not: start a program, write or read any other file, trace or
 * signal anybody. */
#include "net/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/caps.h"
#include "engine/confine.h"
#include "engine/landlock.h"
#include "engine/seccomp.h"

#define MEMORY_LIMIT ((rlim_t)512 << 20)

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif

/* ---- system calls ---- */

static const int allowed_calls[] = {
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_sendto,
    SYS_sendmsg,
    SYS_splice,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_accept4,
    SYS_close,
    SYS_connect,
    SYS_bind,
    SYS_getsockname,
    SYS_getpeername,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_shutdown,
    SYS_pipe2,
    SYS_fcntl,
    SYS_openat,
    SYS_newfstatat,
    SYS_fstat,
    SYS_statx,
    SYS_lseek,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_gettimeofday,
    SYS_getrandom,
    SYS_brk,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_futex,
    SYS_getpid,
    SYS_gettid,
    SYS_rt_sigreturn,
    SYS_rt_sigprocmask,
    SYS_rt_sigaction,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
    SYS_tgkill,
    SYS_ppoll,
    SYS_uname,
    SYS_sched_yield,
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
    SYS_poll,
    SYS_open,
    SYS_stat,
#endif
};

/* Allowed with some arguments. A UNIX socket would lead to Docker and its like, which no rule about
 * files keeps apart; memory that is written is never executed. */
static const struct checked {
  int call;
  unsigned argument;
  enum { ONLY, WITHOUT } how;
  uint32_t values[2];
} checked_calls[] = {
    {SYS_socket, 0, ONLY, {AF_INET, AF_INET6}},
    {SYS_mmap, 2, WITHOUT, {PROT_EXEC}},
    {SYS_mprotect, 2, WITHOUT, {PROT_EXEC}},
};

#if defined(__x86_64__)
#define AUDIT_ARCH_HERE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define AUDIT_ARCH_HERE AUDIT_ARCH_AARCH64
#elif defined(__riscv)
#define AUDIT_ARCH_HERE AUDIT_ARCH_RISCV64
#else
#error "add this architecture's AUDIT_ARCH_ value"
#endif

#define LOAD(field)                                                                                \
  (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(value) (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, value)

struct program {
  struct sock_filter code[2 * ARRAY_SIZE(allowed_calls) + 6 * ARRAY_SIZE(checked_calls) + 8];
  unsigned short length;
};

static void put(struct program *program, struct sock_filter instruction) {
  program->code[program->length++] = instruction;
}

static void put_jump(struct program *program, unsigned short test, uint32_t value, uint8_t if_true,
                     uint8_t if_false) {
  put(program, (struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, value, if_true, if_false));
}

static void put_checked(struct program *program, const struct checked *checked) {
  put_jump(program, BPF_JEQ, (uint32_t)checked->call, 0, checked->how == ONLY ? 5 : 4);
  put(program, LOAD(args[checked->argument])); /* the lower half */
  if (checked->how == ONLY) {
    put_jump(program, BPF_JEQ, checked->values[0], 1, 0);
    put_jump(program, BPF_JEQ, checked->values[1], 0, 1);
  } else {
    put_jump(program, BPF_JSET, checked->values[0], 1, 0);
  }
  put(program, RETURN(SECCOMP_RET_ALLOW));
  put(program, RETURN(SECCOMP_RET_ERRNO | EPERM));
}

/* What is not listed fails with EPERM: the relay goes on, the call has not happened. */
static int restrict_calls(void) {
  struct program program = {.length = 0};
  put(&program, LOAD(arch));
  put_jump(&program, BPF_JEQ, AUDIT_ARCH_HERE, 1, 0);
  put(&program, RETURN(SECCOMP_RET_KILL_PROCESS));
  put(&program, LOAD(nr));
  for (size_t i = 0; i < ARRAY_SIZE(allowed_calls); i++) {
    put_jump(&program, BPF_JEQ, (uint32_t)allowed_calls[i], 0, 1);
    put(&program, RETURN(SECCOMP_RET_ALLOW));
  }
  for (size_t i = 0; i < ARRAY_SIZE(checked_calls); i++)
    put_checked(&program, &checked_calls[i]);
  put(&program, RETURN(SECCOMP_RET_ERRNO | EPERM));
  struct sock_fprog filter = {.len = program.length, .filter = program.code};
  return seccomp_install(&filter);
}

/* ---- files ---- */

#define ALL_FILE_RIGHTS ((1ULL << 13) - 1) /* of the first ABI; later ones are for what we lack */

struct ruleset {
  uint64_t handled_fs;
};

static void allow_reading(int ruleset, const char *path) {
  _cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);
  struct landlock_path_beneath_attr rule = {.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE,
                                            .parent_fd = fd};
  if (fd >= 0)
    (void)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

/* A second wall behind the system calls; kernels without it have only those. What replaces the
 * first two is brought by the monitor; see name-files.h. */
static int restrict_files(void) {
  static const char *const files[] = {"/etc/resolv.conf", "/etc/hosts",    "/etc/nsswitch.conf",
                                      "/etc/host.conf",   "/etc/services", "/dev/urandom"};
  if (landlock_abi() == 0)
    return 0;
  struct ruleset attributes = {.handled_fs = ALL_FILE_RIGHTS};
  _cleanup_close_ int ruleset =
      (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
  if (ruleset < 0)
    return -errno;
  for (size_t i = 0; i < ARRAY_SIZE(files); i++)
    allow_reading(ruleset, files[i]);
  return syscall(SYS_landlock_restrict_self, ruleset, 0) < 0 ? -errno : 0;
}

/* A workload can make us keep some bytes for each connection. Who overdoes it loses the relay. The
 * memory of a sanitized program cannot be counted like that. */
static void limit_memory(void) {
#ifndef SANITIZED
  struct rlimit memory;
  if (getrlimit(RLIMIT_DATA, &memory) < 0 || memory.rlim_max <= MEMORY_LIMIT)
    return;
  memory.rlim_cur = memory.rlim_max = MEMORY_LIMIT;
  (void)setrlimit(RLIMIT_DATA, &memory);
#endif
}

int relay_confine(void) {
  struct rlimit none = {0, 0};
  int result = setrlimit(RLIMIT_FSIZE, &none) < 0 ? -errno : confine_forbid_core_files();
  limit_memory();
  prctl(PR_SET_DUMPABLE, 0);
  if (result == 0)
    result = caps_drop_all();
  if (result == -EPERM)
    result = 0; /* there was none to drop, and no right to lock what is not there */
  if (result == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    result = -errno;
  if (result == 0)
    result = restrict_files();
  return result < 0 ? result : restrict_calls();
}
