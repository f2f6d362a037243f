/* `sandbox stats`: what a session uses, live or once, for people, programs and Prometheus. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/session.h"
#include "cli/values.h"
#include "core/cleanup.h"
#include "core/json.h"
#include "core/text.h"
#include "limits/limits.h"

enum stats_option { STATS_JSON, STATS_ONCE, STATS_INTERVAL, STATS_PROMETHEUS };

static const struct option_spec stats_options[] = {
    {STATS_JSON, "json", 0, ARGUMENT_NONE, NULL, "print one JSON object a line", COMPLETE_NONE},
    {STATS_ONCE, "once", 0, ARGUMENT_NONE, NULL, "print once and stop", COMPLETE_NONE},
    {STATS_INTERVAL, "interval", 0, ARGUMENT_REQUIRED, "TIME", "how often (default 1s)",
     COMPLETE_NONE},
    {STATS_PROMETHEUS, "prometheus", 0, ARGUMENT_NONE, NULL,
     "print all sessions, or SID, in Prometheus' text format, once", COMPLETE_NONE},
    {0},
};

static double number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : -1;
}

static char *line_for_people(const json_t *stats) {
  _cleanup_free_ char *age = show_age(number(stats, "age"));
  _cleanup_free_ char *memory = show_bytes(number(stats, "memory_bytes"));
  _cleanup_free_ char *peak = show_bytes(number(stats, "memory_peak_bytes"));
  _cleanup_free_ char *read = show_bytes(number(stats, "io_read_bytes"));
  _cleanup_free_ char *written = show_bytes(number(stats, "io_write_bytes"));
  _cleanup_free_ char *cpu = show_seconds(number(stats, "cpu_ns") / 1e9, 2);
  double processes = number(stats, "processes");
  struct text text = {0};
  text_appendf(&text,
               "%s  age %s  cpu %s  memory %s (peak %s)  processes %.0f  read %s  written %s",
               json_string_value(json_object_get(stats, "sid")), age, cpu, memory, peak,
               processes < 0 ? 0 : processes, read, written);
  const json_t *network = json_object_get(stats, "network");
  const char *driver = json_string_value(json_object_get(network, "driver"));
  if (driver) {
    _cleanup_free_ char *sent = show_bytes(number(network, "sent"));
    _cleanup_free_ char *received = show_bytes(number(network, "received"));
    text_appendf(&text, "  %s connections %.0f, sent %s received %s, packets refused %.0f", driver,
                 number(network, "connections"), sent, received, number(network, "refused"));
  } else if (json_is_object(network)) {
    double datagrams = number(network, "refused_datagrams");
    text_appendf(&text, "  connections %.0f (open %.0f, denied %.0f)",
                 number(network, "connections"), number(network, "active"),
                 number(network, "denied"));
    if (datagrams > 0)
      text_appendf(&text, ", datagrams refused %.0f", datagrams);
  }
  return text_steal(&text);
}

static int print_stats(const json_t *stats, bool json, bool live) {
  _cleanup_free_ char *line = json ? json_line(stats) : line_for_people(stats);
  if (json)
    return cli_print(line);
  _cleanup_text_ struct text text = {0};
  text_appendf(&text, "%s%s%s", live ? "\r\033[2K" : "", line, live ? "" : "\n");
  return cli_print(text_string(&text));
}

static int follow(const struct invocation *invocation, const struct registry_entry *entry,
                  unsigned interval, struct sb_error *error) {
  bool json = invocation_has(invocation, STATS_JSON), once = invocation_has(invocation, STATS_ONCE);
  bool live = !json && !once && isatty(STDOUT_FILENO);
  _cleanup_client_ struct client_connection connection = {.fd = -1};
  if (client_open(entry->folder, &connection, error) < 0)
    return -1;
  for (;;) {
    json_t *stats = NULL;
    if (client_send(&connection, json_pack("{s:s}", "cmd", "cmd.stats"), NULL, 0, error) < 0 ||
        client_read(&connection, &stats, error) < 0)
      return live ? cli_print("\n") : 0; /* it has ended, and so have we */
    int result = print_stats(stats, json, live);
    json_decref(stats);
    if (once || result != 0)
      return result;
    struct pollfd gone = {.fd = connection.fd, .events = POLLIN};
    if (poll(&gone, 1, (int)interval) > 0)
      return live ? cli_print("\n") : 0;
  }
}

static uint64_t counter(const json_t *stats, const char *key) {
  const json_t *value = json_object_get(stats, key);
  return json_is_integer(value) ? (uint64_t)json_integer_value(value) : USAGE_UNKNOWN;
}

/* What was decided in each session; `all` maps ids to their counters. */
static void append_decisions(struct text *text, json_t *all) {
  static const struct {
    const char *key, *metric, *type, *help;
  } metrics[] = {
      {"allowed", "decisions_allowed_total", "counter", "accesses allowed"},
      {"denied", "decisions_denied_total", "counter", "accesses denied"},
      {"asked", "questions_total", "counter", "questions put to somebody"},
      {"timeouts", "questions_timed_out_total", "counter", "questions that nobody answered"},
      {"flooded", "questions_suppressed_total", "counter", "denied because of too many questions"},
      {"refused_writes", "refused_writes_total", "counter", "writes refused without a question"},
      {"pending", "questions_pending", "gauge", "questions waiting"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(metrics); i++) {
    text_appendf(text, "# HELP sandbox_%s %s\n# TYPE sandbox_%s %s\n", metrics[i].metric,
                 metrics[i].help, metrics[i].metric, metrics[i].type);
    const char *id;
    json_t *counts;
    json_object_foreach(all, id, counts)
        text_appendf(text, "sandbox_%s{session=\"%s\"} %lld\n", metrics[i].metric, id,
                     (long long)json_integer_value(json_object_get(counts, metrics[i].key)));
  }
}

static int print_prometheus(const struct registry_entry *entries, size_t entry_count) {
  struct usage_sample *samples = calloc(entry_count + 1, sizeof *samples);
  json_t *decisions = json_object();
  size_t count = 0;
  for (size_t i = 0; samples && i < entry_count; i++) {
    _cleanup_error_ struct sb_error error = {0};
    json_t *stats = NULL;
    if (client_call(entries[i].folder, CLIENT_SHORT_PATIENCE,
                    json_pack("{s:s}", "cmd", "cmd.stats"), &stats, &error) < 0)
      continue;
    samples[count++] =
        (struct usage_sample){.session_id = entries[i].id,
                              .usage = {.cpu_ns = counter(stats, "cpu_ns"),
                                        .throttled_ns = counter(stats, "throttled_ns"),
                                        .memory_bytes = counter(stats, "memory_bytes"),
                                        .memory_peak_bytes = counter(stats, "memory_peak_bytes"),
                                        .processes = counter(stats, "processes"),
                                        .processes_peak = counter(stats, "processes_peak"),
                                        .io_read_bytes = counter(stats, "io_read_bytes"),
                                        .io_write_bytes = counter(stats, "io_write_bytes"),
                                        .disk_bytes = counter(stats, "disk_bytes"),
                                        .disk_files = counter(stats, "disk_files"),
                                        .memory_kills = counter(stats, "memory_kills"),
                                        .refused_forks = counter(stats, "refused_forks")}};
    json_object_set(decisions, entries[i].id, json_object_get(stats, "decisions"));
    json_decref(stats);
  }
  _cleanup_text_ struct text text = {0};
  usage_to_prometheus(samples, count, &text);
  append_decisions(&text, decisions);
  json_decref(decisions);
  free(samples);
  return cli_print(text_string(&text));
}

static int stats_main(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_choice_ struct session_choice choice = {0};
  uint64_t interval = 1000;
  const char *given = invocation_value(invocation, STATS_INTERVAL);
  bool prometheus = invocation_has(invocation, STATS_PROMETHEUS);
  if (given && value_duration("--interval", given, &interval, &error) < 0)
    return cli_report_for(invocation, &error);
  if (invocation->operand_count != 1 && !prometheus) {
    sb_fail(&error, SB_CODE_USAGE, 0, "stats needs one session");
    sb_hint(&error, "sandbox stats SID; 'sandbox ps' lists the sessions");
    return cli_report_for(invocation, &error);
  }
  const char *prefix = invocation->operand_count ? invocation->operands[0] : NULL;
  if (session_choose(&choice, prefix, &error) < 0)
    return cli_report_for(invocation, &error);
  if (prometheus)
    return choice.entry ? print_prometheus(choice.entry, 1)
                        : print_prometheus(choice.registry.entries, choice.registry.count);
  int result = follow(invocation, choice.entry, (unsigned)interval, &error);
  return result < 0 ? cli_report_for(invocation, &error) : result;
}

const struct verb stats_verb = {
    .name = "stats",
    .synopsis = "[OPTION]... SID",
    .summary = "show what a session uses",
    .description = "Shows processor time, memory, processes and input/output of a session, once a "
                   "second until it ends.",
    .options = stats_options,
    .operand_completion = COMPLETE_SESSION,
    .run = stats_main,
};
