/* The other end of a control socket: how verbs and programs talk to a session. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

struct client_connection {
  int fd;
  struct text input;
  int fds[FD_PASS_LIMIT]; /* descriptors that came with the last message, -1 where none */
};

/* How long to wait for a session whose monitor may be stopped (Ctrl-Z), in milliseconds. */
#define CLIENT_PATIENCE       2000
#define CLIENT_SHORT_PATIENCE 400 /* where others wait in line */
#define CLIENT_WAIT_FOREVER   0
void client_set_patience(const struct client_connection *connection, unsigned milliseconds);

/* Connects without waiting for the greeting, which is the first message then. */
int client_begin(const char *folder, unsigned patience_ms, struct client_connection *ret_connection,
                 struct sb_error *error);

/* Connects and reads the greeting; CLIENT_PATIENCE holds for it and for all that follows. */
int client_open(const char *folder, struct client_connection *ret_connection,
                struct sb_error *error);
void client_close(struct client_connection *connection);
#define _cleanup_client_ __attribute__((cleanup(client_close)))

/* Sends one request (takes the reference), with descriptors if any. */
int client_send(struct client_connection *connection, json_t *request, const int *fds,
                size_t fd_count, struct sb_error *error);

/* Reads one message. An {"error": …} message becomes the error. */
int client_read(struct client_connection *connection, json_t **ret_message, struct sb_error *error);

/* True if another message has arrived already: poll would not tell. */
bool client_has_message(const struct client_connection *connection);

/* Both: a request with no descriptors and its reply. */
int client_call(const char *folder, unsigned patience_ms, json_t *request, json_t **ret_reply,
                struct sb_error *error);
