/* What a call that only looks is told; see tell.h. Nothing is written here: the caller does that,
 * once it knows that the call still waits. */
#include "gate/tell.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/caps.h"

/* Linux 6.17; younger than the headers of most distributions. */
#ifndef SYS_file_getattr
#define SYS_file_getattr 468
#endif

typedef int tell(const struct call *call, int argument, int object, struct told *told);

/* AT_EACCESS: root would be asked about with all that it may have. */
static int test_access(int object, int mode) {
  return faccessat(object, "", mode, AT_EMPTY_PATH | AT_EACCESS) < 0 ? -errno : 0;
}

/* What is sent to a socket, a pipe or a device is not written there: no read-only mount forbids it.
 */
static int tell_access(const struct call *call, int argument, int object, struct told *told) {
  (void)told;
  int mode = (int)call->arguments[argument];
  struct stat status;
  if (test_access(object, mode) < 0 || fstat(object, &status) < 0)
    return -errno;
  return mode & W_OK && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) ? -EROFS : 0;
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

/* Links are walked without a question; but see notify_serve_covered(). */
static int tell_link(const struct call *call, int argument, int object, struct told *told) {
  size_t room = call->arguments[argument + 1];
  ssize_t length = readlinkat(object, "", told->data.bytes, PATH_MAX);
  if (length < 0 || room == 0 || room > INT_MAX)
    return -EINVAL;
  told->value = (size_t)length < room ? length : (ssize_t)room;
  told->address = call->arguments[argument];
  told->size = (size_t)told->value;
  return 0;
}

/* ---- extended attributes ---- */

struct room {
  uint64_t address;
  size_t size;
};

/* The value of an attribute, or with no name the names of all. */
static int tell_attribute(const char *name, struct room room, int object, struct told *told) {
  char path[64];
  size_t size = room.size > sizeof told->data.bytes ? sizeof told->data.bytes : room.size;
  snprintf(path, sizeof path, "/proc/self/fd/%d", object);
  ssize_t length =
      name ? getxattr(path, name, told->data.bytes, size) : listxattr(path, told->data.bytes, size);
  if (length < 0)
    return -errno;
  told->value = length;
  told->address = room.address;
  told->size = size ? (size_t)length : 0;
  return 0;
}

static int tell_value_in(const struct call *call, int name_argument, struct room room, int object,
                         struct told *told) {
  char name[PATH_MAX];
  int result = target_read_path(&call->target, call->arguments[name_argument], name);
  return result < 0 ? result : tell_attribute(name, room, object, told);
}

static int tell_value(const struct call *call, int argument, int object, struct told *told) {
  const struct room room = {call->arguments[argument], call->arguments[argument + 1]};
  return tell_value_in(call, argument - 1, room, object, told);
}

/* getxattrat(2), Linux 6.13, and younger than many headers: the room is told in a structure. */
static int tell_value_at(const struct call *call, int argument, int object, struct told *told) {
  struct {
    uint64_t value;
    uint32_t size, flags;
  } arguments;
  if (call->arguments[argument + 1] < sizeof arguments)
    return -EINVAL;
  int result = target_read(&call->target, call->arguments[argument], &arguments, sizeof arguments);
  if (result < 0 || arguments.flags != 0)
    return result < 0 ? result : -EINVAL;
  const struct room room = {arguments.value, arguments.size};
  return tell_value_in(call, argument - 1, room, object, told);
}

static int tell_names(const struct call *call, int argument, int object, struct told *told) {
  const struct room room = {call->arguments[argument], call->arguments[argument + 1]};
  return tell_attribute(NULL, room, object, told);
}

/* file_getattr(2), Linux 6.17: the kernel says what its structure is. */
static int tell_flags(const struct call *call, int argument, int object, struct told *told) {
  char path[64];
  size_t size = call->arguments[argument + 1];
  if (size > sizeof told->data.bytes)
    return -E2BIG;
  memset(told->data.bytes, 0, size);
  told->address = call->arguments[argument];
  told->size = size;
  snprintf(path, sizeof path, "/proc/self/fd/%d", object); /* it takes no descriptor to hold only */
  return syscall(SYS_file_getattr, AT_FDCWD, path, told->data.bytes, size, 0) < 0 ? -errno : 0;
}

/* ---- to 32-bit programs ----
 *
 * The kernel's structures are libc's on 64-bit machines; these are not. */

#define SECONDS(time) (uint32_t)(time).tv_sec, (uint32_t)(time).tv_nsec
#define PADDED_SPACE  88 /* what C makes of the structure on arm; the kernel takes it, too */

static int tell_small_status(const struct call *call, int argument, int object, struct told *told) {
  struct stat status;
  if (fstat(object, &status) < 0)
    return -errno;
  told->address = call->arguments[argument];
  told->size = sizeof told->data.small_status;
  told->data.small_status = (struct small_status){
      .device = status.st_dev,
      .short_inode = (uint32_t)status.st_ino,
      .mode = status.st_mode,
      .links = (uint32_t)status.st_nlink,
      .user = status.st_uid,
      .group = status.st_gid,
      .special = status.st_rdev,
      .size = (uint64_t)status.st_size,
      .block_size = {(uint32_t)status.st_blksize},
      .blocks = (uint64_t)status.st_blocks,
      .times = {SECONDS(status.st_atim), SECONDS(status.st_mtim), SECONDS(status.st_ctim)},
      .inode = status.st_ino,
  };
  return 0;
}

static bool fits(uint64_t count) {
  return count <= UINT32_MAX || count == UINT64_MAX; /* which says that there is no number */
}

static int tell_small_space(const struct call *call, int argument, int object, struct told *told) {
  struct statfs space;
  if (fstatfs(object, &space) < 0)
    return -errno;
  if (!fits(space.f_blocks) || !fits(space.f_bfree) || !fits(space.f_bavail) ||
      !fits(space.f_files) || !fits(space.f_ffree))
    return -EOVERFLOW;
  told->address = call->arguments[argument];
  told->size = sizeof told->data.small_space;
  told->data.small_space = (struct small_space){
      .type = (uint32_t)space.f_type,
      .block_size = (uint32_t)space.f_bsize,
      .blocks = {(uint32_t)space.f_blocks, (uint32_t)space.f_bfree, (uint32_t)space.f_bavail},
      .files = {(uint32_t)space.f_files, (uint32_t)space.f_ffree},
      .id = {space.f_fsid.__val[0], space.f_fsid.__val[1]},
      .name_length = (uint32_t)space.f_namelen,
      .fragment_size = (uint32_t)space.f_frsize,
      .flags = (uint32_t)space.f_flags,
  };
  return 0;
}

/* statfs64(path, size, …): what the caller takes the structure for has to be right. */
static int tell_middle_space(const struct call *call, int argument, int object, struct told *told) {
  struct statfs space;
  uint32_t size = (uint32_t)call->arguments[argument - 1];
  if (size != sizeof told->data.middle_space &&
      !(call->trap->architecture == AUDIT_ARCH_ARM && size == PADDED_SPACE))
    return -EINVAL;
  if (fstatfs(object, &space) < 0)
    return -errno;
  told->address = call->arguments[argument];
  told->size = sizeof told->data.middle_space;
  told->data.middle_space = (struct middle_space){
      .type = (uint32_t)space.f_type,
      .block_size = (uint32_t)space.f_bsize,
      .blocks = {space.f_blocks, space.f_bfree, space.f_bavail},
      .files = {space.f_files, space.f_ffree},
      .id = {space.f_fsid.__val[0], space.f_fsid.__val[1]},
      .name_length = (uint32_t)space.f_namelen,
      .fragment_size = (uint32_t)space.f_frsize,
      .flags = (uint32_t)space.f_flags,
  };
  return 0;
}

/* ---- which of them ---- */

enum { SMALL = 1, LARGE = 2, BOTH = SMALL | LARGE }; /* words of the program: 32 or 64 bits */

/* Every call of traps.def that looks, but for stat in the forms that are older than stat64. */
static const struct {
  const char *name;
  tell *tell;
  int argument; /* where the answer goes, or what is asked for */
  unsigned words;
} tellings[] = {
    {"access", tell_access, 1, BOTH},
    {"faccessat", tell_access, 2, BOTH},
    {"faccessat2", tell_access, 2, BOTH},
    {"file_getattr", tell_flags, 2, BOTH},
    {"fstatat64", tell_small_status, 2, SMALL},
    {"getxattr", tell_value, 2, BOTH},
    {"getxattrat", tell_value_at, 4, BOTH},
    {"lgetxattr", tell_value, 2, BOTH},
    {"listxattr", tell_names, 1, BOTH},
    {"listxattrat", tell_names, 3, BOTH},
    {"llistxattr", tell_names, 1, BOTH},
    {"lstat", tell_status, 1, LARGE},
    {"lstat64", tell_small_status, 1, SMALL},
    {"newfstatat", tell_status, 2, LARGE},
    {"readlink", tell_link, 1, BOTH},
    {"readlinkat", tell_link, 2, BOTH},
    {"stat", tell_status, 1, LARGE},
    {"stat64", tell_small_status, 1, SMALL},
    {"statfs", tell_space, 1, LARGE},
    {"statfs", tell_small_space, 1, SMALL},
    {"statfs64", tell_middle_space, 2, SMALL},
    {"statx", tell_extended, 4, BOTH},
};

static tell *find(const struct call *call, int *ret_argument) {
  unsigned words = call->trap->architecture & __AUDIT_ARCH_64BIT ? LARGE : SMALL;
  for (size_t i = 0; i < ARRAY_SIZE(tellings); i++) {
    if (tellings[i].words & words && strcmp(tellings[i].name, call->trap->name) == 0) {
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

int tell_rights(const struct call *call, int object) {
  uint64_t rights = caps_lay_down();
  int result = test_access(object, (int)call->arguments[call->trap->at[0].path + 1]);
  caps_take_up(rights);
  return result;
}

bool tell_is_of_space(const struct call *call) {
  return strcmp(call->trap->name, "statfs") == 0 || strcmp(call->trap->name, "statfs64") == 0;
}
