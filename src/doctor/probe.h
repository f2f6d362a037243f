/* What the probes share: the table's row type, the result they fill in, and a few helpers. Probes
 * run in a forked child whose memory is its own, except the finding, which is shared with the
 * runner; so they may change namespaces, limits and signal state freely, and must not print. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "doctor/doctor.h"

struct finding {
  enum doctor_state state;
  bool done; /* set by the runner's child after the probe returned */
  char found[256];
  char fix[512];
};

struct check {
  const char *id, *group, *title, *needed_for;
  const char *fix; /* used when the row is not ok and the probe said nothing better */
  bool required;   /* the native engine cannot run without it */
  void (*probe)(const struct check *check, struct finding *finding);
  const void *argument; /* the probe's own table row, if it has one */
};

/* The table, in the order of the report. */
extern const struct check doctor_checks[];
extern const size_t doctor_check_count;

/* Runs the probes, several at a time; findings[i] belongs to checks[i]. */
void probe_run_all(const struct check *checks, size_t count, struct finding *findings);

void finding_set(struct finding *finding, enum doctor_state state, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void finding_fix(struct finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The state that an errno of a tried kernel call means. Pure. */
enum doctor_state finding_state_of_errno(int errnum);

/* Fills in the finding for a kernel call that gave errnum (0: it worked). */
void finding_of_call(struct finding *finding, int errnum);

/* A number from a file of one number; fallback if it cannot be read. */
long probe_read_number(const char *path, long fallback);

/* True if somebody else's seccomp filter is already on us (we run in a container or sandbox). */
bool probe_is_filtered(void);

/* In a session of ours, by its variable and its host name. A hint only. */
bool probe_is_inside(void);

/* True if we have CAP_SYS_ADMIN where we are. */
bool probe_is_privileged(void);

/* Runs a step in a forked child and returns its result (0 or an errno; EINTR if it was killed). */
int probe_in_child(int (*step)(void *context), void *context);

/* Enters a new user namespace with identity maps, then the namespaces in flags. If there is no
 * user namespace to be had, says so in the finding and returns false. */
bool probe_enter_userns(struct finding *finding, int flags);

/* "sudo " for a plain user, "" for root: what a command in a fix starts with. */
const char *probe_sudo(void);

/* One per topic, each in probe-TOPIC.c. */
void probe_userns(const struct check *check, struct finding *finding);
void probe_namespace(const struct check *check, struct finding *finding);
void probe_namespace_limits(const struct check *check, struct finding *finding);
void probe_mount_call(const struct check *check, struct finding *finding);
void probe_mount_filesystem(const struct check *check, struct finding *finding);
void probe_overlay(const struct check *check, struct finding *finding);
void probe_fuse_mount(const struct check *check, struct finding *finding);
void probe_call(const struct check *check, struct finding *finding);
void probe_clone_into_cgroup(const struct check *check, struct finding *finding);
void probe_keyring(const struct check *check, struct finding *finding);
void probe_seccomp_filter(const struct check *check, struct finding *finding);
void probe_seccomp_notify(const struct check *check, struct finding *finding);
void probe_landlock(const struct check *check, struct finding *finding);
void probe_no_new_privs(const struct check *check, struct finding *finding);
void probe_ptrace(const struct check *check, struct finding *finding);
void probe_device(const struct check *check, struct finding *finding);
void probe_nftables(const struct check *check, struct finding *finding);
void probe_cgroup_layout(const struct check *check, struct finding *finding);
void probe_cgroup_delegation(const struct check *check, struct finding *finding);
void probe_enforcers(const struct check *check, struct finding *finding);
void probe_systemd(const struct check *check, struct finding *finding);
void probe_rlimit(const struct check *check, struct finding *finding);
void probe_runtime_folder(const struct check *check, struct finding *finding);
void probe_state_folder(const struct check *check, struct finding *finding);
void probe_home(const struct check *check, struct finding *finding);
void probe_container(const struct check *check, struct finding *finding);
void probe_tool(const struct check *check, struct finding *finding);
void probe_driver(const struct check *check, struct finding *finding);
void probe_docker(const struct check *check, struct finding *finding);
void probe_qemu(const struct check *check, struct finding *finding);
void probe_firejail(const struct check *check, struct finding *finding);
void probe_newuidmap(const struct check *check, struct finding *finding);

/* The arguments of the parameterised probes. */
struct namespace_spec {
  int flag;
  const char *limit; /* the sysctl below user. that counts them */
};

struct filesystem_spec {
  const char *type, *options;
  int namespaces;            /* besides user and mount */
  bool masked_in_containers; /* then a fresh one is refused (proc, sysfs) */
};

struct call_spec {
  int (*try)(void); /* 0 or an errno; mount calls run in a user and mount namespace */
};

struct notify_spec {
  unsigned long filter_flags;
  bool add_descriptor, sync_wake_up;
};

struct device_spec {
  const char *path;
  const char *note; /* appended to what was found */
};

struct rlimit_spec {
  int resource;
  unsigned long long enough;
  const char *option; /* of ulimit */
};

struct tool_spec {
  const char *name;
  const char *version_option;     /* NULL: it has none */
  const char *apt, *dnf, *pacman; /* package names; NULL: not packaged there */
};
