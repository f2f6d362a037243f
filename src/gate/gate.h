/* Makes an access to what is not yet allowed wait for a decision, and makes what was approved
 * visible. Two triggers behind one interface: FUSE and seccomp notify; one broker, one grant. Lives
 * in the monitor's loop: nothing here waits for a person, the broker or another request. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "engine/connector.h"
#include "engine/report.h"
#include "gate/access.h"
#include "plan/plan.h"
#include "session/decisions.h"

struct gate;

/* What a grant needs around it, by who has the session. */
struct gate_services {
  /* Makes a folder ready to be granted for writing. Returns a plan with, among others, what has to
   * be protected below it; NULL: it must not be granted. */
  const struct plan *(*prepare)(void *context, const char *folder);
  /* Something below a tree that is about to be granted was denied before: it stays so. Gives that
   * plan, with this in it; NULL: the tree must not be granted. */
  const struct plan *(*deny)(void *context, const struct denied_name *denied);
  void (*granted)(void *context, const char *path, bool writable);
  void (*taken)(void *context, const char *path);
  /* It was taken away, but who holds a folder of it may still read there. */
  void (*held)(void *context, const char *path);
  /* Makes a call of connect(2) that the gate has no more to say about. False: nobody does, so the
   * kernel has to. */
  bool (*connect)(void *context, int listener, const struct connect_call *call);
  /* The kernel has ended the gate: what is not granted stays closed, and nobody can be asked. */
  void (*ended)(void *context);
  void *context;
};

struct gate_config {
  const struct plan *plan;
  const struct policy *policy;
  const struct policy_context *context;
  struct decisions *decisions;
  /* Descriptors from the session's init; the gate owns them from now on. */
  int trigger; /* the FUSE device, or the seccomp listener */
  int mount_ns, user_ns;
  int pid_ns; /* FUSE; else -1 */
  int whole;  /* FUSE: all that the gate serves, from "/" on, attached nowhere; else -1 */
  /* What the session's own processes are about to use. */
  const struct announced_path *announced;
  const volatile pid_t *connecting; /* the thread for which the connector looks a name up */
  int root;                         /* seccomp notify: the workload's root; else -1 */
  struct gate_services services;
};

int gate_new(const struct gate_config *config, struct gate **ret_gate, struct sb_error *error);
void gate_free(struct gate *gate);

/* What to poll for, and what to do about it. */
#define GATE_WATCH_COUNT 4
void gate_watch(const struct gate *gate, struct pollfd ret_watched[GATE_WATCH_COUNT]);
void gate_serve(struct gate *gate, const struct pollfd watched[GATE_WATCH_COUNT]);

/* The device of what FUSE serves; 0: the gate is another, or there is none. */
dev_t gate_device(const struct gate *gate);

/* FUSE: has it opened files for the session? Who has them in memory is not for us to look at. */
bool gate_has_opened(const struct gate *gate);

/* What was granted for writing and covers the path; or NULL. */
const char *gate_writable_mount(const struct gate *gate, const char *path);

/* True if gate_serve has to be called now and then although nothing is to be polled. */
bool gate_wants_look(const struct gate *gate);

/* The host has changed a name in "/": the session's root follows, if the name is the gate's. */
void gate_follow(struct gate *gate, const char *path);

/* Takes an approved tree away again: new opens meet the gate, once gate_is_revoking() says no. What
 * is open stays open. Returns false if nothing of that name was granted in this session. */
bool gate_revoke(struct gate *gate, const char *path);
bool gate_is_revoking(const struct gate *gate);

/* Nothing at the path is denied any more: what is granted from now on is not covered there for
 * that.
 */
void gate_uncover(struct gate *gate, const char *path);
