/* One attempt to connect: what does the address lead to, may the session have it, and who is to be
 * asked if that is not known? Never connects by a name that could lead elsewhere by then, and never
 * waits for a server. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/connecting.h"

/* ---- connecting ---- */

/* Never waits, unless the session itself arranges for it: the flag is one of the socket, which the
 * caller has, too. */
static int connect_now(int socket, const void *address, socklen_t length, bool *ret_blocking) {
  int flags = fcntl(socket, F_GETFL);
  if (flags < 0)
    return -errno;
  *ret_blocking = !(flags & O_NONBLOCK);
  if (*ret_blocking)
    fcntl(socket, F_SETFL, flags | O_NONBLOCK);
  int result = connect(socket, address, length) < 0 ? -errno : 0;
  if (*ret_blocking)
    fcntl(socket, F_SETFL, flags);
  return result;
}

/* What a call that may block would wait for: room in a queue, or the other side's answer. */
bool attempt_waits(const struct caller *caller, int result, bool blocking) {
  if (result == ATTEMPT_ASKED)
    return true;
  return blocking && (caller->family == AF_UNIX ? result == -EAGAIN
                                                : result == -EINPROGRESS || result == -EALREADY);
}

/* The object itself, whatever becomes of its name: by way of our own descriptor. */
static struct sockaddr_un address_of(int object) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "self/fd/%d", object);
  return address;
}

int attempt_through(const struct caller *caller, int object, bool *ret_blocking) {
  struct sockaddr_un address = address_of(object);
  return connect_now(caller->socket, &address, sizeof address, ret_blocking);
}

/* Is anybody there who could be connected to? He learns nothing of this: his socket is of another
 * kind, or takes datagrams and gets none. 0, or what a call gets without him. */
static int find_server(int object) {
  struct sockaddr_un address = address_of(object);
  _cleanup_close_ int probe = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0 || connect(probe, (struct sockaddr *)&address, sizeof address) == 0)
    return 0;
  return errno == ECONNREFUSED || errno == EACCES ? -errno : 0;
}

/* ---- asking ---- */

static bool read_path(const struct connecting *connecting, int object, char ret_path[PATH_MAX]) {
  char name[64];
  snprintf(name, sizeof name, "self/fd/%d", object);
  ssize_t length = readlinkat(connecting->proc, name, ret_path, PATH_MAX - 1);
  ret_path[length < 0 ? 0 : length] = '\0';
  return ret_path[0] == '/';
}

static int ask(const struct connecting *connecting, const struct caller *caller,
               struct connect_question *question) {
  if (connecting->waiting_count >= connecting->waiting_limit)
    return -EAGAIN;
  question->id = caller->id;
  question->process = caller_process(caller, connecting->proc);
  return line_ask(connecting->channel, question) < 0 ? -EACCES : ATTEMPT_ASKED;
}

/* Who started from a folder that he has held for long may have it by a mount that is covered by
 * another, or gone, with the name that it had there. Only what its name leads to is asked about,
 * and the mount by which it does tells whether it can be renamed. */
static bool name_object(const struct connecting *connecting, int object,
                        struct connect_question *question) {
  if (!read_path(connecting, object, question->path))
    return false;
  _cleanup_close_ int named = judge_open_named(question->path);
  question->movable = judge_is_movable(object) || judge_is_movable(named);
  return judge_is_same(object, named);
}

/* To static mode nobody is there; programs know what to do then. */
static int ask_about_foreign(const struct connecting *connecting, const struct caller *caller,
                             int object) {
  struct connect_question question = {.about = CONNECT_TO_VISIBLE, .object = object};
  int result = connecting->judge.plan->gate == GATE_NONE ? -ECONNREFUSED : find_server(object);
  if (result < 0)
    return result;
  return name_object(connecting, object, &question) ? ask(connecting, caller, &question) : -EACCES;
}

/* The host's own, by the name that FUSE has for it. */
static int ask_about_gated(const struct connecting *connecting, const struct caller *caller,
                           int object) {
  struct connect_question question = {.about = CONNECT_TO_HIDDEN, .object = -1};
  return read_path(connecting, object, question.path) ? ask(connecting, caller, &question)
                                                      : -EACCES;
}

/* Its server has started anew: where only the socket itself is mounted, another has its name by
 * now, and the monitor can find it. */
static int connect_named(const struct connecting *connecting, const struct caller *caller,
                         int object, bool *ret_blocking) {
  struct connect_question question = {.about = CONNECT_TO_HIDDEN, .object = -1};
  int result = attempt_through(caller, object, ret_blocking);
  const char *path = judge_named_path(&connecting->judge, object);
  if (result != -ECONNREFUSED || connecting->judge.plan->gate == GATE_NONE || !path)
    return result;
  snprintf(question.path, sizeof question.path, "%s", path);
  return ask(connecting, caller, &question);
}

static int follow_object(const struct connecting *connecting, const struct caller *caller) {
  _cleanup_close_ int object = caller_open_object(caller, connecting->proc, O_NOFOLLOW);
  if (object < 0 || !judge_is_link(&connecting->judge, object))
    return steal_fd(&object);
  return caller_open_object(caller, connecting->proc, 0);
}

/* FUSE still serves a folder to who has held it since before it was allowed; what counts is what
 * was mounted over it. */
static int look_up(const struct connecting *connecting, const struct caller *caller) {
  char path[PATH_MAX];
  _cleanup_close_ int object = follow_object(connecting, caller);
  if (object < 0 || !judge_is_gated(&connecting->judge, object) ||
      !read_path(connecting, object, path))
    return steal_fd(&object);
  _cleanup_close_ int named = judge_open_named(path);
  return named < 0 ? steal_fd(&object) : steal_fd(&named);
}

/* To the gate it is us who looks; what it writes down is to name who wants to know. */
static int open_object(const struct connecting *connecting, const struct caller *caller) {
  *connecting->looks_for = caller->thread;
  int object = look_up(connecting, caller);
  *connecting->looks_for = 0;
  return object;
}

static int connect_judged(const struct connecting *connecting, const struct caller *caller,
                          int object, bool *ret_blocking) {
  switch (judge_object(&connecting->judge, object)) {
  case JUDGED_ALLOWED:
    return attempt_through(caller, object, ret_blocking);
  case JUDGED_NAMED:
    return connect_named(connecting, caller, object, ret_blocking);
  case JUDGED_FOREIGN:
    return ask_about_foreign(connecting, caller, object);
  case JUDGED_GATED:
    return ask_about_gated(connecting, caller, object);
  case JUDGED_NOTHING:
    break;
  }
  return -ECONNREFUSED;
}

/* For who has to wait, the object is kept. */
static int connect_object(struct connecting *connecting, const struct caller *caller,
                          int *ret_object, bool *ret_blocking) {
  _cleanup_close_ int object = open_object(connecting, caller);
  if (object < 0)
    return object;
  int result = judge_enter_network(&connecting->judge, caller->thread);
  if (result < 0)
    return -EPERM;
  result = connect_judged(connecting, caller, object, ret_blocking);
  if (attempt_waits(caller, result, *ret_blocking))
    *ret_object = steal_fd(&object);
  return result;
}

/* Landlock keeps abstract names of the host from the session, but not from us. */
static int check_network(struct connecting *connecting, const struct caller *caller) {
  int result = judge_enter_network(&connecting->judge, caller->thread);
  return result < 0 || !judge_knows_network(&connecting->judge, caller->socket) ? -EPERM : 0;
}

int attempt_connect(struct connecting *connecting, const struct caller *caller, int *ret_object,
                    bool *ret_blocking) {
  *ret_blocking = false;
  if (caller_names_object(caller))
    return connect_object(connecting, caller, ret_object, ret_blocking);
  int result = caller_names_abstract(caller) ? check_network(connecting, caller) : 0;
  return result < 0 ? result
                    : connect_now(caller->socket, &caller->address, caller->length, ret_blocking);
}
