/* Helpers of the probes. Nothing here prints, and nothing here changes the calling process except
 * probe_enter_userns, which only a probe's own child may call. */
#include "doctor/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "doctor/userns.h"

void finding_set(struct finding *finding, enum doctor_state state, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(finding->found, sizeof finding->found, format, arguments);
  va_end(arguments);
  finding->state = state;
}

void finding_fix(struct finding *finding, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(finding->fix, sizeof finding->fix, format, arguments);
  va_end(arguments);
}

enum doctor_state finding_state_of_errno(int errnum) {
  static const struct {
    int errnum;
    enum doctor_state state;
  } rows[] = {
      {0, DOCTOR_OK},           {ENOSYS, DOCTOR_MISSING},     {EINVAL, DOCTOR_MISSING},
      {ENODEV, DOCTOR_MISSING}, {EOPNOTSUPP, DOCTOR_MISSING}, {ENOTTY, DOCTOR_MISSING},
      {ENOENT, DOCTOR_MISSING}, {ENXIO, DOCTOR_MISSING},      {EPROTONOSUPPORT, DOCTOR_MISSING},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
    if (rows[i].errnum == errnum)
      return rows[i].state;
  return DOCTOR_RESTRICTED;
}

void finding_of_call(struct finding *finding, int errnum) {
  if (errnum == 0) {
    finding_set(finding, DOCTOR_OK, "works");
    return;
  }
  finding_set(finding, finding_state_of_errno(errnum), "%s", strerror(errnum));
  /* A container's filter answers EPERM or ENOSYS for calls it does not know, so the kernel cannot
   * be blamed as long as one is there. */
  if ((errnum == ENOSYS || errnum == EPERM) && probe_is_filtered())
    finding_fix(finding, "a seccomp filter from outside may hide the call: start the container "
                         "with --security-opt seccomp=unconfined");
}

long probe_read_number(const char *path, long fallback) {
  _cleanup_free_ char *data = NULL;
  size_t length;
  if (file_read_at(AT_FDCWD, path, 4096, &data, &length) < 0)
    return fallback;
  char *end;
  errno = 0;
  long number = strtol(data, &end, 10);
  return end == data || errno ? fallback : number;
}

/* The text after "Field:" in /proc/self/status as a number in the given base, or fallback. */
static unsigned long long status_field(const char *field, int base, unsigned long long fallback) {
  _cleanup_free_ char *data = NULL;
  size_t length;
  if (file_read_at(AT_FDCWD, "/proc/self/status", 65536, &data, &length) < 0)
    return fallback;
  const char *line = strstr(data, field);
  return line ? strtoull(line + strlen(field), NULL, base) : fallback;
}

bool probe_is_filtered(void) {
  return status_field("\nSeccomp:", 10, 0) == 2;
}

bool probe_is_inside(void) {
  char host[65] = "";
  const char *id = getenv("SANDBOX");
  _cleanup_free_ char *expected = id ? xasprintf("sandbox-%s", id) : NULL;
  return id && gethostname(host, sizeof host - 1) == 0 && strcmp(host, expected) == 0;
}

bool probe_is_privileged(void) {
  return status_field("\nCapEff:", 16, 0) & 1ULL << CAP_SYS_ADMIN;
}

int probe_in_child(int (*step)(void *context), void *context) {
  pid_t pid = fork();
  if (pid < 0)
    return errno;
  if (pid == 0)
    _exit(step(context));
  int status;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR)
      return errno;
  return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

bool probe_enter_userns(struct finding *finding, int flags) {
  enum userns_stage stage;
  if (userns_enter(&stage) < 0) {
    finding_set(finding, DOCTOR_MISSING, "not tried: no user namespace");
    finding_fix(finding, "first the fix of \"user namespaces\"");
    return false;
  }
  if (unshare(flags) == 0)
    return true;
  finding_set(finding, DOCTOR_RESTRICTED, "not tried: no namespace: %s", strerror(errno));
  finding_fix(finding, "first the fixes of the namespaces above");
  return false;
}

const char *probe_sudo(void) {
  return geteuid() == 0 ? "" : "sudo ";
}
