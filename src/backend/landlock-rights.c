/* What each Landlock ABI can restrict, and the filter for what none can. Pure. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/socket.h>

#include "backend/landlock.h"
#include "core/cleanup.h"

/* What Debian 12's headers (6.1, ABI 2) do not have yet. */
#define RIGHT_TRUNCATE      (1ULL << 14) /* ABI 3 */
#define RIGHT_IOCTL_DEVICE  (1ULL << 15) /* ABI 5 */
#define NETWORK_TCP         (3ULL)       /* ABI 4: bind and connect */
#define SCOPE_ABSTRACT_UNIX (1ULL << 0)  /* ABI 6 */
#define SCOPE_SIGNAL        (1ULL << 1)  /* ABI 6 */
#define LOG_SUBDOMAINS_OFF  (1U << 2)    /* ABI 7 */

#define READ_RIGHTS                                                                                \
  (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define ABI_1  (LANDLOCK_ACCESS_FS_REFER - 1) /* bits 0 to 12 */
#define ABI_2  (ABI_1 | LANDLOCK_ACCESS_FS_REFER)
#define ABI_3  (ABI_2 | RIGHT_TRUNCATE)
#define ABI_5  (ABI_3 | RIGHT_IOCTL_DEVICE)
#define SCOPES (SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL)

static const struct landlock_rights abis[] = {
    [0] = {0},
    [1] = {ABI_1},
    [2] = {ABI_2},
    [3] = {ABI_3},
    [4] = {ABI_3, NETWORK_TCP},
    [5] = {ABI_5, NETWORK_TCP},
    [6] = {ABI_5, NETWORK_TCP, SCOPES},
    [7] = {ABI_5, NETWORK_TCP, SCOPES, LOG_SUBDOMAINS_OFF},
};

struct landlock_rights landlock_rights_of(int abi) {
  size_t newest = ARRAY_SIZE(abis) - 1;
  return abis[abi < 0 ? 0 : (size_t)abi > newest ? newest : (size_t)abi];
}

uint64_t landlock_features_of(int abi) {
  uint64_t features = FEATURE(READ_ALL) | FEATURE(HIDE) | FEATURE(NETWORK_NONE) |
                      FEATURE(NETWORK_FULL) | FEATURE(LIMIT_MEMORY) | FEATURE(LIMIT_CPU) |
                      FEATURE(LIMIT_PROCESSES) | FEATURE(LIMIT_IO) | FEATURE(LIMIT_FILES) |
                      FEATURE(LIMIT_TIME) | FEATURE(NO_DEBUG) | FEATURE(SYSCALL_FILTER) |
                      FEATURE(PRIVATE_TMP) | FEATURE(SIGNAL_ISOLATION);
  if (abi < 1)
    return 0;
  return abi < 6 ? features & ~FEATURE(SIGNAL_ISOLATION) : features;
}

const char *landlock_remark_of(int abi) {
  static const char *const remarks[] = {
      [1] = "files cannot be moved between folders; truncation is judged by system call",
      [2] = "truncation is judged by system call; ioctls of devices are not restricted",
      [3] = "ioctls of devices are not restricted",
      [4] = "ioctls of devices are not restricted",
  };
  return abi >= 1 && (size_t)abi < ARRAY_SIZE(remarks) ? remarks[abi] : NULL;
}

uint64_t landlock_grant_rights(enum landlock_grant grant) {
  static const uint64_t grants[] = {
      [GRANT_READ] = READ_RIGHTS,
      [GRANT_LIST] = LANDLOCK_ACCESS_FS_READ_DIR,
      /* No device nodes: nothing of that kind may be left behind. */
      [GRANT_WRITE] = ABI_5 & ~(uint64_t)(LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                          LANDLOCK_ACCESS_FS_MAKE_BLOCK | RIGHT_IOCTL_DEVICE),
      [GRANT_DEVICE] = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                       LANDLOCK_ACCESS_FS_READ_DIR | RIGHT_TRUNCATE | RIGHT_IOCTL_DEVICE,
  };
  return grants[grant];
}

/* ---- the filter ---- */

/* Numbers by architecture; -1: it has no such call. The other filter lets no others in. */
static const struct numbers {
  uint32_t architecture;
  int socket, socketpair, prlimit64, truncate, truncate64, open, openat, openat2;
} numbers[] = {
#if defined(__x86_64__)
    {AUDIT_ARCH_X86_64, 41, 53, 302, 76, -1, 2, 257, 437},
    {AUDIT_ARCH_I386, 359, 360, 340, 92, 193, 5, 295, 437},
#elif defined(__aarch64__)
    {AUDIT_ARCH_AARCH64, 198, 199, 261, 45, -1, -1, 56, 437},
    {AUDIT_ARCH_ARM, 281, 288, 369, 92, 193, 5, 322, 437},
#endif
};

struct program {
  struct sock_filter *filter;
  size_t length;
};

static void emit(struct program *program, uint16_t code, uint32_t value, uint8_t yes, uint8_t no) {
  program->filter[program->length++] = (struct sock_filter){code, yes, no, value};
}

#define LOAD   (BPF_LD | BPF_W | BPF_ABS)
#define EQUALS (BPF_JMP | BPF_JEQ | BPF_K)
#define RETURN (BPF_RET | BPF_K)
#define MASK   (BPF_ALU | BPF_AND | BPF_K)
#define REFUSE (SECCOMP_RET_ERRNO | EACCES)

static void emit_argument(struct program *program, unsigned index) {
  unsigned low = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 4;
  emit(program, LOAD, (uint32_t)offsetof(struct seccomp_data, args) + 8 * index + low, 0, 0);
}

/* For one call: skipped unless it is this number. Ends are filled in by finish. */
static size_t begin(struct program *program, int number) {
  emit(program, EQUALS, (uint32_t)number, 0, 0);
  return program->length - 1;
}

static void finish(struct program *program, size_t start) {
  program->filter[start].jf = (uint8_t)(program->length - start - 1);
}

/* UNIX sockets lead to the host's daemons, and no ABI restricts connecting to one by its path.
 * Route netlink, which the other filter allows alone of its family, only tells. */
static void emit_socket(struct program *program, int number, bool network) {
  size_t start = begin(program, number);
  emit_argument(program, 0);
  emit(program, EQUALS, AF_NETLINK, network ? 3 : 1, 0);
  if (network) {
    emit(program, EQUALS, AF_INET, 2, 0);
    emit(program, EQUALS, AF_INET6, 1, 0);
  }
  emit(program, RETURN, REFUSE, 0, 0);
  emit(program, LOAD, offsetof(struct seccomp_data, nr), 0, 0); /* on to the next */
  finish(program, start);
}

/* A datagram pair could be connected anew, to a daemon of the host; streams cannot. */
static void emit_socketpair(struct program *program, int number) {
  size_t start = begin(program, number);
  emit_argument(program, 1);
  emit(program, MASK, 0xf, 0, 0);
  emit(program, EQUALS, SOCK_STREAM, 2, 0);
  emit(program, EQUALS, SOCK_SEQPACKET, 1, 0);
  emit(program, RETURN, REFUSE, 0, 0);
  emit(program, LOAD, offsetof(struct seccomp_data, nr), 0, 0); /* on to the next */
  finish(program, start);
}

/* Limits of other processes: those outside are in reach, and which one is ours cannot be told. */
static void emit_prlimit(struct program *program, int number) {
  size_t start = begin(program, number);
  emit_argument(program, 0);
  emit(program, EQUALS, 0, 1, 0);
  emit(program, RETURN, SECCOMP_RET_ERRNO | EPERM, 0, 0);
  emit(program, LOAD, offsetof(struct seccomp_data, nr), 0, 0); /* on to the next */
  finish(program, start);
}

static void emit_answer(struct program *program, int number, uint32_t answer) {
  if (number < 0)
    return;
  size_t start = begin(program, number);
  emit(program, RETURN, answer, 0, 0);
  finish(program, start);
}

/* open(O_RDONLY | O_TRUNC) empties a file; with O_WRONLY the right to write is asked for. */
static void emit_open(struct program *program, int number, unsigned flags_index) {
  if (number < 0)
    return;
  size_t start = begin(program, number);
  emit_argument(program, flags_index);
  emit(program, MASK, O_ACCMODE | O_TRUNC, 0, 0);
  emit(program, EQUALS, O_TRUNC, 0, 1);
  emit(program, RETURN, REFUSE, 0, 0);
  emit(program, LOAD, offsetof(struct seccomp_data, nr), 0, 0); /* on to the next */
  finish(program, start);
}

static void emit_calls(struct program *program, const struct numbers *calls, bool network,
                       bool guard_truncation) {
  emit_socket(program, calls->socket, network);
  emit_socketpair(program, calls->socketpair);
  emit_prlimit(program, calls->prlimit64);
  if (!guard_truncation)
    return;
  emit_answer(program, calls->truncate, REFUSE);
  emit_answer(program, calls->truncate64, REFUSE);
  emit_open(program, calls->open, 1);
  emit_open(program, calls->openat, 2);
  emit_answer(program, calls->openat2, SECCOMP_RET_ERRNO | ENOSYS); /* its flags are in memory */
}

size_t landlock_filter(bool network, bool guard_truncation,
                       struct sock_filter ret_filter[LANDLOCK_FILTER_MAX]) {
  struct program program = {ret_filter, 0};
  for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
    emit(&program, LOAD, offsetof(struct seccomp_data, arch), 0, 0);
    size_t start = begin(&program, (int)numbers[i].architecture);
    emit(&program, LOAD, offsetof(struct seccomp_data, nr), 0, 0);
    emit_calls(&program, &numbers[i], network, guard_truncation);
    finish(&program, start);
  }
  return program.length;
}
