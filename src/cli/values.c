/* Values of options; see values.h. One table row per kind of value; nothing is ever rounded,
 * clamped or guessed, because a limit that is not the one asked for is no limit. */
#include "cli/values.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "core/cleanup.h"
#include "core/escape.h"

struct unit {
  const char *suffix;
  uint64_t factor;
};

struct kind {
  const char *article; /* "a size" */
  const char *example;
  const struct unit *units; /* ends with a NULL suffix */
  bool any_case;
  uint64_t minimum, maximum; /* after the unit was applied */
  const char *minimum_text;  /* as a person would write it */
  const char *maximum_text;
};

static const struct unit size_units[] = {
    {"", 1},
    {"K", 1ull << 10},
    {"M", 1ull << 20},
    {"G", 1ull << 30},
    {"T", 1ull << 40},
    {"KiB", 1ull << 10},
    {"MiB", 1ull << 20},
    {"GiB", 1ull << 30},
    {"TiB", 1ull << 40},
    {NULL, 0},
};

static const struct unit duration_units[] = {
    {"", 1000},         {"ms", 1},           {"s", 1000}, {"m", 60 * 1000},
    {"h", 3600 * 1000}, {"d", 86400 * 1000}, {NULL, 0},
};

static const struct unit offset_units[] = {
    {"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}, {NULL, 0},
};

static const struct unit count_units[] = {{"", 1}, {NULL, 0}};

/* The largest size is what off_t can hold; the longest time keeps clear of every kernel clock. */
static const struct kind size_kind = {
    "a size", "512M", size_units, true, 1, INT64_MAX, "1 byte", "8388607T",
};
static const struct kind duration_kind = {
    "a duration", "5m", duration_units, false, 1, 3650ull * 86400 * 1000, "1ms", "3650d",
};
static const struct kind offset_kind = {
    "a number of seconds", "86400", offset_units, false, 0, 36500ull * 86400, "-36500d", "36500d",
};
static const struct kind count_kind = {
    "a count", "50", count_units, false, 1, INT32_MAX, "1", "2147483647",
};

static int refuse(const struct kind *kind, const char *option, const char *value, const char *why,
                  struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(value);
  sb_fail(error, SB_CODE_USAGE, 0, "'%s' is not %s for %s: %s", shown, kind->article, option, why);
  return sb_hint(error, "for example %s %s", option, kind->example);
}

static int refuse_range(const struct kind *kind, const char *option, const char *value,
                        struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(value);
  sb_fail(error, SB_CODE_USAGE, 0, "'%s' is out of range for %s: from %s to %s", shown, option,
          kind->minimum_text, kind->maximum_text);
  return sb_hint(error, "for example %s %s", option, kind->example);
}

static const struct unit *find_unit(const struct kind *kind, const char *suffix) {
  for (const struct unit *unit = kind->units; unit->suffix; unit++)
    if ((kind->any_case ? strcasecmp : strcmp)(unit->suffix, suffix) == 0)
      return unit;
  return NULL;
}

static bool is_digit(char character) {
  return character >= '0' && character <= '9';
}

/* Reads digits; returns what follows them, or NULL if the number does not fit. */
static const char *read_digits(const char *value, uint64_t *ret_number) {
  uint64_t number = 0;
  for (; is_digit(*value); value++)
    if (__builtin_mul_overflow(number, 10, &number) ||
        __builtin_add_overflow(number, (uint64_t)(*value - '0'), &number))
      return NULL;
  *ret_number = number;
  return value;
}

/* `written` is the whole value for messages, `value` the part without a sign. */
static int parse(const struct kind *kind, const char *option, const char *written,
                 const char *value, uint64_t *ret_amount, struct sb_error *error) {
  if (*value == '-')
    return refuse_range(kind, option, written, error);
  if (!is_digit(*value))
    return refuse(kind, option, written, "it does not start with a digit", error);

  uint64_t number, amount;
  const char *suffix = read_digits(value, &number);
  if (!suffix)
    return refuse_range(kind, option, written, error);
  if (*suffix == '.' || *suffix == ',')
    return refuse(kind, option, written, "only whole numbers are taken", error);
  const struct unit *unit = find_unit(kind, suffix);
  if (!unit)
    return refuse(kind, option, written, "the unit is not known", error);
  if (__builtin_mul_overflow(number, unit->factor, &amount) || amount < kind->minimum ||
      amount > kind->maximum)
    return refuse_range(kind, option, written, error);
  *ret_amount = amount;
  return 0;
}

int value_size(const char *option, const char *value, uint64_t *ret_bytes, struct sb_error *error) {
  return parse(&size_kind, option, value, value, ret_bytes, error);
}

int value_duration(const char *option, const char *value, uint64_t *ret_milliseconds,
                   struct sb_error *error) {
  return parse(&duration_kind, option, value, value, ret_milliseconds, error);
}

int value_count(const char *option, const char *value, uint64_t *ret_count,
                struct sb_error *error) {
  return parse(&count_kind, option, value, value, ret_count, error);
}

int value_offset(const char *option, const char *value, int64_t *ret_seconds,
                 struct sb_error *error) {
  bool has_sign = *value == '-' || *value == '+';
  uint64_t seconds;
  if (parse(&offset_kind, option, value, value + has_sign, &seconds, error) < 0)
    return -1;
  *ret_seconds = *value == '-' ? -(int64_t)seconds : (int64_t)seconds;
  return 0;
}

int value_word(const char *words, const char *value) {
  size_t length = strlen(value);
  for (int position = 0; *words; position++) {
    size_t its_length = strcspn(words, " ");
    if (length && its_length == length && strncmp(words, value, length) == 0)
      return position;
    words += its_length;
    words += *words == ' ';
  }
  return -1;
}
