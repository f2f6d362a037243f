/* Other programs: found in $PATH and asked for their version, which is also the proof that they
 * start. A program that does not answer is stopped by the runner together with this process. */
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backend/backend.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "doctor/probe.h"

/* The program's path by $PATH and the folders of root's tools, or NULL. New string. */
static char *find_tool(const char *name) {
  const char *path = getenv("PATH");
  _cleanup_free_ char *folders = xasprintf("%s:/usr/sbin:/sbin", path ? path : "/usr/bin:/bin");
  char *rest = folders;
  for (char *folder = strsep(&rest, ":"); folder; folder = strsep(&rest, ":")) {
    if (*folder != '/')
      continue; /* never run a program because of the folder we happen to be in */
    _cleanup_free_ char *file = xasprintf("%s/%s", folder, name);
    struct stat status;
    if (stat(file, &status) == 0 && S_ISREG(status.st_mode) && access(file, X_OK) == 0)
      return steal_pointer(file);
  }
  return NULL;
}

static void become_tool(char *const argv[], int output) {
  if (dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)
    _exit(126);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("LC_ALL", "C", 1);
  execv(argv[0], argv);
  _exit(127);
}

/* The first line that the program prints, as a new string; *ret_failed tells how it ended. */
static char *first_line_of(char *const argv[], bool *ret_failed) {
  *ret_failed = true;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0)
    return xstrdup("");
  _cleanup_close_ int reader = ends[0];
  pid_t pid = fork();
  if (pid == 0)
    become_tool(argv, ends[1]);
  close(ends[1]);
  char buffer[4096];
  size_t length = 0;
  ssize_t got;
  while (pid > 0 && (got = read(reader, buffer + length, sizeof buffer - 1 - length)) > 0)
    length += (size_t)got;
  int status;
  if (pid > 0 && waitpid(pid, &status, 0) == pid)
    *ret_failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  buffer[length] = '\0';
  char *line = buffer + strspn(buffer, "\r\n\t ");
  line[strcspn(line, "\r\n")] = '\0';
  return escape_string(line);
}

/* How this machine installs packages. A tool that is not packaged keeps the table's fix. */
static void fix_by_package(struct finding *finding, const struct tool_spec *spec) {
  const struct {
    const char *manager, *command, *package;
  } rows[] = {
      {"apt-get", "apt-get install", spec->apt},
      {"dnf", "dnf install", spec->dnf},
      {"pacman", "pacman -S", spec->pacman},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_free_ char *manager = find_tool(rows[i].manager);
    if (!manager)
      continue;
    if (rows[i].package)
      finding_fix(finding, "%s%s %s", probe_sudo(), rows[i].command, rows[i].package);
    return;
  }
}

/* The tool's path if it is there and starts, with the finding filled in either way. */
static char *probe_spec(const struct tool_spec *spec, struct finding *finding) {
  char *path = find_tool(spec->name);
  if (!path) {
    finding_set(finding, DOCTOR_MISSING, "not installed");
    fix_by_package(finding, spec);
    return NULL;
  }
  _cleanup_free_ char *visible = escape_string(path);
  finding_set(finding, DOCTOR_OK, "%s", visible); /* what is known if the next step hangs */
  if (!spec->version_option)
    return path;
  bool failed;
  _cleanup_free_ char *line =
      first_line_of((char *[]){path, (char *)spec->version_option, NULL}, &failed);
  if (!failed) {
    finding_set(finding, DOCTOR_OK, "%s", line);
    return path;
  }
  finding_set(finding, DOCTOR_DEGRADED, "%.100s %s fails: %.120s", visible, spec->version_option,
              line);
  finding_fix(finding, "run it by hand to see why");
  free(path);
  return NULL;
}

void probe_tool(const struct check *check, struct finding *finding) {
  free(probe_spec(check->argument, finding));
}

void probe_qemu(const struct check *check, struct finding *finding) {
  struct tool_spec spec = *(const struct tool_spec *)check->argument;
  struct utsname names;
  if (uname(&names) < 0)
    return;
  if (!vm_knows_processor()) {
    finding_set(finding, DOCTOR_MISSING, "the vm back end is for x86_64 only, this is %.60s",
                names.machine);
    finding_fix(finding, "use another back end: 'sandbox backends' lists them");
    return;
  }
  _cleanup_free_ char *name = xasprintf("qemu-system-%s", names.machine);
  spec.name = name;
  free(probe_spec(&spec, finding));
}

void probe_docker(const struct check *check, struct finding *finding) {
  _cleanup_free_ char *path = probe_spec(check->argument, finding);
  if (!path)
    return;
  char client[sizeof finding->found];
  memcpy(client, finding->found, sizeof client);
  finding_set(finding, DOCTOR_DEGRADED, "%.200s; the daemon does not answer", client);
  finding_fix(finding, "sudo systemctl start docker (and sudo usermod -aG docker $USER, which "
                       "is as good as giving root)");
  bool failed;
  _cleanup_free_ char *server =
      first_line_of((char *[]){path, "version", "--format", "{{.Server.Version}}", NULL}, &failed);
  if (!failed && *server)
    finding_set(finding, DOCTOR_OK, "%.160s; daemon %.60s", client, server);
}

void probe_firejail(const struct check *check, struct finding *finding) {
  _cleanup_free_ char *path = probe_spec(check->argument, finding);
  if (!path || geteuid() == 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
    return;
  finding_set(finding, DOCTOR_RESTRICTED, "setuid, and no_new_privs is set");
  finding_fix(finding, "the fix of \"no_new_privs\"");
}

/* True if a line of the file starts with our name or our uid and a colon. */
static bool has_subordinate_ids(const char *path, const char *name) {
  _cleanup_file_ FILE *file = fopen(path, "re");
  if (!file)
    return false;
  _cleanup_free_ char *by_name = xasprintf("%s:", name);
  _cleanup_free_ char *by_uid = xasprintf("%u:", getuid());
  char line[512];
  while (fgets(line, sizeof line, file))
    if (strncmp(line, by_name, strlen(by_name)) == 0 || strncmp(line, by_uid, strlen(by_uid)) == 0)
      return true;
  return false;
}

/* Our name by /etc/passwd only: NSS cannot be used from a static program. */
static char *own_name(void) {
  _cleanup_file_ FILE *file = fopen("/etc/passwd", "re");
  struct passwd *entry;
  while (file && (entry = fgetpwent(file)))
    if (entry->pw_uid == getuid())
      return xstrdup(entry->pw_name);
  const char *user = getenv("USER");
  return xstrdup(user ? user : "");
}

static bool can_raise_privilege(const char *path) {
  struct stat status;
  return (stat(path, &status) == 0 && status.st_mode & S_ISUID && status.st_uid == 0) ||
         getxattr(path, "security.capability", NULL, 0) > 0;
}

void probe_newuidmap(const struct check *check, struct finding *finding) {
  _cleanup_free_ char *path = probe_spec(check->argument, finding);
  if (!path || geteuid() == 0) /* root maps ids without help */
    return;
  _cleanup_free_ char *name = own_name();
  if (!can_raise_privilege(path)) {
    finding_set(finding, DOCTOR_RESTRICTED, "neither setuid root nor with file capabilities");
    finding_fix(finding, "%schmod u+s %s", probe_sudo(), path);
  } else if (!has_subordinate_ids("/etc/subuid", name) ||
             !has_subordinate_ids("/etc/subgid", name)) {
    finding_set(finding, DOCTOR_DEGRADED, "no entry for us in /etc/subuid and /etc/subgid");
    finding_fix(finding, "%susermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s",
                probe_sudo(), *name ? name : "$USER");
  } else
    finding_set(finding, DOCTOR_OK, "%s, with subordinate ids", path);
}
