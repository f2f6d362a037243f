/* What a call that only looks is told; see tell.h. Nothing is written here: the caller does that,
 * once it knows that the call still waits. */
#include "gate/tell.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/caps.h"

#if defined(__x86_64__)
#define OWN AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN AUDIT_ARCH_AARCH64
#endif

typedef int tell(const struct call *call, int argument, int object, struct told *told);

/* Who speaks to a socket writes to it, and no read-only mount forbids that. */
static int tell_access(const struct call *call, int argument, int object, struct told *told) {
  (void)told;
  int mode = (int)call->arguments[argument];
  struct stat status;
  /* AT_EACCESS: root would be asked about with all that it may have. */
  if (faccessat(object, "", mode, AT_EMPTY_PATH | AT_EACCESS) < 0 || fstat(object, &status) < 0)
    return -errno;
  return mode & W_OK && !S_ISSOCK(status.st_mode) ? -EROFS : 0;
}

static int tell_status(const struct call *call, int argument, int object, struct told *told) {
  told->address = call->arguments[argument];
  told->size = sizeof told->data.status;
  return fstat(object, &told->data.status) < 0 ? -errno : 0;
}

static int tell_extended(const struct call *call, int argument, int object, struct told *told) {
  unsigned mask = (unsigned)call->arguments[argument - 1];
  told->address = call->arguments[argument];
  told->size = sizeof told->data.extended;
  return statx(object, "", AT_EMPTY_PATH, mask, &told->data.extended) < 0 ? -errno : 0;
}

static int tell_space(const struct call *call, int argument, int object, struct told *told) {
  told->address = call->arguments[argument];
  told->size = sizeof told->data.space;
  return fstatfs(object, &told->data.space) < 0 ? -errno : 0;
}

/* Links are walked without a question, so what was asked about is none. */
static int tell_no_link(const struct call *call, int argument, int object, struct told *told) {
  (void)call;
  (void)argument;
  (void)object;
  (void)told;
  return -EINVAL;
}

/* The value of an attribute, or with no name the names of all. */
static int tell_attribute(const struct call *call, const char *name, int argument, int object,
                          struct told *told) {
  char path[64];
  size_t room = call->arguments[argument + 1];
  if (room > sizeof told->data.bytes)
    room = sizeof told->data.bytes;
  snprintf(path, sizeof path, "/proc/self/fd/%d", object);
  ssize_t length =
      name ? getxattr(path, name, told->data.bytes, room) : listxattr(path, told->data.bytes, room);
  if (length < 0)
    return -errno;
  told->value = length;
  told->address = call->arguments[argument];
  told->size = room ? (size_t)length : 0;
  return 0;
}

static int tell_value(const struct call *call, int argument, int object, struct told *told) {
  char name[PATH_MAX];
  int result = target_read_path(&call->target, call->arguments[argument - 1], name);
  return result < 0 ? result : tell_attribute(call, name, argument, object, told);
}

static int tell_names(const struct call *call, int argument, int object, struct told *told) {
  return tell_attribute(call, NULL, argument, object, told);
}

/* The kernel's structures are libc's on 64-bit machines; a 32-bit program's others are not. */
static const struct {
  uint32_t architecture;
  int number;
  tell *tell;
  int argument; /* where the answer goes, or what is asked for */
} tellings[] = {
    {OWN, SYS_newfstatat, tell_status, 2},    {OWN, SYS_statx, tell_extended, 4},
    {OWN, SYS_faccessat, tell_access, 2},     {OWN, SYS_faccessat2, tell_access, 2},
    {OWN, SYS_statfs, tell_space, 1},         {OWN, SYS_readlinkat, tell_no_link, 0},
    {OWN, SYS_getxattr, tell_value, 2},       {OWN, SYS_lgetxattr, tell_value, 2},
    {OWN, SYS_listxattr, tell_names, 1},      {OWN, SYS_llistxattr, tell_names, 1},
#ifdef __x86_64__
    {OWN, SYS_stat, tell_status, 1},          {OWN, SYS_lstat, tell_status, 1},
    {OWN, SYS_access, tell_access, 1},        {OWN, SYS_readlink, tell_no_link, 0},
    {AUDIT_ARCH_I386, 33, tell_access, 1},    /* access */
    {AUDIT_ARCH_I386, 85, tell_no_link, 0},   /* readlink */
    {AUDIT_ARCH_I386, 229, tell_value, 2},    /* getxattr */
    {AUDIT_ARCH_I386, 232, tell_names, 1},    /* listxattr */
    {AUDIT_ARCH_I386, 307, tell_access, 2},   /* faccessat */
    {AUDIT_ARCH_I386, 383, tell_extended, 4}, /* statx */
    {AUDIT_ARCH_I386, 439, tell_access, 2},   /* faccessat2 */
#elif defined(__aarch64__)
    {AUDIT_ARCH_ARM, 33, tell_access, 1},    /* access */
    {AUDIT_ARCH_ARM, 85, tell_no_link, 0},   /* readlink */
    {AUDIT_ARCH_ARM, 229, tell_value, 2},    /* getxattr */
    {AUDIT_ARCH_ARM, 232, tell_names, 1},    /* listxattr */
    {AUDIT_ARCH_ARM, 334, tell_access, 2},   /* faccessat */
    {AUDIT_ARCH_ARM, 397, tell_extended, 4}, /* statx */
    {AUDIT_ARCH_ARM, 439, tell_access, 2},   /* faccessat2 */
#endif
};

static tell *find(const struct call *call, int *ret_argument) {
  for (size_t i = 0; i < ARRAY_SIZE(tellings); i++) {
    if (tellings[i].number == call->trap->number &&
        tellings[i].architecture == call->trap->architecture) {
      *ret_argument = tellings[i].argument;
      return tellings[i].tell;
    }
  }
  return NULL;
}

int tell_call(const struct call *call, int object, struct told *ret_told) {
  int argument;
  tell *telling = find(call, &argument);
  ret_told->value = 0;
  ret_told->size = 0;
  if (!telling)
    return -ENOTSUP;
  uint64_t rights = caps_lay_down(); /* the caller has none */
  int result = telling(call, argument, object, ret_told);
  caps_take_up(rights);
  return result;
}

bool tell_is_of_space(const struct call *call) {
  int argument;
  return find(call, &argument) == tell_space;
}
