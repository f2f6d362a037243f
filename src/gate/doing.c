/* Looks at a thread in a system call; see doing.h. */
#include "gate/doing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "gate/automount.h"
#include "gate/walk.h"
#include "plan/distant.h"

enum { ATTEMPTS = 20 };

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#define COMPAT AUDIT_ARCH_I386
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#define COMPAT AUDIT_ARCH_ARM
#else
#error "which numbers have the system calls?"
#endif

/* The kernel does not say whose numbers these are. The stack of a 32-bit program is where its
 * addresses reach; any program of x86 can make such a call by its own instruction. */
static bool is_compat(const struct doing *doing, uint64_t stack, uint64_t next) {
#ifdef __x86_64__
  static const unsigned char instruction[] = {0xcd, 0x80}; /* int 0x80 */
  unsigned char found[sizeof instruction];
  if (target_read(&doing->target, next - sizeof found, found, sizeof found) == 0 &&
      memcmp(found, instruction, sizeof found) == 0)
    return true;
#else
  (void)doing;
  (void)next;
#endif
  return stack <= UINT32_MAX;
}

/* The number, six arguments, the stack and the next instruction. */
static int parse(const char *text, struct doing *ret_doing) {
  uint64_t *at = ret_doing->arguments, stack, next;
  if (sscanf(text, "%ld %lx %lx %lx %lx %lx %lx %lx %lx", &ret_doing->number, &at[0], &at[1],
             &at[2], &at[3], &at[4], &at[5], &stack, &next) != 9)
    return -EINVAL;
  ret_doing->compat = is_compat(ret_doing, stack, next);
  return 0;
}

/* "running": it has asked us, but does not sleep yet. It will in an instant, for it waits for our
 * answer. */
int doing_read(const struct target *target, struct doing *ret_doing) {
  static const struct timespec instant = {.tv_nsec = 50000};
  char path[64];
  ret_doing->target = *target;
  snprintf(path, sizeof path, "/proc/%d/syscall", (int)target->thread);
  for (int attempt = 0; target->thread > 0 && attempt < ATTEMPTS; attempt++) {
    _cleanup_free_ char *text = NULL;
    int result = file_read_at(AT_FDCWD, path, 4096, &text, NULL);
    if (result < 0)
      return result;
    if (strncmp(text, "running", strlen("running")) != 0)
      return parse(text, ret_doing);
    nanosleep(&instant, NULL);
  }
  return -ESRCH;
}

const struct trap *doing_trap(const struct doing *doing) {
  return seccomp_trap(doing->compat ? COMPAT : NATIVE, (int)doing->number);
}

const struct trap *doing_trap_of_descriptor(const struct doing *doing) {
  static const long numbers[] = {SYS_fchmod, SYS_fchown, SYS_fsetxattr, SYS_fremovexattr};
  static const struct trap trap = {
      .kind = TRAP_CHANGE, .at = {{0, 0}, {TRAP_NONE, TRAP_NONE}}, .flags = TRAP_NONE};
  for (size_t i = 0; !doing->compat && i < ARRAY_SIZE(numbers); i++) {
    if (doing->number == numbers[i])
      return &trap;
  }
  return NULL;
}

static bool has_empty_path(const struct doing *doing, const struct trap *trap) {
  char path[PATH_MAX];
  uint64_t address = doing->arguments[trap->at[0].path];
  return address == 0 || (trap->links == TRAP_AT && doing->arguments[trap->flags] & AT_EMPTY_PATH &&
                          target_read_path(&doing->target, address, path) == 0 && !path[0]);
}

bool doing_changes_descriptor(const struct doing *doing) {
  const struct trap *trap = doing_trap(doing);
  return doing_trap_of_descriptor(doing) || (trap && trap->kind == TRAP_CHANGE &&
                                             trap->at[0].base >= 0 && has_empty_path(doing, trap));
}

/* "root/usr": we must not go there by way of the gate, and its names are the host's. */
static const char *below_root(const char *path) {
  size_t length = strlen("root");
  return strncmp(path, "root", length) == 0 && path[length] == '/' ? path + length : NULL;
}

/* As we would have to write it: "self" is whoever looks. */
static char *whole_path(const struct doing *doing, const char *start, const char *path) {
  static const char *const selves[] = {"/proc/self/", "/proc/thread-self/"};
  for (size_t i = 0; i < ARRAY_SIZE(selves); i++) {
    if (strncmp(path, selves[i], strlen(selves[i])) != 0)
      continue;
    const char *own = path + strlen(selves[i]), *below = below_root(own);
    return below ? xstrdup(below) : xasprintf("/proc/%d/%s", (int)doing->target.thread, own);
  }
  return path[0] == '/' ? xstrdup(path) : xasprintf("%s/%s", start, path);
}

static bool hides_nothing(const void *context, const char *path) {
  (void)context;
  (void)path;
  return false;
}

/* As file_resolve, but the host mounts nothing for it, and no server is waited for. */
static int walk_to(const struct target *target, const char *path, char **ret_path) {
  _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  struct walker walker = {.root = root, .host = root, .hides = hides_nothing};
  struct walk_request request = {
      .target = target, .start = "/", .top = "/", .path = path, .follow = true};
  struct found found = FOUND_NONE;
  int result = root < 0 ? -errno : walk_path(&walker, &request, &found);
  if (result == 0 && found.fd < 0)
    result = -ENOENT;
  if (result == 0)
    *ret_path = xstrdup(found.path);
  found_clear(&found);
  return result;
}

static int resolve(const struct target *target, const char *path, char **ret_path) {
  return automount_exists() || distant_exists() ? walk_to(target, path, ret_path)
                                                : file_resolve(path, ret_path);
}

bool doing_leads_to(const struct doing *doing, int folder, const char *path, const char *object) {
  char start[PATH_MAX];
  _cleanup_free_ char *whole = NULL, *found = NULL;
  _cleanup_close_ int fd = -1;
  if (path[0] != '/' && target_folder(&doing->target, folder, &fd, start) < 0)
    return false;
  whole = whole_path(doing, start, path);
  return resolve(&doing->target, whole, &found) == 0 && strcmp(found, object) == 0;
}
