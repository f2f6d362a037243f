/* Who is asked in a session: its decisions, the prompt on its terminal, and the clients of its
 * control socket that watch. What monitor.c needs of all that is one call each. */
#pragma once

#include <poll.h>

#include "session/control.h"
#include "session/decisions.h"
#include "session/prompt.h"

struct monitor;
struct watcher; /* a client that watches */
struct revoking;

struct supervision {
  struct decisions *decisions; /* NULL: a session that asks nobody */
  struct prompt *prompt;       /* NULL: no terminal to ask at */
  struct watcher **watchers;
  size_t watcher_count;
  struct revoking *revoking; /* who is to be told when a revocation has taken effect */
};

/* Before the first command runs, once the plan is there. */
int supervision_start(struct monitor *monitor, struct sb_error *error);

/* In the monitor's loop. */
void supervision_watch(const struct monitor *monitor, struct pollfd *watched);
void supervision_step(struct monitor *monitor, const struct pollfd *watched);
uint64_t supervision_next_step(const struct monitor *monitor); /* 0: not at all */
void supervision_redraw(struct monitor *monitor);
void supervision_lend(struct monitor *monitor); /* the terminal, until we go on */
void supervision_gate_ended(void *monitor);     /* by the kernel: nobody can be asked any more */
void supervision_client_gone(struct monitor *monitor, const struct client *client);

/* Nobody is asked any more; the terminal is the relay's. */
void supervision_hide(struct monitor *monitor);

/* Denies what still waits, says what could not be said before, and moves what was denied into the
 * result. */
void supervision_end(struct monitor *monitor);

/* The commands of docs/PROTOCOL.md about requests; see monitor_commands. */
control_handler on_watch, on_pending, on_approve, on_deny, on_revoke, on_policy_save;
