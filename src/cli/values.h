/* Values of options: sizes, durations, counts, percentages. Pure. Every error names the option,
 * quotes the bad value and shows a good one; the output is untouched on failure. `option` is the
 * name as typed, dashes included. */
#pragma once

#include <stdint.h>

#include "core/error.h"

/* "512M", "1GiB", "4096": bytes. Units are powers of 1024, in either case. */
int value_size(const char *option, const char *value, uint64_t *ret_bytes, struct sb_error *error);

/* "60", "500ms", "5m", "1h": milliseconds; a bare number is seconds. */
int value_duration(const char *option, const char *value, uint64_t *ret_milliseconds,
                   struct sb_error *error);

/* "50": a number of things, at least 1. */
int value_count(const char *option, const char *value, uint64_t *ret_count, struct sb_error *error);

/* "86400", "-3600", "+2d": seconds forward or back; a bare number is seconds. */
int value_offset(const char *option, const char *value, int64_t *ret_seconds,
                 struct sb_error *error);

/* The position of value in a list like "auto always never", or -1. */
int value_word(const char *words, const char *value);
