/* Resource limits that we inherit and that would hit our own processes. */
#include <stdio.h>
#include <sys/resource.h>

#include "doctor/probe.h"

void probe_rlimit(const struct check *check, struct finding *finding) {
  const struct rlimit_spec *spec = check->argument;
  struct rlimit limit;
  if (getrlimit(spec->resource, &limit) < 0) {
    finding_set(finding, DOCTOR_MISSING, "cannot be read");
    return;
  }
  if (limit.rlim_cur == RLIM_INFINITY) {
    finding_set(finding, DOCTOR_OK, "unlimited");
    return;
  }
  bool enough = limit.rlim_cur >= spec->enough;
  finding_set(finding, enough ? DOCTOR_OK : DOCTOR_DEGRADED, "%llu",
              (unsigned long long)limit.rlim_cur);
  if (enough)
    return;
  char wanted[32] = "unlimited";
  if (spec->enough != RLIM_INFINITY)
    snprintf(wanted, sizeof wanted, "%llu", spec->enough);
  bool own_right = limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= spec->enough;
  finding_fix(finding,
              own_right ? "ulimit -S%s %s"
                        : "the hard limit is lower too: ulimit -%s %s as root, or "
                          "/etc/security/limits.conf",
              spec->option, wanted);
}
