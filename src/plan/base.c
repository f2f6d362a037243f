/* What every session has: private places, devices, kernel file systems. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "plan/compile.h"

/* Places that are private to the session. Host control sockets (docker, dbus, X11, ssh-agent,
 * tmux …) live in exactly these, which is why they are private and not merely read-only: a
 * read-only mount does not stop connect(2). */
static const struct {
  const char *place, *source;
  unsigned mode;
} private_places[] = {
    {"/tmp", "tmp", 01777},
    {"/var/tmp", "var-tmp", 01777},
    {"/run", "run", 0755},
};

static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};

static const struct {
  const char *name, *target;
} device_links[] = {
    {"dev/fd", "/proc/self/fd"},       {"dev/stdin", "/proc/self/fd/0"},
    {"dev/stdout", "/proc/self/fd/1"}, {"dev/stderr", "/proc/self/fd/2"},
    {"dev/ptmx", "pts/ptmx"},
};

/* Parts of /run that hold programs or their data, not sockets (NixOS keeps its PATH there). */
static const char *const run_links[] = {"current-system", "booted-system", "opengl-driver"};

/* Files of the kernel that show or change the machine rather than the session. Those that only the
 * real root may open need nothing for anyone else: inside a user namespace nobody is that root,
 * but uid 0 outside still owns them by number. */
static const struct {
  const char *path;
  enum operation_kind kind;
  bool for_root_only;
  const char *why;
  bool usual; /* every ordinary kernel has it: not looked for, a look there is slow */
} kernel_files[] = {
    {"/proc/sys", OPERATION_SEAL, false, "kernel settings", true},
    {"/proc/sysrq-trigger", OPERATION_MASK, true, "reboots the machine"},
    {"/proc/kcore", OPERATION_MASK, true, "memory of the machine"},
    {"/proc/kmsg", OPERATION_MASK, true, "kernel log"},
    {"/proc/kpagecgroup", OPERATION_MASK, true, "physical page owners"},
    {"/proc/kpagecount", OPERATION_MASK, true, "physical page counts"},
    {"/proc/kpageflags", OPERATION_MASK, true, "physical page flags"},
    {"/proc/slabinfo", OPERATION_MASK, true, "kernel memory layout"},
    {"/proc/vmallocinfo", OPERATION_MASK, true, "kernel addresses"},
    {"/proc/timer_list", OPERATION_MASK, true, "kernel addresses"},
    {"/proc/mtrr", OPERATION_MASK, true, "memory type registers"},
    {"/proc/irq", OPERATION_SEAL, true, "interrupt routing"},
    {"/proc/bus", OPERATION_SEAL, true, "device configuration space"},
    {"/proc/fs", OPERATION_SEAL, true, "file system tunables"},
    {"/proc/driver", OPERATION_SEAL, true, "driver tunables"},
    {"/proc/dynamic_debug", OPERATION_MASK, true, "kernel debug output"},
    {"/proc/latency_stats", OPERATION_MASK, true, "kernel call paths"},
    {"/proc/acpi", OPERATION_MASK, false, "firmware and its devices"},
    {"/proc/scsi", OPERATION_MASK, false, "devices of the machine"},
    {"/proc/asound", OPERATION_MASK, false, "sound hardware"},
    {"/proc/kallsyms", OPERATION_MASK, false, "kernel addresses", true},
    {"/proc/keys", OPERATION_MASK, false, "names of keys", true},
    {"/proc/key-users", OPERATION_MASK, false, "names of keys", true},
    {"/proc/sched_debug", OPERATION_MASK, false, "processes of the machine"},
    {"/proc/interrupts", OPERATION_MASK, false, "a timing side channel", true},
    {"/sys/firmware", OPERATION_MASK, false, "firmware tables", true},
    {"/sys/devices/virtual/dmi", OPERATION_MASK, false, "serial numbers"},
    {"/sys/block", OPERATION_MASK, false, "disks of the machine", true},
    {"/sys/class/block", OPERATION_MASK, false, "disks of the machine", true},
    {"/sys/devices/virtual/powercap", OPERATION_MASK, false, "a power side channel"},
};

static bool is_plain_folder(const char *path) {
  struct stat status;
  return lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

void compile_private_object(struct compiler *compiler, const char *source, bool folder,
                            unsigned mode) {
  plan_add(compiler->plan, folder ? OPERATION_PRIVATE_FOLDER : OPERATION_PRIVATE_FILE, source,
           source, NULL)
      ->mode = mode;
}

/* $XDG_RUNTIME_DIR must exist inside; the host's is out of reach. */
static void add_runtime_folder(struct compiler *compiler) {
  char name[32];
  compile_private_object(compiler, "run/lock", true, 01777);
  compile_private_object(compiler, "run/user", true, 0755);
  snprintf(name, sizeof name, "run/user/%u", (unsigned)compiler->host->user);
  compile_private_object(compiler, name, true, 0700);
}

static void add_run_links(struct compiler *compiler) {
  for (size_t i = 0; i < ARRAY_SIZE(run_links); i++) {
    char outside[64], inside[64], target[4096];
    snprintf(outside, sizeof outside, "/run/%s", run_links[i]);
    snprintf(inside, sizeof inside, "run/%s", run_links[i]);
    ssize_t length = readlink(outside, target, sizeof target - 1);
    if (length <= 0)
      continue;
    target[length] = '\0';
    plan_add(compiler->plan, OPERATION_PRIVATE_LINK, target, inside, "programs of the system");
  }
}

static void add_device_objects(struct compiler *compiler) {
  struct plan *plan = compiler->plan;
  compile_private_object(compiler, "dev", true, 0755);
  compile_private_object(compiler, "dev/pts", true, 0755);
  compile_private_object(compiler, "dev/shm", true, 0755);
  compile_private_object(compiler, "shm", true, 01777);
  for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
    char name[32];
    snprintf(name, sizeof name, "dev/%s", devices[i]);
    compile_private_object(compiler, name, false, 0644);
  }
  for (size_t i = 0; i < ARRAY_SIZE(device_links); i++)
    plan_add(plan, OPERATION_PRIVATE_LINK, device_links[i].target, device_links[i].name, NULL);
}

static void add_private_objects(struct compiler *compiler) {
  for (size_t i = 0; i < ARRAY_SIZE(private_places); i++)
    compile_private_object(compiler, private_places[i].source, true, private_places[i].mode);
  add_runtime_folder(compiler);
  add_run_links(compiler);
  add_device_objects(compiler);
  compile_private_object(compiler, "mask", true, 0755);
  compile_private_object(compiler, "mask/folder", true, 0);
  compile_private_object(compiler, "mask/file", false, 0);
}

static void add_devices(struct plan *plan) {
  plan_add(plan, OPERATION_PRIVATE_SEALED, "/dev", "dev", "only harmless devices");
  for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
    char path[32];
    snprintf(path, sizeof path, "/dev/%s", devices[i]);
    plan_add(plan, OPERATION_DEVICE, path, NULL, NULL);
  }
  plan_add(plan, OPERATION_DEVPTS, "/dev/pts", NULL, "terminals of its own");
  plan_add(plan, OPERATION_PRIVATE, "/dev/shm", "shm", "private to the session");
}

void compile_kernel_files(struct compiler *compiler) {
  for (size_t i = 0; i < ARRAY_SIZE(kernel_files); i++) {
    if (kernel_files[i].for_root_only && compiler->host->user != 0)
      continue;
    /* What this kernel does not have needs no call inside. */
    if (!kernel_files[i].usual && access(kernel_files[i].path, F_OK) < 0)
      continue;
    plan_add(compiler->plan, kernel_files[i].kind, kernel_files[i].path, NULL, "%s",
             kernel_files[i].why)
        ->flags = OPERATION_OPTIONAL;
  }
}

/* /bin, /lib64 and their like: every program's loader is found by them. Links elsewhere are
 * repeated, or asked for, when somebody follows them. */
static void add_root_links(struct compiler *compiler) {
  DIR *root = opendir("/");
  for (struct dirent *entry; root && (entry = readdir(root));) {
    char target[PATH_MAX], path[NAME_MAX + 2];
    ssize_t length = readlinkat(dirfd(root), entry->d_name, target, sizeof target - 1);
    if (length <= 0)
      continue;
    target[length] = '\0';
    snprintf(path, sizeof path, "/%s", entry->d_name);
    plan_add(compiler->plan, OPERATION_LINK, path, target, "names of the system");
  }
  if (root)
    closedir(root);
}

/* Applied while the rest is still being compiled, and by nobody changed afterwards: nothing here
 * may depend on a rule. In the order in which the engine works. */
void compile_base(struct compiler *compiler) {
  struct plan *plan = compiler->plan;
  add_private_objects(compiler);
  if (compiler->dynamic)
    plan_add(plan, OPERATION_GATE, "/", NULL, "what is not allowed yet is asked for");
  else
    plan_add(plan, OPERATION_ROOT, "/", NULL, "everything is readable, nothing writable");
  if (compiler->dynamic)
    add_root_links(compiler);
  for (size_t i = 0; i < ARRAY_SIZE(private_places); i++) {
    if (is_plain_folder(private_places[i].place))
      plan_add(plan, OPERATION_PRIVATE, private_places[i].place, private_places[i].source,
               "private to the session");
  }
  add_devices(plan);
  plan_add(plan, OPERATION_PROC, "/proc", NULL, "processes of the session only");
  plan_add(plan, OPERATION_SYSFS, "/sys", NULL, "read-only, network devices of the session only");
  plan->base_count = plan->operation_count;
}

bool compile_private_place(const char *path, const char **ret_source, const char **ret_place) {
  for (size_t i = 0; i < ARRAY_SIZE(private_places); i++) {
    if (!path_is_under(path, private_places[i].place))
      continue;
    *ret_source = private_places[i].source;
    *ret_place = private_places[i].place;
    return true;
  }
  return false;
}

/* Does it lie in the folder of the mount point that was made last? It is the next one's last. */
static bool is_neighbour(struct compiler *compiler, const char *path) {
  const char *last = compiler->last_point;
  size_t length = (size_t)(path_base(path) - path);
  bool same = last && (size_t)(path_base(last) - last) == length && memcmp(last, path, length) == 0;
  free(compiler->last_point);
  compiler->last_point = xstrdup(path);
  return same;
}

void compile_mount_point(struct compiler *compiler, const char *path, bool folder) {
  const char *source, *place;
  if (!compile_private_place(path, &source, &place) || strcmp(path, place) == 0)
    return;
  /* "/tmp/a/b" needs tmp/a, then tmp/a/b; those that exist already do no harm, but the neighbour of
   * the last one needs only its own name. */
  const char *below = path_below(path, place);
  bool neighbour = is_neighbour(compiler, path);
  for (const char *end = strchrnul(neighbour ? path_base(path) : below, '/');;
       end = strchrnul(end + 1, '/')) {
    _cleanup_free_ char *name = xasprintf("%s/%.*s", source, (int)(end - below), below);
    bool last = *end == '\0';
    compile_private_object(compiler, name, !last || folder, 0755);
    if (last)
      return;
  }
}
