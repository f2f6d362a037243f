/* The generated filters, run by an evaluator: both architectures, all variants. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "bpf.h"
#include "core/cleanup.h"
#include "engine/seccomp.h"
#include "engine/syscalls.h"
#include "engine/traps.h"
#include "filters-aarch64.h"
#include "filters-x86_64.h"

#define ALLOW         SECCOMP_RET_ALLOW
#define REFUSE(errno) (SECCOMP_RET_ERRNO | (errno))
#define GARBAGE       0xdeadbeef00000000ULL /* what a 64-bit caller may leave above an int */
#define X32           0x40000000

/* A way into the kernel, and the filters that have to guard it. */
struct entry {
  const char *name;
  uint32_t token, audit_arch;
  const struct sock_fprog (*filters)[2][2];
  const struct trap *traps;
  size_t trap_count;
};

#define TRAPS(filters) filters##_traps, ARRAY_SIZE(filters##_traps)

static const struct entry entries[] = {
    {"x86_64", SCMP_ARCH_X86_64, AUDIT_ARCH_X86_64, filters_x86_64, TRAPS(filters_x86_64)},
    {"i386", SCMP_ARCH_X86, AUDIT_ARCH_I386, filters_x86_64, TRAPS(filters_x86_64)},
    {"aarch64", SCMP_ARCH_AARCH64, AUDIT_ARCH_AARCH64, filters_aarch64, TRAPS(filters_aarch64)},
    {"arm", SCMP_ARCH_ARM, AUDIT_ARCH_ARM, filters_aarch64, TRAPS(filters_aarch64)},
};

/* Which variants a row is about. */
enum variants { ALL, PLAIN, DEBUG, NO_DEBUG, CONTAINERS, NO_CONTAINERS };

static bool concerns(enum variants variants, bool debug, bool containers) {
  switch (variants) {
  case PLAIN:
    return !debug && !containers;
  case DEBUG:
    return debug;
  case NO_DEBUG:
    return !debug;
  case CONTAINERS:
    return containers;
  case NO_CONTAINERS:
    return !containers;
  case ALL:
    break;
  }
  return true;
}

static int argument_loads;

static uint32_t answer(const struct entry *entry, bool debug, bool containers, int number,
                       const uint64_t *arguments) {
  struct seccomp_data data = {.nr = number, .arch = entry->audit_arch};
  for (size_t i = 0; arguments && i < ARRAY_SIZE(data.args); i++)
    data.args[i] = arguments[i];
  return bpf_run(&entry->filters[0][debug][containers], &data, &argument_loads);
}

/* By the numbers: names of calls that libseccomp multiplexes on i386 have none of their own. */
static int number_of(const struct entry *entry, const char *name) {
  for (size_t i = 0; i < ARRAY_SIZE(syscall_rows); i++) {
    const struct syscall_row *row = &syscall_rows[i];
    bool here = row->number >= SYSCALL_FIRST_COMMON || entry->token == SCMP_ARCH_X86_64;
    if (row->number != SYSCALL_BY_NAME && here && strcmp(row->name, name) == 0)
      return row->number;
  }
  for (int number = 0; number < 0xf0010; number = number == 1023 ? 0xf0000 : number + 1) {
    _cleanup_free_ char *known = seccomp_syscall_resolve_num_arch(entry->token, number);
    if (known && strcmp(known, name) == 0)
      return number;
  }
  return -1;
}

struct expectation {
  enum variants variants;
  uint32_t answer;
  const char *name;
  uint64_t arguments[6];
};

static void assert_answer(const struct entry *entry, const struct expectation *row, int number) {
  for (int i = 0; i < 4; i++) {
    bool debug = i & 2, containers = i & 1;
    if (!concerns(row->variants, debug, containers))
      continue;
    uint32_t got = answer(entry, debug, containers, number, row->arguments);
    if (got != row->answer)
      fail_msg("%s %s(%#llx, %#llx, %#llx) debug=%d containers=%d: %#x, not %#x", entry->name,
               row->name, (unsigned long long)row->arguments[0],
               (unsigned long long)row->arguments[1], (unsigned long long)row->arguments[2], debug,
               containers, got, row->answer);
  }
}

static const struct expectation expectations[] = {
    {ALL, ALLOW, "read", {0}},
    {ALL, ALLOW, "futex_wake", {0}},
    {ALL, ALLOW, "mseal", {0}},
    {ALL, ALLOW, "openat2", {0}},
    {ALL, ALLOW, "landlock_restrict_self", {0}},
    {ALL, ALLOW, "sendmsg", {0}},

    /* Core files stay off, and asking is fine; half a pointer is not NULL. */
    {ALL, ALLOW, "setrlimit", {RLIMIT_NOFILE, 1}},
    {ALL, REFUSE(0), "setrlimit", {GARBAGE | RLIMIT_CORE, 1}},
    {ALL, ALLOW, "prlimit64", {0, RLIMIT_NOFILE, 1}},
    {ALL, ALLOW, "prlimit64", {0, RLIMIT_CORE, 0, 1}},
    {ALL, ALLOW, "prlimit64", {1, RLIMIT_NOFILE, 0, 1}},
    {ALL, REFUSE(EPERM), "prlimit64", {1, RLIMIT_NOFILE, 1}},
    {ALL, REFUSE(EPERM), "prlimit64", {1, RLIMIT_NOFILE, 1ULL << 32}},
    {ALL, REFUSE(0), "prlimit64", {0, GARBAGE | RLIMIT_CORE, 1}},
    {ALL, REFUSE(0), "prlimit64", {0, RLIMIT_CORE, 1ULL << 32}},

    {DEBUG, ALLOW, "ptrace", {0}},
    {NO_DEBUG, REFUSE(EPERM), "ptrace", {0}},
    {NO_DEBUG, REFUSE(EPERM), "process_vm_writev", {0}},
    {DEBUG, ALLOW, "pidfd_getfd", {0}},
    {NO_DEBUG, REFUSE(EPERM), "pidfd_getfd", {0}},

    {NO_CONTAINERS, REFUSE(EPERM), "mount", {0}},
    {CONTAINERS, ALLOW, "mount", {0}},
    {NO_CONTAINERS, REFUSE(EPERM), "umount2", {0}},
    {NO_CONTAINERS, REFUSE(EPERM), "pivot_root", {0}},
    {NO_CONTAINERS, REFUSE(EPERM), "chroot", {0}},
    {NO_CONTAINERS, REFUSE(EPERM), "open_tree", {0}},
    {NO_CONTAINERS, REFUSE(EPERM), "open_tree_attr", {0}},
    {NO_CONTAINERS, REFUSE(EPERM), "move_mount", {0}},
    {NO_CONTAINERS, REFUSE(EPERM), "fsopen", {0}},
    {NO_CONTAINERS, REFUSE(EPERM), "fsconfig", {0}},
    {NO_CONTAINERS, REFUSE(EPERM), "fsmount", {0}},
    {NO_CONTAINERS, REFUSE(EPERM), "fspick", {0}},
    {NO_CONTAINERS, REFUSE(EPERM), "mount_setattr", {0}},
    {NO_CONTAINERS, REFUSE(EPERM), "unshare", {0}},
    {NO_CONTAINERS, REFUSE(EPERM), "setns", {0}},
    {CONTAINERS, ALLOW, "unshare", {CLONE_NEWUSER}},

    {ALL, REFUSE(EPERM), "name_to_handle_at", {0}},
    {ALL, REFUSE(EPERM), "open_by_handle_at", {0}},
    {ALL, REFUSE(EPERM), "bpf", {0}},
    {ALL, REFUSE(EPERM), "perf_event_open", {0}},
    {ALL, REFUSE(EPERM), "kexec_load", {0}},
    {ALL, REFUSE(EPERM), "finit_module", {0}},
    {ALL, REFUSE(EPERM), "quotactl_fd", {0}},
    {ALL, REFUSE(EPERM), "clock_settime", {0}},
    {ALL, REFUSE(EPERM), "clock_settime64", {0}},
    {ALL, REFUSE(EPERM), "adjtimex", {0}},
    {ALL, REFUSE(EPERM), "reboot", {0}},
    {ALL, REFUSE(EPERM), "iopl", {0}},
    {ALL, REFUSE(EPERM), "modify_ldt", {0}},
    {ALL, REFUSE(ENOSYS), "keyctl", {0}},
    {ALL, REFUSE(ENOSYS), "clone3", {0}},
    {ALL, REFUSE(ENOSYS), "io_uring_setup", {0}},
    {ALL, REFUSE(ENOSYS), "userfaultfd", {0}},
    {ALL, REFUSE(ENOSYS), "statmount", {0}},
    {ALL, REFUSE(ENOSYS), "listns", {0}},
    {ALL, REFUSE(ENOSYS), "socketcall", {1}},
    {ALL, REFUSE(ENOSYS), "uselib", {0}},

    {ALL, ALLOW, "clone", {CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_THREAD | 17}},
    {ALL, ALLOW, "clone", {GARBAGE | CLONE_VFORK | CLONE_PIDFD}},
    {ALL, ALLOW, "clone", {CLONE_NEWTIME}}, /* part of the exit signal */
    {NO_CONTAINERS, REFUSE(EPERM), "clone", {CLONE_NEWUSER}},
    {NO_CONTAINERS, REFUSE(EPERM), "clone", {GARBAGE | CLONE_NEWNS | 17}},
    {NO_CONTAINERS, REFUSE(EPERM), "clone", {CLONE_NEWPID | CLONE_VM}},
    {NO_CONTAINERS, REFUSE(EPERM), "clone", {CLONE_NEWNET}},
    {NO_CONTAINERS, REFUSE(EPERM), "clone", {CLONE_NEWIPC}},
    {NO_CONTAINERS, REFUSE(EPERM), "clone", {CLONE_NEWUTS}},
    {NO_CONTAINERS, REFUSE(EPERM), "clone", {CLONE_NEWCGROUP}},
    {CONTAINERS, ALLOW, "clone", {CLONE_NEWUSER | CLONE_NEWNS}},

    {ALL, ALLOW, "socket", {AF_UNIX, SOCK_SEQPACKET, 0}},
    {ALL, ALLOW, "socket", {GARBAGE | AF_UNIX, SOCK_STREAM, 0}},
    {ALL, ALLOW, "socket", {AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0}},
    {ALL, ALLOW, "socket", {AF_INET6, SOCK_DGRAM, IPPROTO_UDP}},
    {ALL, ALLOW, "socket", {AF_INET, SOCK_DGRAM, IPPROTO_ICMP}},
    {ALL, REFUSE(EPERM), "socket", {AF_INET, SOCK_RAW, IPPROTO_ICMP}},
    {ALL, REFUSE(EPERM), "socket", {AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW}},
    {ALL, REFUSE(EPERM), "socket", {AF_INET, SOCK_PACKET, 0}},
    {ALL, REFUSE(EPERM), "socket", {GARBAGE | AF_INET, GARBAGE | SOCK_RAW, 0}},
    {ALL, REFUSE(EPROTONOSUPPORT), "socket", {AF_INET, SOCK_STREAM, IPPROTO_SCTP}},
    {ALL, ALLOW, "socket", {AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE}},
    {ALL, REFUSE(EAFNOSUPPORT), "socket", {AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER}},
    {ALL, REFUSE(EAFNOSUPPORT), "socket", {AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT}},
    {ALL, REFUSE(EAFNOSUPPORT), "socket", {AF_VSOCK, SOCK_STREAM, 0}},
    {ALL, REFUSE(EAFNOSUPPORT), "socket", {GARBAGE | AF_VSOCK, SOCK_STREAM, 0}},
    {ALL, REFUSE(EAFNOSUPPORT), "socket", {AF_PACKET, SOCK_RAW, 0}},
    {ALL, REFUSE(EAFNOSUPPORT), "socket", {AF_ALG, SOCK_SEQPACKET, 0}},
    {ALL, REFUSE(EAFNOSUPPORT), "socket", {AF_UNSPEC, SOCK_STREAM, 0}},
    {ALL, ALLOW, "socketpair", {AF_UNIX, SOCK_STREAM, 0}},
    {ALL, REFUSE(EAFNOSUPPORT), "socketpair", {AF_TIPC, SOCK_STREAM, 0}},

    {ALL, ALLOW, "ioctl", {0, TCGETS}},
    {ALL, ALLOW, "ioctl", {0, TIOCSCTTY}},
    {ALL, REFUSE(EPERM), "ioctl", {0, TIOCSTI}},
    {ALL, REFUSE(EPERM), "ioctl", {0, GARBAGE | TIOCSTI}},
    {ALL, REFUSE(EPERM), "ioctl", {GARBAGE, 1ULL << 32 | TIOCLINUX}},
    {ALL, REFUSE(EPERM), "ioctl", {0, TIOCLINUX}},
    {ALL, REFUSE(EPERM), "ioctl", {0, TIOCSETD}},
    {ALL, REFUSE(EPERM), "ioctl", {0, TIOCCONS}},
    {ALL, REFUSE(ENOTTY), "ioctl", {0, 0x4b49}}, /* KDSKBSENT */
    {ALL, REFUSE(ENOTTY), "ioctl", {0, GARBAGE | 0x5606}},
    {ALL, ALLOW, "ioctl", {0, 0x80045600}}, /* the same letter, but another device's request */

    {ALL, ALLOW, "prctl", {PR_SET_NAME}},
    {ALL, ALLOW, "prctl", {PR_SET_SECCOMP}},
    {ALL, REFUSE(EPERM), "prctl", {GARBAGE | PR_SET_MM}},
    {ALL, ALLOW, "personality", {PER_LINUX}},
    {ALL, ALLOW, "personality", {PER_LINUX32}},
    {ALL, ALLOW, "personality", {0xffffffff}},
    {ALL, ALLOW, "personality", {UINT64_MAX}},
    {DEBUG, ALLOW, "personality", {ADDR_NO_RANDOMIZE}},
    {NO_DEBUG, REFUSE(EPERM), "personality", {ADDR_NO_RANDOMIZE}},
    {ALL, REFUSE(EPERM), "personality", {READ_IMPLIES_EXEC}},
    {ALL, REFUSE(EPERM), "personality", {GARBAGE | READ_IMPLIES_EXEC | ADDR_NO_RANDOMIZE}},

    {ALL, ALLOW, "seccomp", {SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC}},
    {ALL, ALLOW, "seccomp", {SECCOMP_GET_NOTIF_SIZES, 0}},
    {ALL,
     REFUSE(EPERM),
     "seccomp",
     {SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_LOG}},

    {ALL, ALLOW, "mknod", {0, S_IFIFO | 0644}},
    {ALL, ALLOW, "mknod", {0, 0644}},
    {NO_CONTAINERS, REFUSE(EPERM), "mknod", {0, S_IFCHR | 0600}},
    {NO_CONTAINERS, REFUSE(EPERM), "mknod", {0, S_IFREG | 04755}},
    {ALL, ALLOW, "mknodat", {0, 0, S_IFSOCK | 0600}},
    {NO_CONTAINERS, REFUSE(EPERM), "mknodat", {0, 0, GARBAGE | S_IFBLK | 0600}},
    {CONTAINERS, ALLOW, "mknodat", {0, 0, S_IFCHR}},
    {ALL, ALLOW, "chmod", {0, 01777}},
    {NO_CONTAINERS, REFUSE(EPERM), "chmod", {0, 04755}},
    {NO_CONTAINERS, REFUSE(EPERM), "fchmod", {0, GARBAGE | 02755}},
    {ALL, ALLOW, "fchmod", {04755, 0755}},
    {NO_CONTAINERS, REFUSE(EPERM), "fchmodat", {0, 0, 06755}},
    {NO_CONTAINERS, REFUSE(EPERM), "fchmodat2", {0, 0, 04755}},
    {ALL, ALLOW, "fchmodat2", {0, 0, 0755}},
    {CONTAINERS, ALLOW, "fchmodat", {0, 0, 04755}},
};

static void test_answers(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_SIZE(expectations); i++) {
    size_t tried = 0;
    for (size_t j = 0; j < ARRAY_SIZE(entries); j++) {
      int number = number_of(&entries[j], expectations[i].name);
      if (number < 0)
        continue; /* arm64 has no chmod, x86-64 no socketcall */
      assert_answer(&entries[j], &expectations[i], number);
      tried++;
    }
    if (!tried)
      fail_msg("no architecture has %s", expectations[i].name);
  }
}

/* Each row of the table has its answer at its number in every program. */
static void test_every_row_is_in_the_programs(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
    for (size_t j = 0; j < ARRAY_SIZE(syscall_rows); j++) {
      const struct syscall_row *row = &syscall_rows[j];
      int number = number_of(&entries[i], row->name);
      if (number < 0 || row->class == SYSCALL_ARGUMENTS)
        continue;
      static const uint32_t otherwise[] = {[SYSCALL_ALLOW] = ALLOW,
                                           [SYSCALL_DEBUG] = REFUSE(EPERM),
                                           [SYSCALL_CONTAINERS] = REFUSE(EPERM),
                                           [SYSCALL_DENY] = REFUSE(EPERM),
                                           [SYSCALL_ABSENT] = REFUSE(ENOSYS)};
      struct expectation plain = {PLAIN, otherwise[row->class], row->name, {0}};
      assert_answer(&entries[i], &plain, number);
      struct expectation debug = {DEBUG, ALLOW, row->name, {0}};
      if (row->class == SYSCALL_DEBUG)
        assert_answer(&entries[i], &debug, number);
      struct expectation containers = {CONTAINERS, ALLOW, row->name, {0}};
      if (row->class == SYSCALL_CONTAINERS)
        assert_answer(&entries[i], &containers, number);
    }
  }
}

/* The kernel caches answers that need no arguments: what is plainly allowed must not look. */
static void test_hot_calls_need_no_arguments(void **state) {
  (void)state;
  static const char *const hot[] = {"read",       "write", "futex",  "mmap",       "munmap",
                                    "epoll_wait", "close", "openat", "newfstatat", "sendmsg"};
  for (size_t i = 0; i < ARRAY_SIZE(hot); i++) {
    for (size_t j = 0; j < ARRAY_SIZE(entries); j++) {
      int number = number_of(&entries[j], hot[i]);
      if (number < 0)
        continue;
      assert_int_equal(answer(&entries[j], false, false, number, NULL), ALLOW);
      assert_int_equal(argument_loads, 0);
    }
  }
}

static bool is_known(const struct entry *entry, int number) {
  _cleanup_free_ char *name = seccomp_syscall_resolve_num_arch(entry->token, number);
  bool known = name != NULL;
  for (size_t i = 0; i < ARRAY_SIZE(syscall_rows) && !known; i++) {
    bool here = number >= SYSCALL_FIRST_COMMON || entry->token == SCMP_ARCH_X86_64;
    known = here && syscall_rows[i].number == number;
  }
  return known;
}

static void assert_absent(const struct entry *entry, int number) {
  struct expectation absent = {ALL, REFUSE(ENOSYS), "an unknown number", {(uint32_t)number}};
  assert_answer(entry, &absent, number);
}

static void test_unknown_numbers_do_not_exist(void **state) {
  (void)state;
  static const int far[] = {100000, 0xeffff, 0xf0000, 0xf0010, 0x3fffffff, INT32_MIN, -1};
  for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
    for (int number = 0; number < 2048; number++)
      if (!is_known(&entries[i], number))
        assert_absent(&entries[i], number);
    for (size_t j = 0; j < ARRAY_SIZE(far); j++)
      assert_absent(&entries[i], far[j]);
  }
}

static void test_x32_does_not_exist(void **state) {
  (void)state;
  for (int number = 0; number < 600; number++)
    assert_absent(&entries[0], number | X32);
}

static void test_the_architecture_comes_first(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
    struct entry strange = entries[i];
    strange.audit_arch = AUDIT_ARCH_PPC64LE;
    assert_int_equal(answer(&strange, true, true, 0, NULL), SECCOMP_RET_KILL_PROCESS);
  }
  /* 101 is ptrace on x86-64 and ioperm on i386. */
  assert_int_equal(answer(&entries[0], true, false, 101, NULL), ALLOW);
  assert_int_equal(answer(&entries[1], true, false, 101, NULL), REFUSE(EPERM));
}

static void test_the_table_is_sorted_and_has_reasons(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_SIZE(syscall_rows); i++) {
    const struct syscall_row *row = &syscall_rows[i];
    if (i > 0 && strcmp(syscall_rows[i - 1].name, row->name) >= 0)
      fail_msg("%s does not come before %s", syscall_rows[i - 1].name, row->name);
    if (strlen(row->reason) < 8)
      fail_msg("%s has no reason", row->name);
    for (size_t j = 0; j < i; j++)
      if (row->number != SYSCALL_BY_NAME && syscall_rows[j].number == row->number)
        fail_msg("%s and %s have the same number", syscall_rows[j].name, row->name);
  }
}

static bool is_trap(const struct entry *entry, int number) {
  for (size_t i = 0; i < entry->trap_count; i++) {
    if (entry->traps[i].number == number && entry->traps[i].architecture == entry->audit_arch)
      return true;
  }
  return false;
}

/* The filter and the decoder are made from one table: what waits can be decoded, and nothing else
 * is different from the filter without a listener. */
static void test_only_decoded_calls_wait(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_SIZE(entries) * 4; i++) {
    const struct entry *entry = &entries[i / 4];
    bool debug = i & 2, containers = i & 1;
    int waiting = 0;
    for (int number = 0; number < 1024; number++) {
      static const uint64_t names_a_socket[6] = {[4] = 1}; /* sendto */
      struct seccomp_data data = {.nr = number, .arch = entry->audit_arch, .args = {[4] = 1}};
      uint32_t plain = answer(entry, debug, containers, number, names_a_socket);
      uint32_t got = bpf_run(&entry->filters[1][debug][containers], &data, &argument_loads);
      bool waits = got == SECCOMP_RET_USER_NOTIF;
      waiting += waits;
      if (waits != is_trap(entry, number) || (waits ? plain != ALLOW : got != plain))
        fail_msg("%s %d: %#x with a listener, %#x without", entry->name, number, got, plain);
    }
    assert_true(waiting > 30);
  }
}

/* In static mode one call waits, on both ways into the kernel, and all others are as without. */
static void test_connect_alone_waits(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_SIZE(entries) * 8; i++) {
    const struct entry *entry = &entries[i / 8];
    bool debug = i & 2, containers = i & 1;
    enum seccomp_waits waits = i & 4 ? WAIT_CONNECT_DATAGRAMS : WAIT_CONNECT;
    int connect = number_of(entry, "connect");
    for (int number = 0; number < 1024; number++) {
      struct seccomp_data data = {.nr = number, .arch = entry->audit_arch};
      uint32_t expected = number == connect ? SECCOMP_RET_USER_NOTIF
                                            : answer(entry, debug, containers, number, NULL);
      assert_int_equal(bpf_run(&entry->filters[waits][debug][containers], &data, &argument_loads),
                       expected);
    }
  }
}

/* With it, UNIX sockets that send without it are refused, unless they are wanted. */
static void test_unix_datagrams(void **state) {
  (void)state;
  static const struct {
    uint64_t family, type;
    bool refused;
  } rows[] = {
      {AF_UNIX, SOCK_STREAM, false},
      {AF_UNIX, SOCK_SEQPACKET, false},
      {AF_UNIX, SOCK_DGRAM, true},
      {AF_UNIX, SOCK_RAW, true},
      {AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, true},
      {AF_UNIX | 1ULL << 32, SOCK_DGRAM | 1ULL << 32, true},
  };
  static const char *const calls[] = {"socket", "socketpair"};
  for (size_t i = 0; i < ARRAY_SIZE(entries) * ARRAY_SIZE(rows) * ARRAY_SIZE(calls); i++) {
    const struct entry *entry = &entries[i % ARRAY_SIZE(entries)];
    size_t row = i / ARRAY_SIZE(entries) % ARRAY_SIZE(rows);
    const char *call = calls[i / ARRAY_SIZE(entries) / ARRAY_SIZE(rows)];
    struct seccomp_data data = {.nr = number_of(entry, call),
                                .arch = entry->audit_arch,
                                .args = {rows[row].family, rows[row].type}};
    for (int waits = 0; waits < WAIT_COUNT; waits++) {
      bool refused = waits == WAIT_CONNECT && rows[row].refused;
      assert_int_equal(bpf_run(&entry->filters[waits][true][false], &data, &argument_loads),
                       refused ? REFUSE(EACCES) : ALLOW);
    }
  }
}

static uint32_t with_listener(const struct entry *entry, const char *name,
                              const uint64_t *arguments) {
  struct seccomp_data data = {.nr = number_of(entry, name), .arch = entry->audit_arch};
  memcpy(data.args, arguments, sizeof data.args);
  return bpf_run(&entry->filters[1][false][false], &data, &argument_loads);
}

/* Waiting comes after what no answer could allow. */
static void test_refused_calls_do_not_wait(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
    const struct entry *entry = &entries[i];
    const uint64_t mode[] = {0, 0, S_ISUID | 0755, 0, 0, 0}, send[] = {0, 1, 1, 0, 0, 0};
    const uint64_t high[] = {0, 1, 1, 0, 1ULL << 32, 0}, device[] = {0, 0, S_IFCHR, 0, 0, 0};
    assert_int_equal(with_listener(entry, "fchmodat", mode), REFUSE(EPERM));
    assert_int_equal(with_listener(entry, "mknodat", device), REFUSE(EPERM));
    assert_int_equal(with_listener(entry, "sendto", send), ALLOW);
    assert_int_equal(with_listener(entry, "sendto", high), SECCOMP_RET_USER_NOTIF);
  }
}

/* fstat(3) is stat of an empty path: it needs nobody. What could be about a path does wait. */
static void test_a_descriptor_alone_does_not_wait(void **state) {
  (void)state;
  static const struct {
    int descriptor;
    uint64_t flags;
    bool waits;
  } rows[] = {
      {3, AT_EMPTY_PATH, false},  {3, 0, true},
      {-1, AT_EMPTY_PATH, false}, {3, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, true},
      {AT_FDCWD, 0, true},        {AT_FDCWD, AT_EMPTY_PATH, true},
  };
  for (size_t i = 0; i < ARRAY_SIZE(entries) * ARRAY_SIZE(rows); i++) {
    const struct entry *entry = &entries[i % ARRAY_SIZE(entries)];
    size_t row = i / ARRAY_SIZE(entries);
    const char *stat_at = number_of(entry, "newfstatat") >= 0 ? "newfstatat" : "fstatat64";
    uint64_t folder = (uint64_t)(int64_t)rows[row].descriptor;
    const uint64_t old[6] = {folder, 1, 1, rows[row].flags}, new[6] = {folder, 1, rows[row].flags};
    uint32_t expected = rows[row].waits ? SECCOMP_RET_USER_NOTIF : ALLOW;
    assert_int_equal(with_listener(entry, stat_at, old), expected);
    assert_int_equal(with_listener(entry, "statx", new), expected);
  }
}

/* What the product installs is what was tested here. */
static void test_the_product_has_these_programs(void **state) {
  (void)state;
#if defined(__x86_64__)
  const struct sock_fprog(*filters)[2][2] = filters_x86_64;
#elif defined(__aarch64__)
  const struct sock_fprog(*filters)[2][2] = filters_aarch64;
#else
  skip();
  const struct sock_fprog(*filters)[2][2] = NULL;
#endif
  for (int k = 0; k < 4 * WAIT_COUNT; k++) {
    const struct sock_fprog *tested = &filters[k >> 2][k >> 1 & 1][k & 1];
    const struct sock_fprog *installed = seccomp_program((struct seccomp_variant){
        .waits = (enum seccomp_waits)(k >> 2), .debug = k & 2, .containers = k & 1});
    assert_int_equal(installed->len, tested->len);
    assert_memory_equal(installed->filter, tested->filter, tested->len * sizeof *tested->filter);
  }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_answers),
    cmocka_unit_test(test_every_row_is_in_the_programs),
    cmocka_unit_test(test_hot_calls_need_no_arguments),
    cmocka_unit_test(test_unknown_numbers_do_not_exist),
    cmocka_unit_test(test_x32_does_not_exist),
    cmocka_unit_test(test_the_architecture_comes_first),
    cmocka_unit_test(test_the_table_is_sorted_and_has_reasons),
    cmocka_unit_test(test_only_decoded_calls_wait),
    cmocka_unit_test(test_connect_alone_waits),
    cmocka_unit_test(test_unix_datagrams),
    cmocka_unit_test(test_refused_calls_do_not_wait),
    cmocka_unit_test(test_a_descriptor_alone_does_not_wait),
    cmocka_unit_test(test_the_product_has_these_programs),
};
UNIT_MAIN(tests)
