/* What the parts of `sandbox audit` share. */
#pragma once

#include "audit/audit.h"
#include "audit/filter.h"
#include "cli/cli.h"

enum audit_option {
  AUDIT_SINCE,
  AUDIT_UNTIL,
  AUDIT_PATH,
  AUDIT_EVENT,
  AUDIT_DECISION,
  AUDIT_JSON,
  AUDIT_VERIFY,
  AUDIT_FOLLOW,
  AUDIT_PRUNE
};

struct audit_listing {
  const char *home;    /* where the logs are */
  const char *session; /* or NULL for all */
  const struct audit_filter *filter;
  bool json;
};

/* Prints the lines that are there, by time. Returns an exit code, or -1 with the error. */
int audit_print(const struct audit_listing *listing, struct sb_error *error);

/* The same, and then each new one, until the session ends or somebody interrupts. */
int audit_follow(const struct audit_listing *listing, struct sb_error *error);
