/* Choosing lines of the audit log; see filter.h. */
#include "audit/filter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "audit/line.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/path.h"

void audit_filter_clear(struct audit_filter *filter) {
  free(filter->since);
  free(filter->until);
  free(filter->path);
  *filter = (struct audit_filter){0};
}

static bool matches_path(const char *wanted, const json_t *line) {
  static const char *const keys[] = {"path", "tree", "subject"};
  for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
    _cleanup_free_ char *path = json_get_path(line, keys[i]);
    if (path && path_is_under(path, wanted))
      return true;
  }
  return false;
}

static bool matches_event(const char *wanted, const char *event) {
  size_t length = strlen(wanted);
  return strncmp(event, wanted, length) == 0 && (event[length] == '\0' || event[length] == '.');
}

/* Whatever is decided and not allowed is denied, hidden or not. */
static bool matches_decision(const char *wanted, const char *decision) {
  bool allowed = strcmp(decision, "allow") == 0;
  return *decision && allowed == (strcmp(wanted, "allow") == 0);
}

bool audit_matches(const struct audit_filter *filter, const json_t *line) {
  const char *time = audit_text(line, "time");
  return (!filter->since || strcmp(time, filter->since) >= 0) &&
         (!filter->until || strcmp(time, filter->until) < 0) &&
         (!filter->path || matches_path(filter->path, line)) &&
         (!filter->event || matches_event(filter->event, audit_text(line, "event"))) &&
         (!filter->decision || matches_decision(filter->decision, audit_text(line, "decision")));
}

/* ---- times ---- */

static char *format_time(time_t time) {
  char text[40];
  struct tm parts;
  gmtime_r(&time, &parts);
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return xstrdup(text);
}

/* "90s", "5m", "1h", "2d", "3w": that long ago. */
static char *parse_ago(const char *value) {
  static const struct {
    char unit;
    unsigned long long seconds;
  } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 7 * 86400}};
  char *end;
  if (*value < '0' || *value > '9' || strlen(value) > 9)
    return NULL;
  unsigned long long count = strtoull(value, &end, 10);
  for (size_t i = 0; i < ARRAY_SIZE(units); i++)
    if (*end == units[i].unit && end[1] == '\0')
      return format_time(time(NULL) - (time_t)(count * units[i].seconds));
  return NULL;
}

static char *parse_date(const char *value) {
  static const char *const forms[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S",
                                      "%Y-%m-%d %H:%M", "%Y-%m-%d"};
  for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
    struct tm parts = {0};
    const char *end = strptime(value, forms[i], &parts);
    if (!end || (*end != '\0' && strcmp(end, "Z") != 0))
      continue;
    int day = parts.tm_mday;
    time_t time = timegm(&parts);
    return parts.tm_mday == day ? format_time(time) : NULL; /* no thirtieth of February */
  }
  return NULL;
}

char *audit_parse_time(const char *option, const char *value, struct sb_error *error) {
  char *time = parse_ago(value);
  if (!time)
    time = parse_date(value);
  if (time)
    return time;
  _cleanup_free_ char *shown = escape_string(value);
  sb_fail(error, SB_CODE_USAGE, 0, "%s '%s': not a time", option, shown);
  sb_hint(error, "write %s 1h for an hour ago, or %s 2026-11-15T10:30 (UTC)", option, option);
  return NULL;
}

/* ---- for people ---- */

static void append_value(struct text *text, const json_t *value) {
  if (json_is_string(value)) {
    escape_append(text, json_string_value(value), json_string_length(value));
    return;
  }
  _cleanup_free_ char *dumped = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
  _cleanup_free_ char *shown = escape_string(dumped ? dumped : "");
  text_append(text, shown);
}

/* A name, whose exact bytes stand beside it, was perhaps chosen by the workload. */
static void append_field(struct text *text, const json_t *line, const char *key) {
  const json_t *value = json_object_get(line, key);
  _cleanup_free_ char *exact = xasprintf("%s_b64", key);
  _cleanup_free_ char *name = json_object_get(line, exact) && json_is_string(value)
                                  ? escape_name(json_string_value(value))
                                  : NULL;
  if (name)
    text_append(text, name);
  else
    append_value(text, value);
}

static void append_words(struct text *text, const json_t *words) {
  for (size_t i = 0; i < json_array_size(words); i++) {
    const char *string = json_string_value(json_array_get(words, i));
    _cleanup_free_ char *word = escape_shell_word(string ? string : "");
    text_appendf(text, "%s%s", i ? " " : "", word);
  }
}

/* The fields that have no other place, "key=value". */
static void append_rest(struct text *text, const json_t *line) {
  static const char *const said[] = {"seq", "time", "session", "event", "prev", "hash"};
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)line, key, value) {
    size_t length = strlen(key);
    bool skip = json_is_null(value) || (length > 4 && strcmp(key + length - 4, "_b64") == 0);
    for (size_t i = 0; i < ARRAY_SIZE(said); i++)
      skip |= strcmp(said[i], key) == 0;
    if (skip)
      continue;
    text_append(text, text->length ? " " : "");
    escape_append(text, key, length);
    text_append_char(text, '=');
    append_field(text, line, key);
  }
}

static void describe_start(struct text *text, const json_t *line) {
  append_words(text, json_object_get(line, "command"));
  if (text->length == 0)
    text_append(text, "(no command)");
  text_append(text, "  in ");
  append_field(text, line, "project");
}

static void describe_end(struct text *text, const json_t *line) {
  text_appendf(text, "exit %lld after %.1f s", json_integer_value(json_object_get(line, "exit")),
               json_number_value(json_object_get(line, "seconds")));
}

static void describe_exec(struct text *text, const json_t *line) {
  append_words(text, json_object_get(line, "argv"));
  if (text->length == 0)
    append_rest(text, line);
}

static void append_pair(struct text *text, const json_t *line, const char *key, const char *words) {
  const json_t *value = json_object_get(line, key);
  if (!value || json_is_null(value))
    return;
  text_append(text, words);
  append_field(text, line, key);
}

static void describe_decision(struct text *text, const json_t *line) {
  append_pair(text, line, "decision", "");
  append_pair(text, line, "access", " ");
  append_pair(text, line, "path", " ");
  append_pair(text, line, "host", " ");
  append_pair(text, line, "port", ":");
  if (strcmp(audit_text(line, "tree"), audit_text(line, "path")) != 0)
    append_pair(text, line, "tree", ", all of ");
  if (json_is_true(json_object_get(line, "names")))
    text_append(text, ", its names and nothing else,");
  append_pair(text, line, "exe", " to ");
  append_pair(text, line, "scope", ", ");
  append_pair(text, line, "by", ", by ");
  append_pair(text, line, "reason", ": ");
  append_pair(text, line, "rule", ", rule ");
  append_pair(text, line, "store", " of ");
}

static const struct {
  const char *event;
  void (*describe)(struct text *text, const json_t *line);
} descriptions[] = {
    {"session.start", describe_start},
    {"session.end", describe_end},
    {"exec", describe_exec},
    {"decision", describe_decision},
};

char *audit_describe(const json_t *line) {
  struct text text = {0};
  text_append(&text, "");
  const char *event = audit_text(line, "event");
  for (size_t i = 0; i < ARRAY_SIZE(descriptions); i++)
    if (strcmp(descriptions[i].event, event) == 0) {
      descriptions[i].describe(&text, line);
      return text_steal(&text);
    }
  append_rest(&text, line);
  return text_steal(&text);
}

bool audit_is_housekeeping(const json_t *line) {
  static const char *const told[] = {"log.torn", "log.gap", "log.seal"};
  const char *event = audit_text(line, "event");
  for (size_t i = 0; i < ARRAY_SIZE(told); i++)
    if (strcmp(told[i], event) == 0)
      return false;
  return strncmp(event, "log.", 4) == 0;
}
