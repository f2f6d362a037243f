/* Commands that clients run in the session, as the monitor sees them: who asked, and what became of
 * it. The session's init starts them; the monitor only carries messages and descriptors. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "core/error.h"
#include "engine/engine.h"
#include "session/control.h"
#include "session/log.h"

struct exec_entry {
  uint32_t id;
  struct client *client; /* NULL: it left */
  json_t *tag;
  uint64_t asked_ns;
  bool started, told_to_end;
};

struct execs {
  struct exec_entry *items;
  size_t count;
  uint32_t next_id;
  uint64_t total;        /* ever started */
  const struct log *log; /* where their ends are noted */
};

/* cmd.exec: {"argv":[…], "cwd":…, "env":["K=V"], "tty":bool} with three descriptors or a tty. What
 * is not UTF-8 comes as argv_b64, cwd_b64, env_b64 instead. */
int execs_request(struct execs *execs, struct engine *engine, const struct request *request,
                  struct sb_error *error);

/* A message of init about one of them. */
void execs_message(struct execs *execs, struct engine *engine, const struct message *message,
                   const int *fds);

/* Something the user should know, to everybody with a command here: a detached session has nobody
 * else to tell. */
void execs_warn(const struct execs *execs, const char *text);

/* cmd.exec.signal: {"id":…, "signal":n}. */
int execs_signal(struct execs *execs, struct engine *engine, const struct request *request,
                 struct sb_error *error);

/* The client is gone: its commands are ended. */
void execs_client_gone(struct execs *execs, struct engine *engine, const struct client *client);
void execs_clear(struct execs *execs);
