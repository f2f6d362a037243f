/* What a thread that waits for us is doing; see quiet.h. */
#include "gate/quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "gate/doing.h"

enum { NONE = -1 };

/* What makes a call a quiet one. */
static const struct quiet_row {
  bool compat; /* a 32-bit program's number */
  long number;
  enum want want;
  int path, flags;         /* arguments; NONE: of no interest */
  uint64_t needs, forbids; /* bits of the flags */
  bool how;                /* the flags are in a struct open_how */
  enum stand_in_kind kind; /* who could make it in its place */
  bool pipe;               /* quiet only for a FIFO: anything else is opened through us */
} rows[] = {
    {false, SYS_connect, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_CONNECT},
    {false, SYS_bind, WANT_WRITE, 1, NONE, 0, 0, false, STAND_IN_CANNOT},
    {false, SYS_inotify_add_watch, WANT_READ, 1, 2, 0, IN_DONT_FOLLOW, false, STAND_IN_WATCH},
    {false, SYS_openat, WANT_STAT, NONE, 2, O_PATH, O_NOFOLLOW, false, STAND_IN_CANNOT},
    {false, SYS_openat2, WANT_STAT, NONE, 2, O_PATH, O_NOFOLLOW, true, STAND_IN_CANNOT},
    {false, SYS_openat, WANT_READ, NONE, 2, 0, O_NOFOLLOW, false, STAND_IN_CANNOT, true},
    {false, SYS_openat2, WANT_READ, NONE, 2, 0, O_NOFOLLOW, true, STAND_IN_CANNOT, true},
    {false, SYS_sendto, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_SEND},
    {false, SYS_sendmsg, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_MESSAGE},
    {false, SYS_statfs, WANT_STAT, NONE, NONE, 0, 0, false, STAND_IN_CANNOT},
#ifdef __x86_64__
    {false, SYS_open, WANT_STAT, NONE, 1, O_PATH, O_NOFOLLOW, false, STAND_IN_CANNOT},
    {false, SYS_open, WANT_READ, NONE, 1, 0, O_NOFOLLOW, false, STAND_IN_CANNOT, true},
    {true, 5, WANT_STAT, NONE, 1, O_PATH, O_NOFOLLOW, false, STAND_IN_CANNOT},   /* i386 open */
    {true, 5, WANT_READ, NONE, 1, 0, O_NOFOLLOW, false, STAND_IN_CANNOT, true},  /* i386 open */
    {true, 99, WANT_STAT, NONE, NONE, 0, 0, false, STAND_IN_CANNOT},             /* i386 statfs */
    {true, 268, WANT_STAT, NONE, NONE, 0, 0, false, STAND_IN_CANNOT},            /* i386 statfs64 */
    {true, 292, WANT_READ, 1, 2, 0, IN_DONT_FOLLOW, false, STAND_IN_WATCH},      /* i386 watch */
    {true, 295, WANT_STAT, NONE, 2, O_PATH, O_NOFOLLOW, false, STAND_IN_CANNOT}, /* i386 openat */
    {true, 295, WANT_READ, NONE, 2, 0, O_NOFOLLOW, false, STAND_IN_CANNOT, true}, /* i386 openat */
    {true, 369, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_SEND},            /* i386 sendto */
    {true, 370, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_CANNOT},          /* i386 sendmsg */
    {true, 361, WANT_WRITE, 1, NONE, 0, 0, false, STAND_IN_CANNOT},               /* i386 bind */
    {true, 362, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_CONNECT},         /* i386 connect */
#elif defined(__aarch64__)
    {true, 5, WANT_STAT, NONE, 1, O_PATH, O_NOFOLLOW, false, STAND_IN_CANNOT},    /* arm open */
    {true, 5, WANT_READ, NONE, 1, 0, O_NOFOLLOW, false, STAND_IN_CANNOT, true},   /* arm open */
    {true, 99, WANT_STAT, NONE, NONE, 0, 0, false, STAND_IN_CANNOT},              /* arm statfs */
    {true, 266, WANT_STAT, NONE, NONE, 0, 0, false, STAND_IN_CANNOT},             /* arm statfs64 */
    {true, 282, WANT_WRITE, 1, NONE, 0, 0, false, STAND_IN_CANNOT},               /* arm bind */
    {true, 283, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_CONNECT},         /* arm connect */
    {true, 290, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_SEND},            /* arm sendto */
    {true, 296, WANT_CONNECT, NONE, NONE, 0, 0, false, STAND_IN_CANNOT},          /* arm sendmsg */
    {true, 317, WANT_READ, 1, 2, 0, IN_DONT_FOLLOW, false, STAND_IN_WATCH},       /* arm watch */
    {true, 322, WANT_STAT, NONE, 2, O_PATH, O_NOFOLLOW, false, STAND_IN_CANNOT},  /* arm openat */
    {true, 322, WANT_READ, NONE, 2, 0, O_NOFOLLOW, false, STAND_IN_CANNOT, true}, /* arm openat */
#endif
};

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

static const struct quiet_row *find_row(const struct doing *doing, bool *ret_forbidden,
                                        bool *ret_writes) {
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    uint64_t flags;
    if (rows[i].number == doing->number && rows[i].compat == doing->compat &&
        read_flags(doing, &rows[i], &flags) && (flags & rows[i].needs) == rows[i].needs) {
      *ret_forbidden = flags & rows[i].forbids;
      *ret_writes = rows[i].pipe && (flags & O_ACCMODE) != O_RDONLY;
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
  char text[PATH_MAX];
  if (row->path == NONE)
    return false;
  int result = row->want == WANT_WRITE
                   ? read_socket_folder(doing, text)
                   : target_read_path(&doing->target, doing->arguments[row->path], text);
  return result == 0 && doing_leads_to(doing, AT_FDCWD, text, path);
}

/* A program that we may not look into (its file cannot be read) may be about to speak to a socket,
 * and there is nobody behind ours. */
static enum quiet judge_unknown(int result, const struct stat *object, struct quiet_use *ret_use) {
  *ret_use = (struct quiet_use){.want = WANT_CONNECT};
  return (result == -EACCES || result == -EPERM) && S_ISSOCK(object->st_mode) ? QUIET_REFUSED
                                                                              : QUIET_NOT;
}

enum quiet quiet_call(const struct target *target, const char *path, const struct stat *object,
                      struct quiet_use *ret_use) {
  struct doing doing;
  bool folder = S_ISDIR(object->st_mode), stays = false, writes = false;
  int result = doing_read(target, &doing);
  if (result < 0)
    return judge_unknown(result, object, ret_use);
  const struct quiet_row *row = find_row(&doing, &stays, &writes);
  if (!row || S_ISLNK(object->st_mode) || (row->want == WANT_WRITE && !folder) ||
      (row->pipe && !S_ISFIFO(object->st_mode)) ||
      (row->want == WANT_CONNECT && !S_ISSOCK(object->st_mode)))
    return QUIET_NOT;
  if (folder && !is_end(&doing, row, path))
    return QUIET_NOT;
  ret_use->want = folder && row->want != WANT_WRITE ? WANT_LIST : writes ? WANT_WRITE : row->want;
  /* It takes the socket itself, and whoever has that can speak to it. */
  if (S_ISSOCK(object->st_mode) && (row->want == WANT_READ || row->needs == O_PATH))
    ret_use->want = WANT_CONNECT;
  ret_use->call = (struct stand_in_call){.kind = row->kind, .target = doing.target};
  memcpy(ret_use->call.arguments, doing.arguments, sizeof doing.arguments);
  /* What is only held (O_PATH) is asked about when it is used. */
  return !stays ? QUIET_ASKED : row->want == WANT_STAT ? QUIET_NOT : QUIET_REFUSED;
}

bool quiet_has_descriptor(const struct target *target) {
  struct doing doing;
  if (doing_read(target, &doing) < 0 || doing.compat)
    return false;
  return doing.number == SYS_fstat ||
         (doing.number == SYS_newfstatat && doing.arguments[3] & AT_EMPTY_PATH) ||
         (doing.number == SYS_statx && doing.arguments[2] & AT_EMPTY_PATH);
}

/* A number of the other table that is something else in this one is no call that looks. */
bool quiet_changes_owner(const struct target *target) {
  struct doing doing;
  if (doing_read(target, &doing) < 0)
    return false;
  switch (doing.number) {
  case SYS_fchownat:
  case SYS_fchown:
#ifdef __x86_64__
  case SYS_chown:
  case SYS_lchown:
  /* i386: chown, lchown, fchown, fchownat */
  case 182:
  case 16:
  case 95:
  case 298:
#elif defined(__aarch64__)
  /* arm: fchownat */
  case 325:
#endif
  /* either: lchown32, fchown32, chown32 */
  case 198:
  case 207:
  case 212:
    return true;
  default:
    return false;
  }
}
