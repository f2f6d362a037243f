/* The places we keep things in, and where we run: folders are judged by really writing to them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"
#include "core/text.h"
#include "doctor/probe.h"
#include "plan/project.h"

/* A file without a name leaves nothing behind; where the file system has none, a folder that is
 * removed at once. 0 or an errno. */
static int try_writing(const char *folder) {
  _cleanup_close_ int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (fd >= 0)
    return 0;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
    return errno;
  _cleanup_free_ char *name = xasprintf("%s/.sandbox-doctor-XXXXXX", folder);
  if (!mkdtemp(name))
    return errno;
  return rmdir(name) < 0 ? errno : 0;
}

static void set_place(struct finding *finding, enum doctor_state state, const char *path,
                      const char *what) {
  _cleanup_free_ char *visible = escape_string(path);
  finding_set(finding, state, "%s%s%s", visible, *what ? ": " : "", what);
}

/* Sessions use the folder of the user's log-in also if nobody has told them of it. */
static void set_unnamed_runtime_folder(struct finding *finding) {
  _cleanup_free_ char *used = host_runtime_folder(geteuid());
  if (strncmp(used, "/run/user/", strlen("/run/user/")) == 0)
    set_place(finding, DOCTOR_OK, used, "");
  else
    finding_set(finding, DOCTOR_DEGRADED, "XDG_RUNTIME_DIR is not set: %s is used", used);
}

void probe_runtime_folder(const struct check *check, struct finding *finding) {
  (void)check;
  const char *path = getenv("XDG_RUNTIME_DIR");
  finding_fix(finding,
              geteuid() == 0 ? "install -d -m 0700 /run/user/%u && export "
                               "XDG_RUNTIME_DIR=/run/user/%u"
                             : "sudo install -d -m 0700 -o $USER /run/user/%u && export "
                               "XDG_RUNTIME_DIR=/run/user/%u (or log in through systemd-logind)",
              geteuid(), geteuid());
  if (!path || *path != '/') {
    set_unnamed_runtime_folder(finding);
    return;
  }
  struct stat status;
  if (stat(path, &status) < 0)
    set_place(finding, DOCTOR_DEGRADED, path, strerror(errno));
  else if (!S_ISDIR(status.st_mode))
    set_place(finding, DOCTOR_DEGRADED, path, "not a folder");
  else if (status.st_uid != geteuid())
    set_place(finding, DOCTOR_RESTRICTED, path, "belongs to another user");
  else if (status.st_mode & 077)
    set_place(finding, DOCTOR_RESTRICTED, path, "open to other users (chmod 0700 it)");
  else {
    int errnum = try_writing(path);
    set_place(finding, errnum ? DOCTOR_DEGRADED : DOCTOR_OK, path, errnum ? strerror(errnum) : "");
  }
}

static char *state_folder(void) {
  const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
  if (state && *state == '/')
    return path_join(state, "sandbox");
  return home && *home == '/' ? path_join(home, ".local/state/sandbox") : NULL;
}

/* We make the folder when we need it, so what counts is the nearest one that exists. */
void probe_state_folder(const struct check *check, struct finding *finding) {
  (void)check;
  _cleanup_free_ char *wanted = state_folder();
  if (!wanted) {
    finding_set(finding, DOCTOR_MISSING, "neither XDG_STATE_HOME nor HOME is set");
    return;
  }
  _cleanup_free_ char *existing = xstrdup(wanted);
  while (access(existing, F_OK) < 0 && strcmp(existing, "/") != 0) {
    char *parent = path_parent(existing);
    free(existing);
    existing = parent;
  }
  int errnum = try_writing(existing);
  if (errnum == 0)
    set_place(finding, DOCTOR_OK, wanted, "");
  else
    set_place(finding, DOCTOR_RESTRICTED, existing, strerror(errnum));
}

void probe_home(const struct check *check, struct finding *finding) {
  (void)check;
  const char *home = getenv("HOME");
  if (!home || *home != '/') {
    finding_set(finding, DOCTOR_MISSING, "HOME is not set");
    return;
  }
  int errnum = try_writing(home);
  set_place(finding, errnum ? DOCTOR_DEGRADED : DOCTOR_OK, home, errnum ? strerror(errnum) : "");
}

static bool release_has(const char *word) {
  struct utsname names;
  return uname(&names) == 0 && strcasestr(names.release, word);
}

/* A hint, not a proof: each of these can be set by hand. The rows above say what really works. */
void probe_container(const struct check *check, struct finding *finding) {
  (void)check;
  const struct {
    const char *name;
    bool seen;
  } hints[] = {
      {"docker", access("/.dockerenv", F_OK) == 0},
      {"podman", access("/run/.containerenv", F_OK) == 0},
      {"kubernetes", getenv("KUBERNETES_SERVICE_HOST") != NULL},
      {"WSL", release_has("microsoft")},
      {"gVisor", release_has("gvisor")},
      {"a container ($container is set)", getenv("container") != NULL},
      {"a sandbox ($SANDBOX is its id)", probe_is_inside()},
      {"a seccomp filter", probe_is_filtered()},
  };
  _cleanup_text_ struct text seen = {0};
  for (size_t i = 0; i < ARRAY_SIZE(hints); i++)
    if (hints[i].seen)
      text_appendf(&seen, "%s%s", seen.length ? ", " : "", hints[i].name);
  finding_set(finding, DOCTOR_OK, "%s%s", seen.length ? "inside: " : "no sign of one",
              text_string(&seen));
}
