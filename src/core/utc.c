/* Points in time as text; see utc.h. */
#include "core/utc.h"

#include <stdio.h>

#define DAYS_TO_1970 719468LL /* from 1 March of the year 0 */
#define DAYS_OF_ERA  146097LL /* 400 years: after them the calendar repeats itself */

struct date {
  long long year, month, day;
};

/* Years that begin with March have their odd day at the end, and their months follow a line. */
static struct date date_of(long long days_since_1970) {
  long long days = days_since_1970 + DAYS_TO_1970;
  long long era = (days >= 0 ? days : days - DAYS_OF_ERA + 1) / DAYS_OF_ERA;
  long long in_era = days - era * DAYS_OF_ERA;
  long long year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
  long long in_year = in_era - (365 * year + year / 4 - year / 100);
  long long month = (5 * in_year + 2) / 153;
  return (struct date){.year = era * 400 + year + (month >= 10),
                       .month = month < 10 ? month + 3 : month - 9,
                       .day = in_year - (153 * month + 2) / 5 + 1};
}

void utc_format(const struct timespec *time, int digits, char ret_text[UTC_SIZE]) {
  long long seconds = time->tv_sec, days = seconds / 86400, left = seconds % 86400;
  if (left < 0) {
    left += 86400;
    days--;
  }
  struct date date = date_of(days);
  int length = snprintf(ret_text, UTC_SIZE, "%04lld-%02lld-%02lldT%02lld:%02lld:%02lld", date.year,
                        date.month, date.day, left / 3600, left / 60 % 60, left % 60);
  if (digits > 0) {
    snprintf(ret_text + length, UTC_SIZE - (size_t)length, ".%09ld", time->tv_nsec);
    length += 1 + digits;
  }
  snprintf(ret_text + length, UTC_SIZE - (size_t)length, "Z");
}

void utc_now(int digits, char ret_text[UTC_SIZE]) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  utc_format(&now, digits, ret_text);
}
