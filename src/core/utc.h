/* Points in time as text, in UTC (RFC 3339). Not by the C library's calendar: that reads
 * /etc/localtime even to say what time it is in UTC, at every start. */
#pragma once

#include <time.h>

#define UTC_SIZE 64

/* "2026-11-15T23:46:54Z", or with that many digits (up to 9) of a second's fraction. */
void utc_format(const struct timespec *time, int digits, char ret_text[UTC_SIZE]);

/* The same for now. */
void utc_now(int digits, char ret_text[UTC_SIZE]);
