/* `sandbox report`: what is known about a session that has ended. Reads only. */
#include <stdio.h>

#include "cli/overlays.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/text.h"
#include "session/reports.h"

enum { REPORT_JSON, REPORT_FULL };
enum { SHOWN_LINES = 40 };

static const struct option_spec options[] = {
    {REPORT_JSON, "json", .help = "print the report as JSON, one line"},
    {REPORT_FULL, "full", .help = "show every change that was kept"},
    {0},
};

static void append_command(struct text *text, const json_t *words) {
  for (size_t i = 0; i < json_array_size(words); i++) {
    const char *string = json_string_value(json_array_get(words, i));
    _cleanup_free_ char *word = escape_shell_word(string ? string : "");
    text_appendf(text, "%s%s", i ? " " : "", word);
  }
}

static void append_denied(struct text *text, const json_t *denied) {
  if (json_array_size(denied) == 0)
    return;
  text_append(text, "denied:\n");
  for (size_t i = 0; i < json_array_size(denied); i++) {
    text_append_char(text, ' ');
    const json_t *item = json_array_get(denied, i);
    const char *keys[] = {"access", "path", "host", "reason"};
    for (size_t key = 0; key < ARRAY_SIZE(keys); key++) {
      const char *word = json_string_value(json_object_get(item, keys[key]));
      _cleanup_free_ char *path = json_get_path(item, keys[key]);
      _cleanup_free_ char *shown = escape_name(path ? path : word ? word : "");
      text_appendf(text, key == 3 ? " (%s)" : word ? " %s" : "%s", shown);
    }
    /* Quoted for a shell, so in plain letters: escaped once more it would be another name. */
    const char *flag = json_string_value(json_object_get(item, "flag"));
    text_appendf(text, "%s%s\n", flag ? "; to allow it: sandbox run " : "", flag ? flag : "");
  }
}

static int print_text(const json_t *json, size_t lines) {
  _cleanup_text_ struct text text = {0};
  text_appendf(&text, "session %s: ", json_string_value(json_object_get(json, "session")));
  append_command(&text, json_object_get(json, "command"));
  text_appendf(&text, "\nexit code %lld\n", json_integer_value(json_object_get(json, "exit_code")));
  _cleanup_free_ char *changes = changes_json_to_text(json_object_get(json, "changes"), lines);
  text_append(&text, *changes ? changes : "nothing changed\n");
  append_denied(&text, json_object_get(json, "denied"));
  return cli_print(text_string(&text));
}

static int run(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_host_ struct host_context host = {0};
  const char *session = cli_session_operand(invocation, &error);
  json_t *json = NULL;
  if (!session || host_context_load(&host, &error) < 0 ||
      session_report_load(&host, session, &json, &error) < 0)
    return cli_report_for(invocation, &error);
  if (invocation_has(invocation, REPORT_JSON))
    return cli_print_json(json);
  size_t lines = invocation_has(invocation, REPORT_FULL) ? SIZE_MAX : SHOWN_LINES;
  int code = print_text(json, lines);
  json_decref(json);
  return code;
}

const struct verb report_verb = {
    .name = "report",
    .synopsis = "[OPTION]... SID",
    .summary = "show what a session changed",
    .description =
        "Shows the report that was made at the end of session SID: what it created, modified and "
        "deleted in writable places and overlays, first what a person should look at. A report is "
        "kept for sessions with overlays and for those started with --report.",
    .options = options,
    .operand_completion = COMPLETE_SESSION,
    .run = run,
};
