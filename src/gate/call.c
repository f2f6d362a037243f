/* Decodes trapped calls; see call.h. The table is src/engine/traps.def. */
#include "gate/call.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/cleanup.h"

/* ---- reading ---- */

static int read_how(struct call *call) {
  struct open_how how = {0};
  uint64_t size = call->arguments[3];
  if (size < sizeof how)
    return -EINVAL; /* as the kernel says */
  int result = target_read(&call->target, call->arguments[call->trap->flags], &how, sizeof how);
  call->flags = how.flags;
  call->resolve = how.resolve;
  return result;
}

/* All that the kernel goes by, with O_PATH; but openat2(2) refuses others. */
#define PATH_FLAGS (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static uint64_t open_flags(uint64_t flags) {
  return flags & (flags & O_PATH ? PATH_FLAGS : UINT32_MAX);
}

static bool opens_link(uint64_t flags) {
  return flags & O_NOFOLLOW || ((flags & O_CREAT) && (flags & O_EXCL));
}

int call_begin(struct call *call, const struct trap *trap,
               const struct seccomp_notif *notification) {
  *call = (struct call){.trap = trap,
                        .target = {.thread = (pid_t)notification->pid},
                        .id = notification->id,
                        .follow = trap->links != TRAP_NOFOLLOW};
  for (size_t i = 0; i < ARRAY_SIZE(call->arguments); i++)
    call->arguments[i] = notification->data.args[i];
  uint64_t flags = trap->flags >= 0 ? call->arguments[trap->flags] : 0;
  int result = 0;
  if (trap->kind == TRAP_OPEN)
    call->flags = open_flags(flags);
  else if (trap->kind == TRAP_HOW)
    result = read_how(call);
  else if (trap->kind == TRAP_CREATE)
    call->flags = O_WRONLY | O_CREAT | O_TRUNC;
  else if (trap->links == TRAP_AT)
    call->follow = !(flags & AT_SYMLINK_NOFOLLOW);
  else if (trap->links == TRAP_WATCH)
    call->follow = !(flags & IN_DONT_FOLLOW);
  else if (trap->links == TRAP_LINK)
    call->follow = flags & AT_SYMLINK_FOLLOW;
  if (opens_link(call->flags))
    call->follow = false;
  return result;
}

/* The name of a socket need not end. Abstract ones are no files. */
static int read_socket(const struct call *call, char ret_path[PATH_MAX]) {
  struct sockaddr_un address = {0};
  int at = call->trap->at[0].path; /* the length comes next */
  size_t size = call->arguments[at + 1] & UINT32_MAX, head = offsetof(struct sockaddr_un, sun_path);
  ret_path[0] = '\0';
  if (size <= head || size > sizeof address)
    return 0;
  int result = target_read(&call->target, call->arguments[at], &address, size);
  if (result < 0 || address.sun_family != AF_UNIX)
    return result;
  memcpy(ret_path, address.sun_path, size - head);
  ret_path[size - head] = '\0';
  return 0;
}

int call_path(const struct call *call, size_t index, char ret_path[PATH_MAX]) {
  uint64_t address = call->arguments[call->trap->at[index].path];
  if (call->trap->kind == TRAP_CONNECT || call->trap->kind == TRAP_BIND)
    return read_socket(call, ret_path);
  ret_path[0] = '\0';
  return address ? target_read_path(&call->target, address, ret_path) : 0;
}

size_t call_path_count(const struct call *call) {
  return call->trap->at[1].path == TRAP_NONE ? 1 : 2;
}

bool call_follows(const struct call *call, size_t index) {
  return call->follow && index == 0;
}

bool call_is_of_descriptor(const struct call *call) {
  bool goes_on = call->trap->kind == TRAP_EXECUTE || call_path_count(call) > 1;
  return goes_on && call->trap->flags >= 0 && call->arguments[call->trap->flags] & AT_EMPTY_PATH;
}

int call_base(const struct call *call, size_t index) {
  int base = call->trap->at[index].base;
  return base == TRAP_CWD ? AT_FDCWD : (int)(uint32_t)call->arguments[base];
}

/* ---- judging ---- */

static bool is_open(const struct call *call) {
  return call->trap->kind == TRAP_OPEN || call->trap->kind == TRAP_HOW ||
         call->trap->kind == TRAP_CREATE;
}

static bool writes(const struct call *call) {
  return (call->flags & O_ACCMODE) != O_RDONLY || call->flags & O_TRUNC;
}

bool call_only_reads(const struct call *call) {
  return is_open(call) && !(call->flags & O_PATH) && !writes(call) && call->resolve == 0;
}

bool call_holds(const struct call *call) {
  return is_open(call) && call->flags & O_PATH && call->resolve == 0;
}

bool call_connects(const struct call *call) {
  return call->trap->kind == TRAP_CONNECT && call->trap->at[0].path == 1;
}

bool call_may_write(const struct call *call) {
  enum trap_kind kind = call->trap->kind;
  if (is_open(call))
    return !(call->flags & O_PATH) && (writes(call) || call->flags & O_CREAT);
  return kind == TRAP_CHANGE || kind == TRAP_MAKE || kind == TRAP_FOLDER || kind == TRAP_REMOVE ||
         kind == TRAP_BIND;
}

bool call_tests_writing(const struct call *call) {
  return call->trap->kind == TRAP_TEST && call->arguments[call->trap->at[0].path + 1] & W_OK;
}

static struct judged ask(enum want want) {
  return (struct judged){CALL_ASK, want, 0};
}

static struct judged just(enum call_verdict verdict) {
  return (struct judged){verdict, WANT_WRITE, 0};
}

static struct judged fail(int errnum) {
  return (struct judged){CALL_ERROR, WANT_READ, errnum};
}

static struct judged judge_open(const struct call *call, const struct found *found) {
  uint64_t flags = call->flags;
  bool path_only = flags & O_PATH;
  switch (found->place) {
  case PLACE_MISSING:
    return just(flags & O_CREAT && !path_only ? CALL_WRITE_FOLDER : CALL_FREE);
  case PLACE_FOLDER:
    if ((flags & O_TMPFILE) == O_TMPFILE && !path_only)
      return just(CALL_WRITE);
    /* Also without reading it: what is granted later would not be found below the descriptor. */
    return writes(call) || flags & O_CREAT ? just(CALL_FREE) : ask(WANT_LIST);
  case PLACE_GATED:
    if (flags & O_DIRECTORY)
      return fail(ENOTDIR);
    if (path_only) /* whoever has a socket can speak to it, by way of /proc/self/fd */
      return ask(S_ISSOCK(found->status.st_mode) ? WANT_CONNECT : WANT_STAT);
    if (flags & O_CREAT && flags & O_EXCL)
      return fail(EEXIST);
    return writes(call) ? just(CALL_WRITE) : ask(WANT_READ);
  default:
    return just(CALL_FREE);
  }
}

static bool exists(const struct found *found) {
  return found->place == PLACE_FOLDER || found->place == PLACE_LINK || found->place == PLACE_GATED;
}

static struct judged judge_make(const struct call *call, size_t index, const struct found *found) {
  bool is_source = call_path_count(call) == 2 && index == 0; /* link(2) */
  if (exists(found))
    return fail(is_source ? EXDEV : call->trap->kind == TRAP_BIND ? EADDRINUSE : EEXIST);
  return just(found->place == PLACE_MISSING && !is_source ? CALL_WRITE_FOLDER : CALL_FREE);
}

static struct judged judge_remove(size_t index, const struct found *found) {
  bool becomes = index == 1 && found->place == PLACE_MISSING; /* rename(2) to it */
  return just(exists(found) || becomes ? CALL_WRITE_FOLDER : CALL_FREE);
}

struct judged call_judge(const struct call *call, size_t index, const struct found *found) {
  static const enum want wants[] = {[TRAP_STAT] = WANT_STAT,
                                    [TRAP_TEST] = WANT_STAT,
                                    [TRAP_READ] = WANT_READ,
                                    [TRAP_EXECUTE] = WANT_EXECUTE,
                                    [TRAP_CONNECT] = WANT_CONNECT};
  if (is_open(call))
    return judge_open(call, found);
  switch (call->trap->kind) {
  case TRAP_ENTER:
    return found->place == PLACE_FOLDER  ? ask(WANT_LIST)
           : found->place == PLACE_GATED ? fail(ENOTDIR)
                                         : just(CALL_FREE);
  case TRAP_BIND:
  case TRAP_MAKE:
  case TRAP_FOLDER:
    return judge_make(call, index, found);
  case TRAP_REMOVE:
    return judge_remove(index, found);
  case TRAP_CHANGE:
    return just(exists(found) ? CALL_WRITE : CALL_FREE);
  default:
    if (call->trap->links == TRAP_WATCH && found->place == PLACE_FOLDER)
      return ask(WANT_LIST); /* its likeness would never change */
    return found->place == PLACE_GATED ? ask(wants[call->trap->kind]) : just(CALL_FREE);
  }
}
