/* cgroups: the layout, and whether a group of our own can really be made where we are. The only
 * probe that makes something outside a namespace: an empty group, removed in the same breath. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/text.h"
#include "doctor/cgroup.h"
#include "doctor/probe.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

static long file_system_type(const char *path) {
  struct statfs status;
  return statfs(path, &status) < 0 ? 0 : (long)status.f_type;
}

enum cgroup_layout cgroup_layout_of(long root_type, long unified_type) {
  if (root_type == CGROUP2_SUPER_MAGIC)
    return CGROUP_V2;
  if (unified_type == CGROUP2_SUPER_MAGIC)
    return CGROUP_HYBRID;
  return root_type == TMPFS_MAGIC ? CGROUP_V1 : CGROUP_NONE;
}

static enum cgroup_layout find_layout(void) {
  return cgroup_layout_of(file_system_type(CGROUP_ROOT), file_system_type(CGROUP_ROOT "/unified"));
}

/* True if the comma-separated list (not terminated, of the given length) has the word. */
static bool list_has(const char *list, size_t length, const char *word) {
  size_t word_length = strlen(word);
  while (length >= word_length) {
    if (memcmp(list, word, word_length) == 0 && (length == word_length || list[word_length] == ','))
      return true;
    const char *comma = memchr(list, ',', length);
    if (!comma)
      return false;
    length -= (size_t)(comma + 1 - list);
    list = comma + 1;
  }
  return false;
}

char *cgroup_path_in(const char *text, const char *controller) {
  for (const char *line = text; *line;) {
    const char *end = strchrnul(line, '\n');
    const char *list = memchr(line, ':', (size_t)(end - line));
    const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
    if (path) {
      size_t length = (size_t)(path - list - 1);
      if (controller ? list_has(list + 1, length, controller) : length == 0)
        return xstrndup(path + 1, (size_t)(end - path - 1));
    }
    line = *end ? end + 1 : end;
  }
  return NULL;
}

static char *hierarchy_root(const char *controller) {
  if (controller)
    return xasprintf(CGROUP_ROOT "/%s", controller);
  return xstrdup(find_layout() == CGROUP_V2 ? CGROUP_ROOT : CGROUP_ROOT "/unified");
}

char *cgroup_own_folder(const char *controller) {
  _cleanup_free_ char *text = NULL;
  size_t length;
  if (file_read_at(AT_FDCWD, "/proc/self/cgroup", 65536, &text, &length) < 0)
    return NULL;
  _cleanup_free_ char *path = cgroup_path_in(text, controller);
  if (!path)
    return NULL;
  _cleanup_free_ char *root = hierarchy_root(controller);
  char *folder = xasprintf("%s%s", root, strcmp(path, "/") == 0 ? "" : path);
  if (access(folder, F_OK) == 0)
    return folder;
  /* A container shows its own group as the root of the mount but names it from further out. */
  free(folder);
  return access(root, F_OK) == 0 ? steal_pointer(root) : NULL;
}

void probe_cgroup_layout(const struct check *check, struct finding *finding) {
  (void)check;
  static const struct {
    enum doctor_state state;
    const char *found;
  } rows[] = {
      [CGROUP_NONE] = {DOCTOR_MISSING, "no cgroups mounted on " CGROUP_ROOT},
      [CGROUP_V1] = {DOCTOR_DEGRADED, "v1"},
      [CGROUP_HYBRID] = {DOCTOR_DEGRADED, "hybrid: v1 controllers beside an empty v2"},
      [CGROUP_V2] = {DOCTOR_OK, "v2"},
  };
  enum cgroup_layout layout = find_layout();
  finding_set(finding, rows[layout].state, "%s", rows[layout].found);
}

/* Makes a group below ours and removes it again. 0 or an errno. */
static int try_group(const char *folder) {
  _cleanup_free_ char *group = xasprintf("%s/sandbox-doctor-%d", folder, getpid());
  if (mkdir(group, 0700) < 0)
    return errno;
  return rmdir(group) < 0 ? errno : 0;
}

static void set_unwritable(struct finding *finding, const char *folder, int errnum) {
  finding_set(finding, DOCTOR_RESTRICTED, "%s: %s", folder, strerror(errnum));
  if (errnum == EROFS)
    finding_fix(finding, "start the container with a writable " CGROUP_ROOT
                         " (--cgroupns=private -v " CGROUP_ROOT ":" CGROUP_ROOT ":rw)");
}

static void probe_delegation_v2(struct finding *finding) {
  _cleanup_free_ char *folder = cgroup_own_folder(NULL);
  int errnum = folder ? try_group(folder) : ENOENT;
  if (errnum) {
    set_unwritable(finding, folder ? folder : CGROUP_ROOT, errnum);
    return;
  }
  _cleanup_free_ char *file = xasprintf("%s/cgroup.controllers", folder);
  _cleanup_free_ char *controllers = NULL;
  size_t length;
  if (file_read_at(AT_FDCWD, file, 4096, &controllers, &length) < 0)
    length = 0;
  if (length > 0)
    controllers[strcspn(controllers, "\n")] = '\0';
  bool enough = length > 0 && strstr(controllers, "memory") && strstr(controllers, "pids");
  finding_set(finding, enough ? DOCTOR_OK : DOCTOR_DEGRADED, "writable; controllers: %s",
              length > 1 ? controllers : "none");
}

static void probe_delegation_v1(struct finding *finding) {
  static const char *const wanted[] = {"memory", "pids", "cpu"};
  _cleanup_text_ struct text writable = {0};
  size_t count = 0;
  int last = ENOENT;
  for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
    _cleanup_free_ char *folder = cgroup_own_folder(wanted[i]);
    int errnum = folder ? try_group(folder) : ENOENT;
    if (errnum)
      last = errnum;
    else
      text_appendf(&writable, "%s%s", count++ ? " " : "", wanted[i]);
  }
  if (count == 0) {
    set_unwritable(finding, "v1 controllers", last);
    finding_fix(finding, "v1 cannot be delegated: boot with systemd.unified_cgroup_hierarchy=1, or "
                         "run as root");
  } else
    finding_set(finding, count == ARRAY_SIZE(wanted) ? DOCTOR_OK : DOCTOR_DEGRADED,
                "writable v1 controllers: %s", text_string(&writable));
}

void probe_cgroup_delegation(const struct check *check, struct finding *finding) {
  (void)check;
  enum cgroup_layout layout = find_layout();
  if (layout == CGROUP_V2)
    probe_delegation_v2(finding);
  else if (layout == CGROUP_NONE)
    finding_set(finding, DOCTOR_MISSING, "no cgroups");
  else
    probe_delegation_v1(finding);
}

/* systemd answers on a private socket; a connection that is accepted is a manager that runs. */
void probe_systemd(const struct check *check, struct finding *finding) {
  (void)check;
  const char *runtime = geteuid() == 0 ? "/run" : getenv("XDG_RUNTIME_DIR");
  if (!runtime) {
    finding_set(finding, DOCTOR_MISSING, "XDG_RUNTIME_DIR is not set");
    return;
  }
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s/systemd/private", runtime);
  _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
    finding_set(finding, DOCTOR_OK, "answers");
  else
    finding_set(finding, DOCTOR_MISSING, "%s: %s", address.sun_path, strerror(errno));
}
