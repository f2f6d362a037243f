/* Private to the connector: its parts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "engine/connector.h"

/* ---- who calls (connector-caller.c) ---- */

/* A call of connect(2) that waits. */
struct caller {
  uint64_t id;                     /* the kernel's */
  pid_t thread;                    /* as we see it */
  int number;                      /* of its descriptor */
  struct sockaddr_storage address; /* a copy: it cannot be changed any more */
  socklen_t length;
  int socket; /* a duplicate: what it stands for cannot be exchanged either; -1: not taken yet */
  int family; /* of that socket */
};

/* Takes the address of a call. 0, or the negative errno that the call earns: -EACCES if its memory
 * cannot be read. */
int caller_take(struct caller *ret_caller, const struct connect_call *call);

/* Takes its socket; `proc` is the host's /proc. 0 or the negative errno that the call earns. Not
 * for the monitor: to let go of a socket may take as long as its owner likes (SO_LINGER). */
int caller_take_socket(struct caller *caller, int listener, int proc);

/* Ends the call, if it still waits: 0 or a negative errno. */
void caller_answer(struct caller *caller, int listener, int result);

/* If it died, its number may be another's, and what we took of it as well. */
bool caller_still_waits(const struct caller *caller, int listener);

/* Does the address name an object of the file system? */
bool caller_names_object(const struct caller *caller);
bool caller_names_abstract(const struct caller *caller);

/* Is it a service of the host's that is never there? Looks in places of the session's own alone,
 * where no look can take long. */
bool caller_misses_service(const struct caller *caller, int proc);

/* Opens that object (O_PATH) as the caller would find it, or a link to it (O_NOFOLLOW); we stand in
 * the session's root. A descriptor or a negative errno. */
int caller_open_object(const struct caller *caller, int proc, int flags);

/* Is there a signal for it that it wants to handle? */
bool caller_is_signalled(const struct caller *caller, int proc);

/* Is there one that ends it while somebody is asked about it? */
bool caller_must_end(const struct caller *caller, int proc);

/* The process that it is a thread of, as we see it; 0: not known. */
pid_t caller_process(const struct caller *caller, int proc);

/* ---- the line to the monitor (connector-line.c) ---- */

/* What the monitor says: a call to be made, or what becomes of one that it was asked about. */
struct line_word {
  bool is_call;
  struct connect_call call;
  uint64_t id;
  int result;
};

/* All: 0 or a negative errno. */
int line_ask(int channel, const struct connect_question *question);
int line_withdraw(int channel, uint64_t id);
int line_tell_unreadable(int channel, int proc, pid_t thread);
int line_read(int channel, struct line_word *ret_word, int *ret_object);

/* ---- whose socket it is (connector-judge.c) ---- */

struct judge {
  const struct plan *plan;
  dev_t gate_device;   /* FUSE: what is of it is asked about, and never looked at; else 0 */
  int proc;            /* the host's /proc */
  int outside, inside; /* lines to the kernel: of the host's and of the session's network */
  int *held;           /* the plan's sockets, as long as they are there; -1: another one by now */
  uint64_t network;    /* the kernel's cookie of the latter; 0: not known */
};

/* Before the session's namespaces are entered. 0 or a negative errno. */
int judge_prepare(struct judge *judge, const struct connector_input *input, int proc);

/* Any process of the session will do. 0 or a negative errno. */
int judge_enter_network(struct judge *judge, pid_t thread);

/* May the session connect to the socket at this object? */
enum judged {
  JUDGED_ALLOWED,
  JUDGED_NAMED,   /* by policy */
  JUDGED_FOREIGN, /* it is another's, and visible */
  JUDGED_GATED,   /* it is the host's, and FUSE stands in its place */
  JUDGED_NOTHING, /* so it does in the place of something else, where nobody listens */
};
enum judged judge_object(const struct judge *judge, int object);

/* The path by which policy names it; NULL: it does not. */
const char *judge_named_path(const struct judge *judge, int object);

/* Is it a link, and not FUSE's word for a socket right below "/", which nobody may follow? */
bool judge_is_link(const struct judge *judge, int object);

/* Does FUSE stand in its place? */
bool judge_is_gated(const struct judge *judge, int object);

/* Opens what has this name in the session, following no link. A descriptor or a negative errno. */
int judge_open_named(const char *path);

bool judge_is_same(int object, int other);

/* Can the session rename what is there? */
bool judge_is_movable(int object);

/* Is the socket one of the session's network? Another's was handed in from outside. */
bool judge_knows_network(const struct judge *judge, int socket);

/* ---- one attempt (connector-attempt.c) ---- */

/* A call whose server is not ready yet, or that has to be allowed first. */
struct waiting {
  struct caller caller;
  bool asked, told; /* the monitor has yet to allow it, or has */
  int object;       /* what it connects to, opened and allowed, if it has a name of a file; or -1 */
  uint64_t until_ns; /* SO_SNDTIMEO; 0: for ever */
};

struct connecting {
  int listener, channel;
  bool is_told; /* of each call, by the channel */
  volatile pid_t *looks_for;
  int proc; /* the host's; also our working folder */
  struct judge judge;
  struct waiting *waiting;
  size_t waiting_count, waiting_limit;
  uint64_t retry_at_ns, signals_at_ns; /* when queues and signals are looked at again */
};

/* The result of an attempt that waits for the monitor's word. */
#define ATTEMPT_ASKED 1

/* Connects it, unless it is to be asked about first. 0, ATTEMPT_ASKED or the negative errno that
 * the call earns; if it has to wait, with the object that it names, opened. `ret_blocking`: would
 * the caller wait for the other side? */
int attempt_connect(struct connecting *connecting, const struct caller *caller, int *ret_object,
                    bool *ret_blocking);

/* The same with an object that was found and allowed before. */
int attempt_through(const struct caller *caller, int object, bool *ret_blocking);

/* Is that a result which the caller has to wait for? */
bool attempt_waits(const struct caller *caller, int result, bool blocking);
