/* The connector: a process outside the session that does every connect(2) of the session for it, in
 * static mode. A read-only mount does not stop connect(2) to a socket of the host, and the list of
 * sockets that is masked at the start cannot have those that come later, or whose names are
 * relative. So the call waits (seccomp notify), and the connector takes a duplicate of the socket
 * and its own copy of the address, finds the object in the session's view, and connects only if it
 * was bound inside, or if policy names it.
 *
 * No call is ever let go on (CONTINUE): the kernel would read socket and address again, and a
 * second thread may have changed both. For the same reason sockets of all families are connected
 * here.
 *
 * It is started by the first call that waits; most commands make none. It holds no power that the
 * command lacks, but to look at the session's processes and to enter their namespaces. Who is in
 * the way of it harms itself alone; if it dies, calls fail (ENOSYS) and the session is ended. */
#pragma once

#include <sys/types.h>

#include "core/error.h"
#include "engine/connecting.h"
#include "plan/plan.h"

struct connector {
  int channel; /* our end of the line to it: it ends when that is closed; -1: not started */
  pid_t pid;
};
#define CONNECTOR_NONE ((struct connector){.channel = -1, .pid = -1})

/* Takes a call that waits, and answers it if it is for a service that is not there: programs ask
 * for such right at their start (the C library for nscd), and that is no reason for one more
 * process. True if there is one. */
bool connector_is_needed(int listener, struct caller *ret_caller);

struct connector_input {
  int listener, user_ns, mount_ns; /* the session's; they stay the caller's */
  const struct plan *plan;
  const struct caller *first; /* what it has to begin with, or NULL */
};
int connector_start(struct connector *connector, const struct connector_input *input,
                    struct sb_error *error);

/* Makes sure that it ends; then waits until it is gone. */
void connector_end(struct connector *connector);
void connector_reap(struct connector *connector);
