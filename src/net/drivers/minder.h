/* The minder of a driver: a process that builds the way out, starts the driver's program and
 * watches it. It is the first process of a pid namespace of its own: when it ends, for whatever
 * reason, the kernel ends the program with it. It ends when the monitor does, which it learns by
 * end of file. Except for a driver of root's, it and all it starts have rights over the session's
 * user namespace only, none over the host. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "net/drivers/driver.h"
#include "net/drivers/egress.h"
#include "net/drivers/knocks.h"

enum minder_kind {
  MINDER_STARTED, /* pid: the minder's own, as the monitor sees it */
  MINDER_READY,   /* the network is there */
  MINDER_FAILED,  /* it could not be had; text: why */
  MINDER_ENDED,   /* the driver's program has ended; text: what it said last */
  MINDER_OPENED,  /* the first connection to somebody was let through; sighting: which */
  MINDER_KNOCK,   /* somebody is to be asked about it, which an order answers; sighting: what */
  MINDER_LEFT,    /* nobody waits for that any more; sighting: address and port */
};

struct minder_message {
  uint32_t kind;
  int32_t pid;
  struct sighting sighting;
  char text[DRIVER_PROBLEM];
};

struct minder {
  pid_t pid; /* 0: there is none */
  int line;  /* to it, or -1 */
};
#define MINDER_NONE ((struct minder){.line = -1})

struct minder_request {
  const struct net_driver *driver;
  const char *session_id;
  struct egress egress;
  int user_ns, net_ns; /* the session's; neither is kept */
  int openings;        /* where the resolver asks for addresses to be opened, or -1; not kept */
};

/* Starts it and returns at once; what becomes of it is told on the line. */
int minder_start(struct minder *minder, const struct minder_request *request,
                 struct sb_error *error);

/* When it is ready: has it do something. False: it does not listen. */
bool minder_order(const struct minder *minder, const struct minder_order *order);

/* Ends it and all it has started, and waits until they are gone. */
void minder_end(struct minder *minder);

/* ---- for the drivers, in the minder's process ---- */

struct driver_run {
  const struct minder_request *request;
  char *tools[DRIVER_TOOLS + 1]; /* paths, as in the driver's table */
  char *nft;
  int line;      /* to the monitor */
  pid_t tool;    /* the program whose end is the driver's */
  int messages;  /* what it prints, or -1 */
  int filter;    /* a socket to the session's packet filter, or -1 */
  int sightings; /* a socket on which that tells of packets, or -1 */
  struct knocks knocks;
  int changes;  /* a socket that hears of the host's addresses, or -1 */
  char *loaded; /* the host's addresses as the session's rules have them; NULL: no rules yet */
  char problem[DRIVER_PROBLEM];
};

enum driver_place { DRIVER_OUTSIDE, DRIVER_INSIDE }; /* of the session's network namespace */

/* Runs a program to its end, with `input` to read. 0, or -1 with the problem set. */
int driver_command(struct driver_run *run, enum driver_place place, char *const argv[],
                   const char *input);

struct driver_service {
  char *const *argv;
  const char *input; /* its stdin is a pipe with this text that stays open, and it says nothing but
                        that it is ready; NULL: stdin is the session's network namespace */
  int ready;         /* 1 or 3: it is ready when it writes there */
  bool shut_in;      /* it cannot keep itself from the user's files */
};

/* Leaves a program at work. 0, or -1 with the problem set. */
int driver_serve(struct driver_run *run, const struct driver_service *service);
