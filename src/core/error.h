/* The one error object. Everything below src/cli returns negative on failure and describes the
 * failure here: a stable machine code, a sentence that names what we were doing, the path or value
 * and the reason, and a hint that says what to do about it. Outputs are untouched on failure. */
#pragma once

#include <errno.h>
#include <stddef.h>

enum sb_code {
  SB_CODE_NONE,
  SB_CODE_USAGE,       /* the command line is wrong */
  SB_CODE_POLICY,      /* a policy file is wrong */
  SB_CODE_NOT_FOUND,   /* something named does not exist */
  SB_CODE_UNSUPPORTED, /* a protection that was asked for cannot be had here */
  SB_CODE_DENIED,      /* policy or another user's ownership forbids it */
  SB_CODE_CONFLICT,    /* the state of the world contradicts the request */
  SB_CODE_SYSTEM,      /* a kernel call failed */
  SB_CODE_COUNT
};

struct sb_error {
  enum sb_code code;
  int errnum;    /* errno of the failing call, 0 if none */
  char *message; /* one sentence, no trailing newline, hostile bytes already escaped */
  char *hint;    /* what to do about it, or NULL */
};

/* Describes a failure; %m-style reason is appended from errnum when it is not 0. Returns -1. */
int sb_fail(struct sb_error *error, enum sb_code code, int errnum, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Shorthand for a failing kernel call: code SYSTEM, errno as the reason. Returns -1. */
#define sb_fail_errno(error, ...) sb_fail(error, SB_CODE_SYSTEM, errno, __VA_ARGS__)

/* Puts context before the message: "context: message". Returns -1. */
int sb_wrap(struct sb_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sets the hint (replacing an earlier one). Returns -1. */
int sb_hint(struct sb_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

void sb_error_clear(struct sb_error *error);

/* The stable name of a code, as it appears in JSON ("policy", "unsupported", ...). */
const char *sb_code_name(enum sb_code code);

/* The other way; what is not known is a failed system call. */
enum sb_code sb_code_named(const char *name);

#define _cleanup_error_ __attribute__((cleanup(sb_error_clear)))
