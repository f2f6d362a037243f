/* The keeper: a process outside the session that keeps masks and protections in their places. Both
 * are mounts on objects, and the kernel takes a mount away when the host replaces the object
 * (`git config` does, editors do). The keeper watches the folders of all such names (inotify) and
 * mounts anew, in the session's mount namespace. It is a process of its own, with the broker's
 * powers, so that the time between a change and its answer does not depend on what else the monitor
 * has to do, which the workload could arrange. Started when a session has lasted for some
 * milliseconds: it then compares every name with what should be there, so nothing is missed.
 *
 * It decides nothing but what the plan and the policy say, follows no link that it does not check,
 * and says what it could not do: then the session must end. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/error.h"
#include "plan/kept.h"

struct keeper {
  int channel; /* our end of the line to it; -1: not started */
  pid_t pid;
};
#define KEEPER_NONE ((struct keeper){.channel = -1, .pid = -1})

enum keeper_kind {
  KEEPER_READY,       /* every name has been compared; `path` is empty */
  KEEPER_RENEWED,     /* the host changed what is at `path`, and it is covered again */
  KEEPER_HIDDEN,      /* a secret's name appeared and is hidden now */
  KEEPER_MADE_FOLDER, /* a protected name vanished: there is a placeholder now */
  KEEPER_MADE_FILE,
  KEEPER_ROOT,    /* the host has, or had, the name `path` in "/", and the session's root may not */
  KEEPER_POLLS,   /* no watch could be had: changes are noticed later; errnum says why */
  KEEPER_BOUNDED, /* more folders than are watched: late secrets below `path` are not noticed */
  KEEPER_FAILED,  /* `path` is not as it should be, and cannot be made so */
  KEEPER_DONE,    /* dismissed: nothing more follows */
};

struct keeper_report {
  int32_t kind, errnum;
  char path[PATH_MAX];
};

/* How many names may appear that patterns hide, before it can only be a flood. */
#define KEEPER_LATE_LIMIT 1024
/* How many objects may be hidden because links with such names lead to them: the command can make
 * one link after the other. */
#define KEEPER_LINK_LIMIT 64

/* Starts it. The descriptors are the session's namespaces; neither is kept. */
int keeper_start(struct keeper *keeper, const struct kept_request *request, int user_ns,
                 int mount_ns, struct sb_error *error);

/* What the monitor tells it while it runs. */
enum keeper_order_kind {
  KEEPER_OPERATION,        /* one more operation of `grown`, for a tree that is granted next */
  KEEPER_GRANTED,          /* `path` is visible now, with everything below it */
  KEEPER_GRANTED_WRITABLE, /* and may be written to */
  KEEPER_ALLOWED,          /* nothing at `path` is denied any more */
  KEEPER_TAKEN,            /* it is about to be taken away again */
};

/* Never waits: -EAGAIN if the keeper does not listen any more. */
int keeper_tell(const struct keeper *keeper, enum keeper_order_kind kind, const char *path,
                const struct operation *operation);

/* Takes one report: 1, 0 if there is none now, -1 if the keeper is gone. */
int keeper_receive(const struct keeper *keeper, struct keeper_report *ret_report);

/* Tells it to end; what it still reports can be received until it is gone. */
void keeper_dismiss(const struct keeper *keeper);

/* Lets go of the line to it, and makes sure that it ends. */
void keeper_end(struct keeper *keeper);

/* Waits until it is gone: the kernel takes milliseconds to forget watches, so this comes last. */
void keeper_reap(struct keeper *keeper);
