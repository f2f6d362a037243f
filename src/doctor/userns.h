/* Why a user namespace cannot be had: facts are gathered in one place, and judged by a pure
 * function, so that every distribution's way of forbidding them can be tested anywhere. */
#pragma once

#include <stdbool.h>

#include "doctor/doctor.h"

/* How far making one came before it failed. */
enum userns_stage {
  USERNS_CREATED_AND_USED, /* did not fail */
  USERNS_CREATE,           /* unshare(CLONE_NEWUSER) */
  USERNS_MAP,              /* writing the id maps */
  USERNS_USE,              /* using the capabilities it should have given */
};

struct userns_facts {
  enum userns_stage stage;
  int errnum;
  long max_user_namespaces;       /* user.max_user_namespaces, -1 if absent */
  long unprivileged_userns_clone; /* kernel.unprivileged_userns_clone (Debian), -1 if absent */
  long apparmor_restricts;        /* kernel.apparmor_restrict_unprivileged_userns, -1 if absent */
  bool privileged;                /* CAP_SYS_ADMIN here */
  bool filtered;                  /* under somebody else's seccomp filter */
  bool inside;                    /* in a session of ours */
  bool chrooted;
  bool no_proc;           /* /proc is not mounted, so nothing else here is sure */
  bool unmapped;          /* our own uid has no mapping */
  bool profile_installed; /* our AppArmor profile is in place */
};

enum userns_reason {
  USERNS_WORKS,
  USERNS_LIMIT_ZERO,
  USERNS_LIMIT_REACHED,
  USERNS_TOO_DEEP,
  USERNS_CLONE_SYSCTL,
  USERNS_APPARMOR,
  USERNS_APPARMOR_NO_PROFILE,
  USERNS_INSIDE,
  USERNS_OUTER_SECCOMP,
  USERNS_CHROOT,
  USERNS_UNMAPPED,
  USERNS_NO_KERNEL_SUPPORT,
  USERNS_NO_PROC,
  USERNS_SECURITY_MODULE,
  USERNS_UNKNOWN,
  USERNS_REASON_COUNT
};

struct userns_explanation {
  enum doctor_state state;
  const char *why; /* a sentence without a full stop */
  const char *fix; /* exact; NULL only for USERNS_WORKS */
};

/* Pure: the most telling reason that fits the facts. */
enum userns_reason userns_judge(const struct userns_facts *facts);
const struct userns_explanation *userns_explain(enum userns_reason reason);

/* Enters a new user namespace, maps our own ids to themselves. 0, or a negative errno and the stage
 * that failed. Changes the calling process. */
int userns_enter(enum userns_stage *ret_stage);

/* Tries in a child and reads the settings. */
struct userns_facts userns_gather(void);
