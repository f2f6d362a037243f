/* Private to the connector: its parts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "plan/plan.h"

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

/* Takes the next call from the listener, with its address. False: there is none any more, or it has
 * been answered with the error that it earns. */
bool caller_receive(struct caller *ret_caller, int listener);

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

/* Opens that object (O_PATH) as the caller would find it; we stand in the session's root. A
 * descriptor or a negative errno. */
int caller_open_object(const struct caller *caller, int proc);

/* Is there a signal for it that it wants to handle? */
bool caller_is_signalled(const struct caller *caller, int proc);

/* ---- whose socket it is (connector-judge.c) ---- */

struct judge {
  const struct plan *plan;
  int proc;            /* the host's /proc */
  int outside, inside; /* lines to the kernel: of the host's and of the session's network */
  int *held;           /* the plan's sockets, as long as they are there; -1: another one by now */
  uint64_t network;    /* the kernel's cookie of the latter; 0: not known */
};

/* Before the session's namespaces are entered. 0 or a negative errno. */
int judge_prepare(struct judge *judge, const struct plan *plan, int proc);

/* Any process of the session will do. 0 or a negative errno. */
int judge_enter_network(struct judge *judge, pid_t thread);

/* May the session connect to the socket at this object? */
bool judge_allows(const struct judge *judge, int object);

/* Is the socket one of the session's network? Another's was handed in from outside. */
bool judge_knows_network(const struct judge *judge, int socket);
