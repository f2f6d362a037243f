/* System calls that a workload has no business with: each is a way to kernel bugs or to the
 * machine itself. Arguments are harmless, so that the control may run as root on the host. */
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attempt.h"

#define REACH(name, ...)                                                                           \
  static int name(char **arguments) {                                                              \
    (void)arguments;                                                                               \
    return reached(syscall(__VA_ARGS__));                                                          \
  }

REACH(kexec, SYS_kexec_load, 0UL, 17UL, NULL, 0UL)
REACH(kexec_file, SYS_kexec_file_load, -1, -1, 0UL, NULL, 0xffUL)
REACH(init_module, SYS_init_module, NULL, 0UL, NULL)
REACH(finit_module, SYS_finit_module, -1, NULL, 0)
REACH(delete_module, SYS_delete_module, NULL, 0)
REACH(reboot_machine, SYS_reboot, 0, 0, 0, NULL)
REACH(swap_on, SYS_swapon, NULL, 0)
REACH(swap_off, SYS_swapoff, NULL)
REACH(accounting, SYS_acct, "/nonexistent/accounting")
REACH(hang_up, SYS_vhangup)
REACH(page_size_lookup, SYS_lookup_dcookie, 0UL, NULL, 0UL)
REACH(nfs_server, SYS_nfsservctl, 0, NULL, NULL)

#ifdef __x86_64__
REACH(io_level, SYS_iopl, 4)
REACH(io_ports, SYS_ioperm, 0x80UL, 1UL, 1)
#else
static int io_level(char **arguments) {
  (void)arguments;
  unsupported("not an x86 machine");
}
static int io_ports(char **arguments) {
  (void)arguments;
  unsupported("not an x86 machine");
}
#endif

static int quota(char **arguments) {
  long result =
      syscall(SYS_quotactl, 0x80000700 /* Q_GETQUOTA */ | 0x80000500, "/dev/null", 0, NULL);

  (void)arguments;
  return reached(result);
}

static int log_control(char **arguments) {
  (void)arguments;
  /* 8 sets the console's level, 99 is none of them. */
  return reached(syscall(SYS_syslog, 8, NULL, 99));
}

/* ---- keys ---- */

static int key_to_parent(char **arguments) {
  (void)arguments;
  return answer(syscall(SYS_keyctl, KEYCTL_SESSION_TO_PARENT));
}

static int search_key(char **arguments) {
  static const int rings[] = {KEY_SPEC_SESSION_KEYRING, KEY_SPEC_USER_KEYRING,
                              KEY_SPEC_USER_SESSION_KEYRING};
  char value[256] = "";
  int result = ENOKEY;

  for (int i = 0; i < 3; i++) {
    long key = syscall(SYS_keyctl, KEYCTL_SEARCH, rings[i], "user", arguments[0], 0);
    if (key < 0) {
      result = errno;
      continue;
    }
    if (syscall(SYS_keyctl, KEYCTL_READ, key, value, sizeof(value) - 1) < 0)
      return errno;
    detail("%s", value);
    return OPENED;
  }
  return result;
}

static int add_key(char **arguments) {
  return answer(syscall(SYS_add_key, "user", arguments[0], "x", 1UL, KEY_SPEC_PROCESS_KEYRING));
}

static int request_key(char **arguments) {
  long result = syscall(SYS_request_key, "user", arguments[0], NULL, KEY_SPEC_SESSION_KEYRING);

  return result < 0 ? errno : OPENED;
}

/* NAME VALUE COMMAND…: runs the command with a session keyring that holds a key. Not an attempt
 * but the ground for one. */
static int with_key(char **arguments) {
  if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0)
    return errno;
  if (syscall(SYS_add_key, "user", arguments[0], arguments[1], strlen(arguments[1]),
              KEY_SPEC_SESSION_KEYRING) < 0)
    return errno;
  execv(arguments[2], arguments + 2);
  return errno;
}

/* ---- programs and events in the kernel ---- */

static int bpf_map(char **arguments) {
  union bpf_attr request = {
      .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};

  (void)arguments;
  return answer(syscall(SYS_bpf, BPF_MAP_CREATE, &request, sizeof(request)));
}

static int bpf_program(char **arguments) {
  static const struct bpf_insn program[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = 0},
                                            {.code = BPF_JMP | BPF_EXIT}};
  union bpf_attr request = {.prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
                            .insns = (unsigned long)program,
                            .insn_cnt = 2,
                            .license = (unsigned long)"GPL"};

  (void)arguments;
  return answer(syscall(SYS_bpf, BPF_PROG_LOAD, &request, sizeof(request)));
}

static int perf_event(char **arguments) {
  struct perf_event_attr request = {.type = PERF_TYPE_SOFTWARE,
                                    .size = sizeof(request),
                                    .config = PERF_COUNT_SW_TASK_CLOCK,
                                    .exclude_kernel = 1,
                                    .exclude_hv = 1};

  (void)arguments;
  return answer(syscall(SYS_perf_event_open, &request, 0, -1, -1, 0));
}

static int fault_handler(char **arguments) {
  return answer(syscall(SYS_userfaultfd, (int)number(arguments[0])));
}

static int event_content(char **arguments) {
  (void)arguments;
  return answer(fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY));
}

static int listener(char **arguments) {
  struct sock_filter allow = {.code = BPF_RET | BPF_K, .k = SECCOMP_RET_ALLOW};
  struct sock_fprog program = {1, &allow};

  (void)arguments;
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return answer(
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
}

static int listener_in_child(char **arguments) {
  return in_child(listener, arguments);
}

/* ---- helpers of exploits ---- */

static int personality_flag(char **arguments) {
  return answer(personality((unsigned long)number(arguments[0])));
}

static int personality_in_child(char **arguments) {
  return in_child(personality_flag, arguments);
}

static int local_descriptors(char **arguments) {
#ifdef SYS_modify_ldt
  /* Code 1 writes; a size of 0 is wrong, after the call was let through. */
  (void)arguments;
  return reached(syscall(SYS_modify_ldt, 1, NULL, 0UL));
#else
  (void)arguments;
  unsupported("no modify_ldt here");
#endif
}

static int virtual_8086(char **arguments) {
#ifdef __x86_64__
  long result;

  (void)arguments;
  /* vm86 is 166 in the 32-bit table. */
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(166L), "b"(0L), "c"(0L) : "memory");
  errno = result < 0 ? (int)-result : 0;
  return reached(result < 0 ? -1 : 0);
#else
  (void)arguments;
  unsupported("not an x86 machine");
#endif
}

/* ---- privileges ---- */

static int effective_user(char **arguments) {
  detail("euid %d", geteuid());
  return geteuid() == (uid_t)number(arguments[0]) ? OPENED : EPERM;
}

static int capability(char **arguments) {
  char line[256];
  FILE *file = fopen("/proc/self/status", "re");
  size_t length = strlen(arguments[0]);
  int result = EPERM;

  if (!file)
    return errno;
  while (fgets(line, sizeof(line), file))
    if (strncmp(line, arguments[0], length) == 0 && strtoull(line + length + 1, NULL, 16) != 0) {
      detail("%s", line + length + 1);
      result = OPENED;
    }
  fclose(file);
  return result;
}

static int new_privileges(char **arguments) {
  (void)arguments;
  return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? EPERM : OPENED;
}

static int no_filter(char **arguments) {
  (void)arguments;
  /* 2 is a filter. In strict mode we would not live to say so. */
  return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2 ? EPERM : OPENED;
}

static int change_user(char **arguments) {
  return answer(setuid((uid_t)number(arguments[0])));
}

static int change_user_in_child(char **arguments) {
  return in_child(change_user, arguments);
}

static int change_groups(char **arguments) {
  gid_t group = (gid_t)number(arguments[0]);

  return answer(syscall(SYS_setgroups, 1, &group));
}

static int change_groups_in_child(char **arguments) {
  return in_child(change_groups, arguments);
}

const struct attempt surface_attempts[] = {
    {"E80", 0, "KEYCTL_SESSION_TO_PARENT", key_to_parent},
    {"E81", 1, "NAME: search and read a key", search_key},
    {"E81.add", 1, "NAME: add_key", add_key},
    {"E81.request", 1, "NAME: request_key", request_key},
    {"with-key", 3, "NAME VALUE COMMAND: run with a key in the session keyring", with_key},
    {"E82.map", 0, "BPF_MAP_CREATE", bpf_map},
    {"E82.prog", 0, "BPF_PROG_LOAD", bpf_program},
    {"E83", 0, "perf_event_open", perf_event},
    {"E84", 1, "FLAGS: userfaultfd", fault_handler},
    {"E85.kexec", 0, "kexec_load", kexec},
    {"E85.kexec_file", 0, "kexec_file_load", kexec_file},
    {"E85.init_module", 0, "init_module", init_module},
    {"E85.finit_module", 0, "finit_module", finit_module},
    {"E85.delete_module", 0, "delete_module", delete_module},
    {"E85.reboot", 0, "reboot with wrong magic", reboot_machine},
    {"E85.swapon", 0, "swapon of nothing", swap_on},
    {"E85.swapoff", 0, "swapoff of nothing", swap_off},
    {"E85.acct", 0, "acct", accounting},
    {"E85.quotactl", 0, "quotactl", quota},
    {"E85.iopl", 0, "iopl", io_level},
    {"E85.ioperm", 0, "ioperm", io_ports},
    {"E85.syslog", 0, "syslog", log_control},
    {"E85.vhangup", 0, "vhangup", hang_up},
    {"E85.dcookie", 0, "lookup_dcookie", page_size_lookup},
    {"E85.nfsservctl", 0, "nfsservctl", nfs_server},
    {"E85.fanotify", 0, "fanotify_init with content events", event_content},
    {"E85.listener", 0, "a second seccomp listener", listener_in_child},
    {"E86.euid", 1, "UID: is this our effective user", effective_user},
    {"E86.caps", 1, "FIELD: is this set of capabilities not empty", capability},
    {"E86.nnp", 0, "can gain privileges by exec", new_privileges},
    {"E86.filter", 0, "no system call filter", no_filter},
    {"E86.setuid", 1, "UID: setuid", change_user_in_child},
    {"E86.setgroups", 1, "GID: setgroups", change_groups_in_child},
    {"E87.personality", 1, "FLAGS", personality_in_child},
    {"E87.ldt", 0, "modify_ldt", local_descriptors},
    {"E87.vm86", 0, "vm86", virtual_8086},
    {NULL, 0, NULL, NULL},
};
