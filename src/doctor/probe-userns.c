/* User namespaces: making one, mapping ids and using it, and the facts that explain a failure. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "doctor/paths.h"
#include "doctor/probe.h"
#include "doctor/userns.h"

static int write_file(const char *path, const char *text) {
  _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return -errno;
  return file_write_all(fd, text, strlen(text));
}

static int map_ids(uid_t uid, gid_t gid) {
  char uid_map[64], gid_map[64];
  snprintf(uid_map, sizeof uid_map, "%u %u 1", uid, uid);
  snprintf(gid_map, sizeof gid_map, "%u %u 1", gid, gid);
  int result = write_file("/proc/self/setgroups", "deny");
  if (result < 0 && result != -ENOENT) /* absent before 3.19 */
    return result;
  result = write_file("/proc/self/uid_map", uid_map);
  return result < 0 ? result : write_file("/proc/self/gid_map", gid_map);
}

int userns_enter(enum userns_stage *ret_stage) {
  uid_t uid = geteuid();
  gid_t gid = getegid();
  *ret_stage = USERNS_CREATE;
  if (unshare(CLONE_NEWUSER) < 0)
    return -errno;
  *ret_stage = USERNS_MAP;
  int result = map_ids(uid, gid);
  if (result == 0)
    *ret_stage = USERNS_CREATED_AND_USED;
  return result;
}

/* The result crosses from the child in its exit status: an errno fits in seven bits, the stage does
 * not, so it goes through a pipe. */
struct attempt {
  int pipe;
};

static int attempt_userns(void *context) {
  const struct attempt *attempt = context;
  enum userns_stage stage;
  int result = userns_enter(&stage);
  /* Only a refusal counts: a limit on mount namespaces is another row's business. */
  if (result == 0 && unshare(CLONE_NEWNS) < 0 && (errno == EPERM || errno == EACCES)) {
    result = -errno;
    stage = USERNS_USE;
  }
  return write(attempt->pipe, &stage, sizeof stage) == sizeof stage ? -result : EIO;
}

/* mountinfo lists what is visible from our root; without an entry for "/" our root is not a mount,
 * which is how a chroot looks. */
static bool is_chrooted(void) {
  _cleanup_free_ char *data = NULL;
  size_t length;
  if (file_read_at(AT_FDCWD, "/proc/self/mountinfo", 1 << 22, &data, &length) < 0)
    return false;
  for (char *line = data; line && *line;) {
    char point[8] = "";
    if (sscanf(line, "%*d %*d %*s %*s %7s", point) == 1 && strcmp(point, "/") == 0)
      return false;
    line = strchr(line, '\n');
    line += line != NULL;
  }
  return true;
}

static bool is_unmapped(void) {
  _cleanup_free_ char *map = NULL;
  size_t length;
  return file_read_at(AT_FDCWD, "/proc/self/uid_map", 65536, &map, &length) == 0 && length == 0;
}

struct userns_facts userns_gather(void) {
  struct userns_facts facts = {
      .stage = USERNS_CREATE,
      .max_user_namespaces = probe_read_number("/proc/sys/user/max_user_namespaces", -1),
      .unprivileged_userns_clone =
          probe_read_number("/proc/sys/kernel/unprivileged_userns_clone", -1),
      .apparmor_restricts =
          probe_read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", -1),
      .privileged = probe_is_privileged(),
      .filtered = probe_is_filtered(),
      .inside = probe_is_inside(),
      .chrooted = is_chrooted(),
      .no_proc = access("/proc/self/status", F_OK) < 0,
      .unmapped = is_unmapped(),
      .profile_installed = access(SANDBOX_SYSCONFDIR "/apparmor.d/sandbox", F_OK) == 0,
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) {
    facts.errnum = errno;
    return facts;
  }
  _cleanup_close_ int reader = ends[0];
  _cleanup_close_ int writer = ends[1];
  facts.errnum = probe_in_child(attempt_userns, &(struct attempt){writer});
  close(steal_fd(&writer));
  if (read(reader, &facts.stage, sizeof facts.stage) != sizeof facts.stage)
    facts.stage = USERNS_CREATE;
  return facts;
}

void probe_userns(const struct check *check, struct finding *finding) {
  (void)check;
  struct userns_facts facts = userns_gather();
  const struct userns_explanation *explanation = userns_explain(userns_judge(&facts));
  finding_set(finding, explanation->state, "%s", explanation->why);
  if (explanation->fix)
    finding_fix(finding, "%s", explanation->fix);
}

int doctor_explain_userns(struct sb_error *error) {
  struct userns_facts facts = userns_gather();
  int given = error->errnum;
  if (facts.stage == USERNS_CREATED_AND_USED && given) {
    facts.stage = USERNS_CREATE;
    facts.errnum = given;
  }
  enum userns_reason reason = userns_judge(&facts);
  const struct userns_explanation *explanation = userns_explain(reason);
  if (reason == USERNS_WORKS)
    return sb_fail(error, SB_CODE_SYSTEM, 0,
                   "cannot start the sandbox, though a user namespace can be made");
  /* "No space left on device" would only confuse once the true reason is known. */
  sb_fail(error, SB_CODE_UNSUPPORTED, reason == USERNS_UNKNOWN ? facts.errnum : 0,
          "cannot make a user namespace: %s", explanation->why);
  error->errnum = facts.errnum;
  return sb_hint(error, "%s", explanation->fix);
}
