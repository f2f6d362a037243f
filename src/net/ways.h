/* Private to the relay: packets of one client to one target, in mode full. Who is meant, whether it
 * may be reached, the line in the audit log and then the first packets are the same for every
 * protocol; what differs is in its kind. */
#pragma once

#include "net/flow.h"

struct way_kind {
  enum way_list list;
  const char *no_upstream; /* why it is refused where there is an upstream proxy */
  uint64_t idle_ms;
  unsigned kept_limit;  /* packets that wait for the name and the log */
  bool oldest_goes;     /* when there are too many; else who comes then is not heard */
  bool counts_failures; /* of those that may be reached and cannot be */
  int (*open)(const struct address *address); /* a socket that leads outside; -1: there is none */
  void (*send)(struct way *way, const void *bytes, size_t length);
  void (*ready)(struct watch *watch, uint32_t events);
};

struct way {
  struct watch watch; /* outside; without a socket while it is resolved or refused */
  struct way *next, **link, *next_dead;
  struct relay *relay;
  const struct way_kind *kind;
  struct endpoint client, target; /* as the workload sees them */
  char host[HOST_NAME_SIZE];      /* the target's name, or its address */
  struct ledger_line *line;
  const char *allowed_by;    /* a rule as written, or constant text */
  struct resolved *resolved; /* where to, while the audit log comes first */
  uint32_t recording;        /* 0: nothing to wait for */
  uint64_t last_ms;
  bool resolving, gone;
  bool is_v6; /* outside: a name may lead to the other family */
  struct kept *kept;
  unsigned kept_count;
};

/* A packet from inside: it goes the way that is open, or waits until that is known. Of what is
 * described only the kind and the ends count. */
void ways_take(struct relay *relay, const struct way *described, const void *bytes, size_t length);

/* A whole packet for the client. */
void way_answer(const struct relay *relay, const struct address *client, const void *packet,
                size_t length);
