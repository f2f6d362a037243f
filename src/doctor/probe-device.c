/* Device files: whether they open, which is what their permission bits only suggest. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "doctor/probe.h"

void probe_device(const struct check *check, struct finding *finding) {
  const struct device_spec *spec = check->argument;
  _cleanup_close_ int fd = open(spec->path, O_RDWR | O_CLOEXEC);
  if (fd >= 0) {
    finding_set(finding, DOCTOR_OK, "opens%s", spec->note);
    return;
  }
  int errnum = errno;
  finding_set(finding, finding_state_of_errno(errnum), "%s: %s", spec->path, strerror(errnum));
  if (errnum == EACCES) /* the permission bits */
    finding_fix(finding, "sudo setfacl -m u:$USER:rw %s (for good: a udev rule)", spec->path);
  else if (errnum == EPERM) /* the device cgroup, or a mount with nodev */
    finding_fix(finding, "start the container with --device %s", spec->path);
}
