/* Parts of the filter generator: argument rules, program emitter, main program. */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/seccomp.h"

/* One test of one argument. Only the low 32 bits are looked at: every argument that we judge is an
 * int or smaller to the kernel, so garbage above must not change the answer. For a pointer, which
 * may be NULL or not, there is `high`. */
struct check {
  enum { CHECK_END, CHECK_EQUAL, CHECK_NOT_EQUAL, CHECK_ANY_BIT } kind;
  unsigned argument;
  uint32_t mask, value;
  bool high; /* the other half */
};

/* The first rule of a call whose checks all hold decides. The last has none. */
struct rule {
  const char *calls[2]; /* one or two names */
  enum { ALWAYS, ONLY_DEBUG, ONLY_NOTIFY, ONLY_CONNECT, NOT_CONTAINERS } when;
  uint32_t action;
  struct check checks[4];
};

struct variant {
  bool debug, containers;
  enum seccomp_waits waits;
};

extern const struct rule rules[];
extern const size_t rule_count;

/* The next rule of a call in a variant after `rule` (NULL: the first), or NULL. */
const struct rule *rule_next(const struct rule *rule, const char *call, struct variant variant);

/* What happens from a number on, up to the next segment's. */
struct segment {
  uint32_t first;
  uint32_t action;
  const struct rule *rules; /* the first of the rules that decide instead, or NULL */
};

/* The table of numbers of one way into the kernel. */
struct table {
  uint32_t audit_arch;
  struct segment segments[2048];
  size_t count;
};

/* Instructions from the last to the first: jumps only lead forward, so that every target is there
 * before the jump to it. */
struct program {
  struct sock_filter code[BPF_MAXINSNS];
  size_t length;
};

/* Makes the program that finds the table of the architecture, then what happens to the number. */
void emit_filter(struct program *program, const struct table *tables, size_t count,
                 struct variant variant);

void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
