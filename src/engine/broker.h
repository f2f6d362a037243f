/* The broker: a tiny process that holds mount powers inside the session's user namespace only. It
 * stands in a mount namespace of its own (the host's whole view), clones what was approved there,
 * and moves it into the workload's. It executes and decides nothing: what the monitor asks for is
 * resolved again without following any link, and refused if it is not the object that was shown to
 * the person who approved. Started with the first question; most sessions never need one. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/error.h"
#include "core/strv.h"

struct broker {
  int channel; /* our end of the line to it; -1: not started */
  pid_t pid;
};
#define BROKER_NONE ((struct broker){.channel = -1, .pid = -1})

enum broker_kind {
  BROKER_GRANT,  /* the object at `path` appears at the same path inside */
  BROKER_REVOKE, /* what was granted at `path` goes away */
  BROKER_REPEAT, /* a folder or link of the host is made at `path` in the session's empty root */
  BROKER_FORGET, /* a link that was made so, with this text, goes away */
  BROKER_LIST,   /* copies the names in the folder at `path`; the reply carries the copy */
  BROKER_FOLLOW, /* the host has changed the name `path` in "/": the session's root gets its
                    likeness */
  BROKER_LOOK,   /* looks for who holds folders of what was taken back, after another broker's death
                  */
  BROKER_UNCOVER, /* `path` is not covered any more in what is granted next, unless that says so */
  BROKER_OPEN,    /* opens the file at `path` through a read-only clone; the reply carries it */
};

enum broker_flag {
  BROKER_WRITABLE = 1 << 0, /* GRANT: not read-only */
  BROKER_MAKE = 1 << 1,     /* GRANT: make the mount point in the session's empty root first */
  BROKER_UNMASK = 1 << 2,   /* GRANT: of something that an earlier grant masks */
  BROKER_ANNOUNCE = 1 << 3, /* GRANT: say so (BROKER_READY) before mounting, which may wait */
};

#define BROKER_PINS  'p' /* cannot be renamed */
#define BROKER_SEALS 's' /* read-only */
#define BROKER_DROPS 'd' /* a file that was granted for writing by itself: its mount goes */

struct broker_request {
  enum broker_kind kind;
  unsigned flags;
  uint64_t device, inode; /* GRANT, OPEN, LIST: what the path must lead to */
  const char *path;       /* canonical, absolute */
  /* GRANT, writable: names below it, parents first, each after a letter that says what becomes of
   * it: BROKER_PINS, BROKER_SEALS or BROKER_DROPS. May be NULL. */
  const struct strv *kept;
  const struct strv *masks; /* GRANT: hidden objects below it, canonical; may be NULL */
                            /* REPEAT, FORGET: one string, the link's text; NULL: a folder */
};

struct broker_input {
  int user_ns, mount_ns; /* the session's */
  int gate;              /* all that the FUSE gate serves, attached nowhere; -1: none */
};

/* Starts it. The descriptors stay the caller's. */
int broker_start(struct broker *broker, const struct broker_input *input, struct sb_error *error);
void broker_end(struct broker *broker);

/* A request is one message, which holds only so many names. */
bool broker_can_take(const struct broker_request *request);

/* Hands over a request; one at a time. 0 or a negative errno. */
int broker_send(const struct broker *broker, const struct broker_request *request);

/* A reply before the reply: all names are walked, only the mounting is left. */
#define BROKER_READY 1

/* REVOKE: it is taken away, but somebody holds a folder of it who could not be kept from reading.
 */
#define BROKER_HELD (-EBUSY)

/* Takes the reply: BROKER_READY, 0 or the negative errno of the request in *ret_result, and for
 * BROKER_OPEN and BROKER_LIST a descriptor in *ret_fd (else -1). Returns 1; 0 if there is none yet,
 * or -1 if the broker is gone. */
int broker_receive(const struct broker *broker, int *ret_result, int *ret_fd);
