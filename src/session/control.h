/* The control socket of a session: newline-delimited JSON from clients of the same user. Bounded in
 * every direction: clients, bytes of a line, bytes waiting to be sent. Never blocks the monitor. */
#pragma once

#include <jansson.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/error.h"
#include "core/file.h"

#define CONTROL_VERSION      1
#define CONTROL_CLIENT_LIMIT 512 /* as many as commands, see EXEC_LIMIT */
#define CONTROL_LINE_LIMIT   (1u << 20)
#define CONTROL_WATCH_LIMIT  (CONTROL_CLIENT_LIMIT + 1)

struct control;
struct client; /* one connection */

/* One request. `fds` came with it; a handler that keeps one sets it to -1. */
struct request {
  struct control *control;
  struct client *client;
  const json_t *body;
  const int *fds; /* those that came with it, -1 where none */
};

/* Handles a request; what it returns is sent as the reply (with the request's tag added), NULL
 * means that it answers later or has set the error. */
typedef json_t *control_handler(void *context, const struct request *request,
                                struct sb_error *error);

struct control_command {
  const char *name; /* "cmd.exec" */
  control_handler *handler;
  bool takes_descriptors;
};

/* Listens at <folder>/control.sock. The table ends with a NULL name. `gone` is told when a client
 * with whom something is under way has left. */
int control_open(const char *folder, const struct control_command *commands, void *context,
                 void (*gone)(void *context, struct client *client), struct control **ret_control,
                 struct sb_error *error);
void control_close(struct control *control);

/* Fills in what to wait for; returns how many. After poll, does what is ready. */
size_t control_watch(struct control *control, struct pollfd watched[CONTROL_WATCH_LIMIT]);

/* Has somebody's line been received and not been handled yet? Then there is no time to sleep. */
bool control_is_behind(const struct control *control);
void control_dispatch(struct control *control, const struct pollfd *watched, size_t count);

/* Who is at the other end, at the time of connecting: the kernel's word for user and process, the
 * process's own for its name. Escaped. */
const char *control_peer(const struct client *client);

/* Sends a message (takes the reference), with descriptors if any. `tag` is copied into it. */
void control_send(struct client *client, json_t *message, const json_t *tag, const int *fds,
                  size_t fd_count);
