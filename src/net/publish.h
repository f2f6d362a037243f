/* Published ports: a process of its own accepts on the host's side, in the host's network, and
 * connects inside, in the session's, where it has moved to. It has no say in what the workload can
 * reach: bytes only ever start from the host. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/error.h"
#include "core/strv.h"

struct published {
  struct sockaddr_storage host; /* where the host listens: loopback, unless an address was named */
  socklen_t host_length;
  uint16_t inside; /* port on the session's loopback */
};

/* "8080:80", "8080" for the same port inside, "0.0.0.0:8080:80" or "[::]:8080:80". False if it is
 * none of these. Pure. */
bool publish_parse(const char *text, struct published *ret_published);

/* "127.0.0.1:8080:80" with another port inside. New string. Pure. */
char *publish_text(const struct published *published, uint16_t inside);

struct publisher {
  struct listener *listeners;
  size_t count;
  pid_t pid;
  int line; /* its end tells it that we are gone */
};
#define PUBLISHER_NONE ((struct publisher){.pid = -1, .line = -1})

/* Takes the ports of the host. A port that is in use is an error. */
int publisher_listen(struct publisher *publisher, const struct strv *published,
                     struct sb_error *error);

/* Starts the process. user_ns and net_ns are the session's; neither is kept. */
int publisher_start(struct publisher *publisher, int user_ns, int net_ns, struct sb_error *error);
void publisher_end(struct publisher *publisher);
