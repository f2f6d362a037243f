/* What a thread that waits for us is doing; see quiet.h. */
#include "gate/quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "gate/target.h"

enum { NONE = -1, ATTEMPTS = 20 };

struct doing {
  struct target target;
  long number;
  uint64_t arguments[6];
};

/* What makes a call a quiet one. 32-bit programs have numbers of their own, and which table is
 * meant cannot be seen: a number is here only if it walks no path in the other (so not statfs64 and
 * sendmmsg of the one, which are fchmodat and faccessat of the other). */
static const struct quiet_row {
  long number;
  enum want want;
  int path, flags;         /* arguments; NONE: of no interest */
  uint64_t needs, forbids; /* bits of the flags */
  bool how;                /* the flags are in a struct open_how */
  enum stand_in_kind kind; /* who could make it in its place */
} rows[] = {
    {SYS_connect, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_CONNECT},
    {SYS_bind, WANT_WRITE, 1, NONE, 0, 0, false, STAND_IN_CANNOT},
    {SYS_inotify_add_watch, WANT_READ, 1, 2, 0, IN_DONT_FOLLOW, false, STAND_IN_WATCH},
    {SYS_openat, WANT_STAT, NONE, 2, O_PATH, O_NOFOLLOW, false, STAND_IN_CANNOT},
    {SYS_openat2, WANT_STAT, NONE, 2, O_PATH, O_NOFOLLOW, true, STAND_IN_CANNOT},
    {SYS_sendto, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_SEND},
    {SYS_sendmsg, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_MESSAGE},
    {SYS_statfs, WANT_STAT, NONE, NONE, 0, 0, false, STAND_IN_CANNOT},
#ifdef __x86_64__
    {SYS_open, WANT_STAT, NONE, 1, O_PATH, O_NOFOLLOW, false, STAND_IN_CANNOT},
    {5, WANT_STAT, NONE, 1, O_PATH, O_NOFOLLOW, false, STAND_IN_CANNOT}, /* i386 open */
    {99, WANT_STAT, NONE, NONE, 0, 0, false, STAND_IN_CANNOT},           /* i386 statfs */
    {292, WANT_READ, 1, 2, 0, IN_DONT_FOLLOW, false, STAND_IN_WATCH}, /* i386 inotify_add_watch */
    {295, WANT_STAT, NONE, 2, O_PATH, O_NOFOLLOW, false, STAND_IN_CANNOT}, /* i386 openat */
    {369, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_SEND},           /* i386 sendto */
    {370, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_CANNOT},         /* i386 sendmsg */
    {361, WANT_WRITE, 1, NONE, 0, 0, false, STAND_IN_CANNOT},              /* i386 bind */
    {362, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_CONNECT},        /* i386 connect */
#elif defined(__aarch64__)
    /* Not 5, 32-bit arm's open: it is setxattr. */
    {99, WANT_STAT, NONE, NONE, 0, 0, false, STAND_IN_CANNOT},        /* arm statfs */
    {282, WANT_WRITE, 1, NONE, 0, 0, false, STAND_IN_CANNOT},         /* arm bind */
    {283, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_CONNECT},   /* arm connect */
    {290, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_SEND},      /* arm sendto */
    {296, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_CANNOT},    /* arm sendmsg */
    {317, WANT_READ, 1, 2, 0, IN_DONT_FOLLOW, false, STAND_IN_WATCH}, /* arm inotify_add_watch */
    {322, WANT_STAT, NONE, 2, O_PATH, O_NOFOLLOW, false, STAND_IN_CANNOT}, /* arm openat */
#endif
};

/* "257 0xffffff9c 0x7ffe… …": the number and six arguments, or "running": it has asked us, but does
 * not sleep yet. It will in an instant, for it waits for our answer. */
static int read_call(pid_t thread, struct doing *ret_doing) {
  static const struct timespec instant = {.tv_nsec = 50000};
  char path[64];
  uint64_t *at = ret_doing->arguments;
  ret_doing->target.thread = thread;
  snprintf(path, sizeof path, "/proc/%d/syscall", (int)thread);
  for (int attempt = 0; thread > 0 && attempt < ATTEMPTS; attempt++) {
    _cleanup_free_ char *text = NULL;
    int result = file_read_at(AT_FDCWD, path, 4096, &text, NULL);
    if (result < 0)
      return result;
    if (strncmp(text, "running", strlen("running")) != 0)
      return sscanf(text, "%ld %lx %lx %lx %lx %lx %lx", &ret_doing->number, &at[0], &at[1], &at[2],
                    &at[3], &at[4], &at[5]) == 7
                 ? 0
                 : -EINVAL;
    nanosleep(&instant, NULL);
  }
  return -ESRCH;
}

static bool read_flags(const struct doing *doing, const struct quiet_row *row,
                       uint64_t *ret_flags) {
  *ret_flags = row->flags == NONE ? 0 : doing->arguments[row->flags];
  if (!row->how)
    return true;
  struct open_how how = {0};
  if (target_read(&doing->target, *ret_flags, &how, sizeof how) < 0)
    return false;
  *ret_flags = how.flags;
  return !(how.resolve & RESOLVE_NO_SYMLINKS); /* the question is a link to the kernel */
}

static const struct quiet_row *find_row(const struct doing *doing, bool *ret_forbidden) {
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    uint64_t flags;
    if (rows[i].number == doing->number && read_flags(doing, &rows[i], &flags) &&
        (flags & rows[i].needs) == rows[i].needs) {
      *ret_forbidden = flags & rows[i].forbids;
      return &rows[i];
    }
  }
  return NULL;
}

/* bind(2): the folder of the name in the socket's address. */
static int read_socket_folder(const struct doing *doing, char ret_path[PATH_MAX]) {
  struct sockaddr_un address = {0};
  uint64_t size = doing->arguments[2] & UINT32_MAX;
  size_t head = offsetof(struct sockaddr_un, sun_path);
  if (size <= head || size > sizeof address ||
      target_read(&doing->target, doing->arguments[1], &address, size) < 0 ||
      address.sun_family != AF_UNIX)
    return -EINVAL;
  memcpy(ret_path, address.sun_path, size - head);
  ret_path[size - head] = '\0';
  char *slash = strrchr(ret_path, '/');
  strcpy(slash ? slash + 1 : ret_path, ".");
  return 0;
}

/* Is the folder where the path ends, or is it only on the way? */
static bool is_end(const struct doing *doing, const struct quiet_row *row, const char *path) {
  char text[PATH_MAX], start[PATH_MAX];
  _cleanup_free_ char *whole = NULL, *object = NULL;
  _cleanup_close_ int folder = -1;
  if (row->path == NONE)
    return false;
  int result = row->want == WANT_WRITE
                   ? read_socket_folder(doing, text)
                   : target_read_path(&doing->target, doing->arguments[row->path], text);
  if (result < 0 || (text[0] != '/' && target_folder(&doing->target, AT_FDCWD, &folder, start) < 0))
    return false;
  whole = text[0] == '/' ? xstrdup(text) : xasprintf("%s/%s", start, text);
  return file_resolve(whole, &object) == 0 && strcmp(object, path) == 0;
}

/* A program that we may not look into (its file cannot be read) may be about to speak to a socket,
 * and there is nobody behind ours. */
static enum quiet judge_unknown(int result, const struct stat *object, struct quiet_use *ret_use) {
  ret_use->want = WANT_CONNECT;
  return (result == -EACCES || result == -EPERM) && S_ISSOCK(object->st_mode) ? QUIET_REFUSED
                                                                              : QUIET_NOT;
}

enum quiet quiet_call(pid_t thread, const char *path, const struct stat *object,
                      struct quiet_use *ret_use) {
  struct doing doing;
  bool folder = S_ISDIR(object->st_mode), stays = false;
  int result = read_call(thread, &doing);
  if (result < 0)
    return judge_unknown(result, object, ret_use);
  const struct quiet_row *row = find_row(&doing, &stays);
  if (!row || S_ISLNK(object->st_mode) || (row->want == WANT_WRITE && !folder) ||
      (row->want == WANT_CONNECT && !S_ISSOCK(object->st_mode)))
    return QUIET_NOT;
  if (folder && !is_end(&doing, row, path))
    return QUIET_NOT;
  ret_use->want = folder && row->want != WANT_WRITE ? WANT_LIST : row->want;
  /* It takes the socket itself, and whoever has that can speak to it. */
  if (S_ISSOCK(object->st_mode) && row->want == WANT_READ)
    ret_use->want = WANT_CONNECT;
  ret_use->call = (struct stand_in_call){.kind = row->kind, .target = doing.target};
  memcpy(ret_use->call.arguments, doing.arguments, sizeof doing.arguments);
  /* What is only held (O_PATH) is asked about when it is used. */
  return !stays ? QUIET_ASKED : row->want == WANT_STAT ? QUIET_NOT : QUIET_REFUSED;
}

bool quiet_has_descriptor(pid_t thread) {
  struct doing doing;
  if (read_call(thread, &doing) < 0)
    return false;
  return doing.number == SYS_fstat ||
         (doing.number == SYS_newfstatat && doing.arguments[3] & AT_EMPTY_PATH) ||
         (doing.number == SYS_statx && doing.arguments[2] & AT_EMPTY_PATH);
}

int quiet_arguments(pid_t thread, uint64_t ret_arguments[6]) {
  struct doing doing;
  int result = read_call(thread, &doing);
  if (result == 0)
    memcpy(ret_arguments, doing.arguments, sizeof doing.arguments);
  return result;
}
