/* The monitor's side of a network driver: starts its minder before the workload, says when its
 * network is there and when it is gone, counts what passed. Never waits for it. */
#pragma once

#include <poll.h>
#include <stdbool.h>

#include <jansson.h>

#include "core/file.h"
#include "net/drivers/minder.h"
#include "session/bucket.h"

struct monitor;

#define DRIVEN_DENIED   64 /* remembered */
#define DRIVEN_APPROVED 64

/* By whoever was asked; the latest. */
struct driven_answers {
  size_t denied_count;
  struct {
    struct address address;
    uint16_t port;
  } denied[DRIVEN_DENIED];
  size_t approved_count;
  struct {
    char name[HOST_NAME_SIZE];
    uint64_t until_ns;
  } approved[DRIVEN_APPROVED];
};

struct driven {
  struct minder minder;
  int counters; /* a route socket of the session's network, or -1 */
  int rules;    /* a netfilter socket of it, or -1 */
  int openings; /* where the resolver will ask the minder to open addresses, or -1 */
  bool ready;   /* it has carried, or could have */
  bool failed;  /* it cannot be had: the session does not start */
  bool gone;
  bool listens; /* somebody is there to be asked, and the packet filter knows */
  struct driver_question *questions; /* about addresses, that wait for an answer */
  struct driven_answers *answers;    /* NULL without a driver: sessions without one are many */
  struct bucket recording;           /* lines about new hosts in the audit log */
  char problem[DRIVER_PROBLEM];
};
#define DRIVEN_NONE                                                                                \
  ((struct driven){.minder = MINDER_NONE, .counters = -1, .rules = -1, .openings = -1})

/* The session's init has sent its user and network namespace and two sockets of the latter: for
 * routes, for netfilter. */
void driven_start(struct monitor *monitor, int fds[FD_PASS_LIMIT]);

/* What to poll for. */
struct pollfd driven_watch(const struct driven *driven);

/* The resolver has ended: without it names open nothing, so the whole network goes. */
void driven_lost_resolver(struct monitor *monitor);

/* What the minder says. */
void driven_read(struct monitor *monitor);

/* Takes the way out away and keeps the figures in the result. */
void driven_end(struct monitor *monitor);

/* The figures so far. */
json_t *driven_to_json(const struct monitor *monitor);

/* One connection, as a line of the audit log has it. */
json_t *driven_opened_to_json(const struct monitor *monitor, const struct sighting *sighting);

/* Why there is no session; -1. */
int driven_explain(const struct monitor *monitor, struct sb_error *error);
