/* Drivers: programs of others, or the kernel itself, that give a session a plain IP stack where the
 * relay would carry connections. One table; each driver is one file. A driver only ever adds a way
 * out: what may use it is decided by rules in the session's own network namespace (egress.h), which
 * are there before it, and which the workload has no right to change. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "core/error.h"
#include "core/strv.h"
#include "net/match.h"

#define DRIVER_TOOLS   2 /* programs of one driver, at most, and a NULL */
#define DRIVER_PROBLEM 400

struct driver_run;

struct net_driver {
  const char *name;      /* as in network.driver */
  const char *interface; /* its end inside */
  const char *resolver;  /* the name server that it offers inside; NULL: it offers none */
  bool by_root;          /* it changes the host's network, which only root may */
  bool needs_shut_in;    /* a plain user's process of it does not keep itself from files: we do */
  struct {
    const char *program, *package;
  } tools[DRIVER_TOOLS + 1]; /* ends with NULL; nft comes on top */

  /* What the machine lacks besides programs; NULL: nothing can be lacking. */
  int (*probe)(struct sb_error *error);

  /* What it lacks for IPv6, besides that it has any; NULL: nothing can be lacking. */
  int (*probe_six)(struct sb_error *error);

  /* In the minder's process: builds the way out and leaves one program at work, whose end is its
   * end. 0, or -1 with the problem set. */
  int (*start)(struct driver_run *run);

  /* In the monitor, when the minder is gone: takes away what a death leaves behind. NULL: nothing
   * is left. */
  void (*cut)(const char *session_id);
};

/* NULL for "auto", "relay" and NULL, which are none of these. */
const struct net_driver *net_driver_find(const char *name);

/* All of them; ends with NULL. */
extern const struct net_driver *const net_drivers[];
extern const struct net_driver slirp_driver, pasta_driver, veth_driver;

/* Where a program of the driver is; NULL if it is not. New string. Index DRIVER_NFT: nft. */
#define DRIVER_NFT (-1)
char *net_driver_tool(const struct net_driver *driver, int index);

/* The probe of drivers that have their end of a tap device. */
int net_driver_needs_tun(struct sb_error *error);

/* Which protection of the user the driver goes without on this machine, for people; NULL: none. */
const char *net_driver_lacks(const struct net_driver *driver);

/* Whether this machine and user can have the driver; the error says what is missing. */
int net_driver_check(const struct net_driver *driver, struct sb_error *error);
