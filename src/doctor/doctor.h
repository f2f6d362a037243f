/* What this machine can do for us, found by really trying it, and what to do about the rest.
 * A library: returns data, never prints. Every probe runs in a child of its own with a time limit,
 * so a probe that hangs or is killed costs its row and nothing else, and nothing is left behind. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"

enum doctor_state {
  DOCTOR_OK,
  DOCTOR_DEGRADED,   /* works, but weaker or slower than it should */
  DOCTOR_RESTRICTED, /* the machine has it, but a setting forbids it here */
  DOCTOR_MISSING,    /* not there */
  DOCTOR_STATE_COUNT
};

struct doctor_row {
  const char *id;         /* stable, for programs */
  const char *group;      /* "namespaces", "mounts", ... */
  const char *title;      /* for people */
  const char *needed_for; /* what is lost without it */
  bool required;          /* the native engine cannot run without it */
  enum doctor_state state;
  char *found; /* what was found, hostile bytes escaped */
  char *fix;   /* what to do about it, or NULL */
};

struct doctor_verdict {
  bool available;   /* the native engine can run here */
  const char *gate; /* "fuse", "notify" or "none": what dynamic mode would use */
  char *gate_why;   /* what keeps it from a better one, or NULL */
  char *why;        /* why not, or NULL */
  char *fix;        /* what to do about it, or NULL */
};

struct doctor_report {
  struct doctor_row *rows;
  size_t count;
  struct doctor_verdict native;
};

/* Tries everything; takes well under two seconds. Cannot fail: what goes wrong is a row. */
void doctor_run(struct doctor_report *ret_report);
void doctor_report_clear(struct doctor_report *report);

/* "ok", "degraded", "restricted", "missing": as in the JSON. */
const char *doctor_state_name(enum doctor_state state);

/* For a start-up that failed because no user namespace could be made: tries again step by step,
 * reads the settings and replaces message and hint by the true reason and the exact fix. The errno
 * in the error is used if the second try works. Slow; for the failure path only. Returns -1. */
int doctor_explain_userns(struct sb_error *error);

#define _cleanup_doctor_report_ __attribute__((cleanup(doctor_report_clear)))
