/* The lines of a log as they stand in its files. Private to src/audit. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "core/strv.h"

struct audit_raw_line {
  const char *file;
  size_t number; /* in the file, from 1 */
  const char *text;
  size_t length;
  bool whole; /* ends with a newline */
};
/* Returns false to stop. */
typedef bool audit_line_visit(void *context, const struct audit_raw_line *line);

/* Every line of a log, over its files. Returns how many files there are, or a negative errno. */
int audit_lines_read(int folder, const char *name, audit_line_visit *visit, void *context);

/* The logs that have a file in the folder, sorted, without the chain. 0 or a negative errno. */
int audit_names(int folder, struct strv *ret_names);

/* "there is no audit log …". Returns -1. */
int audit_fail_read(struct sb_error *error, const char *name, int errnum);
