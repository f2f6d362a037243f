/* `sandbox ps`: the sessions, or the processes of one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/session.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/text.h"

enum ps_option { PS_JSON, PS_QUIET };

static const struct option_spec ps_options[] = {
    {PS_JSON, "json", 0, ARGUMENT_NONE, NULL, "print JSON", COMPLETE_NONE},
    {PS_QUIET, "quiet", 'q', ARGUMENT_NONE, NULL, "print ids only", COMPLETE_NONE},
    {0},
};

static double number(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : -1;
}

static char *command_of(const json_t *state) {
  struct text text = {0};
  const json_t *words = json_object_get(state, "command");
  size_t index;
  json_t *word;
  json_array_foreach(words, index, word) {
    _cleanup_free_ char *quoted = escape_shell_word(json_string_value(word));
    text_appendf(&text, "%s%s", index ? " " : "", quoted);
  }
  return text.length ? text_steal(&text) : xstrdup("(idle)");
}

/* What a session says of itself right now; one that does not answer is shown without. */
static json_t *live_stats(const struct registry_entry *entry) {
  _cleanup_error_ struct sb_error error = {0};
  json_t *reply = NULL;
  client_call(entry->folder, CLIENT_SHORT_PATIENCE, json_pack("{s:s}", "cmd", "cmd.stats"), &reply,
              &error);
  return reply;
}

static json_t *session_json(const struct registry_entry *entry) {
  json_t *object = json_deep_copy(entry->state), *stats = live_stats(entry);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  json_object_set_new(
      object, "age",
      json_real((double)now.tv_sec + (double)now.tv_nsec / 1e9 - number(entry->state, "started")));
  json_object_set_new(object, "responsive", json_boolean(stats != NULL));
  json_object_set_new(object, "pending",
                      json_integer(json_integer_value(
                          json_object_get(json_object_get(stats, "decisions"), "pending"))));
  if (stats)
    json_object_set(object, "usage", stats);
  json_decref(stats);
  return object;
}

/* The other back ends have one mode; which of them it is says more. */
static const char *mode_of(const json_t *session) {
  const char *backend = json_string_value(json_object_get(session, "backend"));
  return backend && strcmp(backend, "native") != 0
             ? backend
             : json_string_value(json_object_get(session, "mode"));
}

static void append_session(struct text *text, const json_t *session) {
  const json_t *usage = json_object_get(session, "usage");
  _cleanup_free_ char *age = show_age(number(session, "age"));
  _cleanup_free_ char *memory = show_bytes(number(usage, "memory_bytes"));
  _cleanup_free_ char *command = command_of(session);
  const char *named = json_string_value(json_object_get(session, "project"));
  _cleanup_free_ char *project = escape_string(named ? named : "");
  _cleanup_free_ char *cpu = show_seconds(number(usage, "cpu_ns") / 1e9, 1);
  text_appendf(text, "%-9s %5s %-8s %8s %9s %7d  %s  %s\n",
               json_string_value(json_object_get(session, "sid")), age, mode_of(session), cpu,
               memory, (int)number(session, "pending"), project, command);
}

static int list_sessions(const struct invocation *invocation, const struct registry *registry) {
  _cleanup_text_ struct text text = {0};
  json_t *list = json_array();
  bool quiet = invocation_has(invocation, PS_QUIET), json = invocation_has(invocation, PS_JSON);
  if (!quiet && !json)
    text_appendf(&text, "%-9s %5s %-8s %8s %9s %7s  %s  %s\n", "SESSION", "AGE", "MODE", "CPU",
                 "MEMORY", "PENDING", "PROJECT", "COMMAND");
  for (size_t i = 0; i < registry->count; i++) {
    if (quiet) {
      text_appendf(&text, "%s\n", registry->entries[i].id);
      continue;
    }
    json_t *session = session_json(&registry->entries[i]);
    if (!json)
      append_session(&text, session);
    json_array_append_new(list, session);
  }
  if (json && !quiet) {
    _cleanup_free_ char *line = json_line(list);
    text_append(&text, line);
  }
  json_decref(list);
  return cli_print(text_string(&text));
}

static void append_process(struct text *text, const json_t *process) {
  _cleanup_free_ char *memory = show_bytes(number(process, "memory_kb") * 1024);
  text_appendf(text, "%7d %9d %7d %-5s %8.1fs %9s  %s\n", (int)number(process, "pid"),
               (int)number(process, "host_pid"), (int)number(process, "parent"),
               json_string_value(json_object_get(process, "state")), number(process, "cpu_seconds"),
               memory, json_string_value(json_object_get(process, "command")));
}

static int list_processes(const struct invocation *invocation, const struct registry_entry *entry) {
  _cleanup_error_ struct sb_error error = {0};
  json_t *reply = NULL;
  if (client_call(entry->folder, CLIENT_PATIENCE, json_pack("{s:s}", "cmd", "cmd.ps"), &reply,
                  &error) < 0)
    return cli_report_for(invocation, &error);
  const json_t *processes = json_object_get(reply, "processes");
  _cleanup_text_ struct text text = {0};
  if (invocation_has(invocation, PS_JSON)) {
    _cleanup_free_ char *line = json_line(processes);
    text_append(&text, line);
  } else {
    text_appendf(&text, "%7s %9s %7s %-5s %9s %9s  %s\n", "PID", "HOST-PID", "PARENT", "STATE",
                 "CPU", "MEMORY", "COMMAND");
    size_t index;
    json_t *process;
    json_array_foreach(processes, index, process) append_process(&text, process);
  }
  json_decref(reply);
  return cli_print(text_string(&text));
}

static int ps_main(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_choice_ struct session_choice choice = {0};
  const char *prefix = invocation->operand_count ? invocation->operands[0] : NULL;
  if (session_choose(&choice, prefix, &error) < 0)
    return cli_report_for(invocation, &error);
  return prefix ? list_processes(invocation, choice.entry)
                : list_sessions(invocation, &choice.registry);
}

const struct verb ps_verb = {
    .name = "ps",
    .synopsis = "[OPTION]... [SID]",
    .summary = "list sessions, or the processes of one",
    .description = "Without SID: your sessions, with what they use and how many requests wait for "
                   "an answer. With SID: the processes inside, with their pids inside and outside. "
                   "Any unambiguous beginning of an id will do.",
    .options = ps_options,
    .operand_completion = COMPLETE_SESSION,
    .run = ps_main,
};
