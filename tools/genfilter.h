/* Parts of the filter generator: argument rules, program emitter, main program. */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One test of one argument. Only the low 32 bits are looked at: every argument that we judge is an
 * int or smaller to the kernel, so garbage above must not change the answer. */
struct check {
  enum { CHECK_END, CHECK_EQUAL, CHECK_NOT_EQUAL, CHECK_ANY_BIT } kind;
  unsigned argument;
  uint32_t mask, value;
};

/* The first rule of a call whose checks all hold decides. The last has none. */
struct rule {
  const char *name;
  enum { ALWAYS, ONLY_DEBUG, NOT_CONTAINERS } when;
  uint32_t action;
  struct check checks[4];
};

struct variant {
  bool debug, containers;
};

extern const struct rule rules[];
extern const size_t rule_count;

bool rule_applies(const struct rule *rule, const char *name, struct variant variant);

/* What happens from a number on, up to the next segment's: an action, or the rules of a call. */
struct segment {
  uint32_t first;
  uint32_t action;
  const char *name; /* of the call whose rules decide, or NULL */
};

struct program {
  struct sock_filter code[BPF_MAXINSNS];
  size_t length;
};

/* Appends: if the architecture is `audit_arch`, decide by the segments, else go on after them. */
void emit_architecture(struct program *program, uint32_t audit_arch, const struct segment *segments,
                       size_t count, struct variant variant);
void emit(struct program *program, struct sock_filter instruction);

void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
