/* Every namespace besides the user namespace, and the limits on their number. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "doctor/probe.h"

static int is_first_process(void *context) {
  (void)context;
  return getpid() == 1 ? 0 : EINVAL;
}

/* A pid namespace is entered by the next child only. */
static int enter_namespace(const struct namespace_spec *spec) {
  if (unshare(spec->flag) < 0)
    return errno;
  return spec->flag == CLONE_NEWPID ? probe_in_child(is_first_process, NULL) : 0;
}

void probe_namespace(const struct check *check, struct finding *finding) {
  const struct namespace_spec *spec = check->argument;
  if (!probe_enter_userns(finding, 0))
    return;
  int errnum = enter_namespace(spec);
  finding_of_call(finding, errnum);
  if (errnum == ENOSPC) {
    finding_set(finding, DOCTOR_RESTRICTED, "the limit user.%s is used up", spec->limit);
    finding_fix(finding, "%ssysctl -w user.%s=15000", probe_sudo(), spec->limit);
  }
}

void probe_namespace_limits(const struct check *check, struct finding *finding) {
  (void)check;
  static const char *const kinds[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"};
  long lowest = -1;
  const char *lowest_kind = NULL;
  for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
    char path[64];
    snprintf(path, sizeof path, "/proc/sys/user/max_%s_namespaces", kinds[i]);
    long value = probe_read_number(path, -1);
    if (value < 0 || (lowest >= 0 && value >= lowest))
      continue;
    lowest = value;
    lowest_kind = kinds[i];
  }
  if (!lowest_kind) {
    finding_set(finding, DOCTOR_OK, "no limits to be read");
    return;
  }
  finding_set(finding, lowest < 64 ? DOCTOR_RESTRICTED : DOCTOR_OK,
              "lowest: user.max_%s_namespaces is %ld", lowest_kind, lowest);
  finding_fix(finding, "%ssysctl -w user.max_%s_namespaces=15000", probe_sudo(), lowest_kind);
}
