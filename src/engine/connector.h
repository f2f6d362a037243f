/* The connector: a process outside the session that does every connect(2) of the session for it. A
 * read-only mount does not stop connect(2) to a socket of the host, and the list of sockets that is
 * masked at the start cannot have those that come later, or whose names are relative. So the call
 * waits (seccomp notify), and the connector takes a duplicate of the socket and its own copy of the
 * address, finds the object in the session's view, and connects if it was bound inside, or if
 * policy names it. Any other socket is refused in static mode; in dynamic mode the monitor decides,
 * or asks, and the call waits for that.
 *
 * No call is ever let go on (CONTINUE): the kernel would read socket and address again, and a
 * second thread may have changed both. For the same reason sockets of all families are connected
 * here.
 *
 * It is started by the first call that waits; most commands make none. It holds no power that the
 * command lacks, but to look at the session's processes and to enter their namespaces. Who is in
 * the way of it harms itself alone; if it dies, calls fail (ENOSYS) and the session is ended. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/error.h"
#include "plan/plan.h"

/* A call of connect(2) that waits, as the kernel tells of it. */
struct connect_call {
  uint64_t id;
  pid_t thread; /* as we see it */
  uint64_t arguments[3];
};

struct connector {
  int channel; /* our end of the line to it: it ends when that is closed; -1: not started */
  pid_t pid;
  struct unsaid *unsaid; /* words that the line has no room for yet */
  size_t unsaid_count;
};
#define CONNECTOR_NONE ((struct connector){.channel = -1, .pid = -1})

/* Takes the next call from the listener. False: there is none any more. */
bool connector_receive(int listener, struct connect_call *ret_call);

/* Answers it if it is for a service that is not there: programs ask for such right at their start
 * (the C library for nscd), and that is no reason for one more process. Reads the caller's memory,
 * and looks in its root. */
bool connector_can_spare(int listener, const struct connect_call *call);

struct connector_input {
  int listener, user_ns, mount_ns; /* the session's; they stay the caller's */
  bool is_told;                    /* of each call: the listener is somebody else's, too */
  dev_t gate_device;               /* what FUSE serves: sockets of the host, to be asked about */
  const struct plan *plan;
  volatile pid_t *connecting;       /* shared: for which thread it looks a name up; 0: none */
  const struct connect_call *first; /* what it has to begin with, or NULL */
};
int connector_start(struct connector *connector, const struct connector_input *input,
                    struct sb_error *error);

/* ---- what is said on the line, in dynamic mode ---- */

/* Nobody waits for it to listen: what the line has no room for is said later, in order. All of the
 * threads of a command may call at once. Both: 0, or a negative errno: it is gone. */

/* To it: a call that it is to make. */
int connector_tell(struct connector *connector, const struct connect_call *call);

/* To it: what becomes of a call that it asked about. 0: it is allowed, by way of `object` if that
 * is one (the caller's to close); or a negative errno. */
int connector_answer(struct connector *connector, uint64_t id, int result, int object);

/* Is there something left to say? Then, once the line has room again: 0 or a negative errno. */
bool connector_has_unsaid(const struct connector *connector);
int connector_say_more(struct connector *connector);

/* Nobody is there any more to be told. */
void connector_forget_unsaid(struct connector *connector);

/* From it: may a call connect to this socket, which was not bound inside? */
enum connect_about {
  CONNECT_TO_VISIBLE, /* to this object */
  CONNECT_TO_HIDDEN,  /* to what has this name on the host: something else is in its place inside */
  CONNECT_WITHDRAWN,  /* it was asked before, and nobody waits for the answer any more */
  CONNECT_UNREADABLE, /* no question: a process of this name was refused, for its memory cannot be
                         read */
};
struct connect_question {
  enum connect_about about;
  uint64_t id;
  pid_t process;       /* as we see it; 0: not known */
  bool movable;        /* the session may give its name to another */
  int object;          /* CONNECT_TO_VISIBLE: the receiver's to close; else -1 */
  char path[PATH_MAX]; /* in the session, and so on the host; CONNECT_UNREADABLE: a name */
};

/* Takes the next one. 0: there is none now; < 0: it is gone. */
int connector_listen(const struct connector *connector, struct connect_question *ret_question);

/* Makes sure that it ends; then waits until it is gone. */
void connector_end(struct connector *connector);
void connector_reap(struct connector *connector);
