/* `sandbox audit`: reads and verifies the audit log. Writes nothing but what --prune asks for. */
#include "cli/audit.h"

#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/path.h"
#include "core/text.h"
#include "plan/project.h"
#include "session/events.h"

static const struct option_spec audit_options[] = {
    {AUDIT_SINCE, "since", 0, ARGUMENT_REQUIRED, "TIME", "only from then on: 1h, 2d, 2026-11-15",
     COMPLETE_NONE},
    {AUDIT_UNTIL, "until", 0, ARGUMENT_REQUIRED, "TIME", "only before then", COMPLETE_NONE},
    {AUDIT_PATH, "path", 0, ARGUMENT_REQUIRED, "PATH", "only about this path and what is below it",
     COMPLETE_PATH},
    {AUDIT_EVENT, "event", 0, ARGUMENT_REQUIRED, "EVENT",
     "only these: decision, exec, limit, session, ...", COMPLETE_NONE},
    {AUDIT_DECISION, "decision", 0, ARGUMENT_REQUIRED, "DECISION", "only what was decided so",
     COMPLETE_WORDS, "allow deny"},
    {AUDIT_JSON, "json", 0, ARGUMENT_NONE, NULL, "print the lines as they are, JSON",
     COMPLETE_NONE},
    {AUDIT_VERIFY, "verify", 0, ARGUMENT_NONE, NULL,
     "check that nothing was changed, cut, inserted or replaced", COMPLETE_NONE},
    {AUDIT_FOLLOW, "follow", 'f', ARGUMENT_NONE, NULL, "go on with new lines as they come",
     COMPLETE_NONE},
    {AUDIT_PRUNE, "prune", 0, ARGUMENT_REQUIRED, "TIME", "remove logs that ended before then",
     COMPLETE_NONE},
    {0},
};

/* ---- which session ---- */

struct search {
  const char *prefix;
  json_t *found; /* a set */
};

static bool look_for_id(void *context, const struct audit_entry *entry) {
  struct search *search = context;
  const char *id = json_string_value(json_object_get(entry->json, "session"));
  if (id && strncmp(id, search->prefix, strlen(search->prefix)) == 0)
    json_object_set_new(search->found, id, json_true());
  return true;
}

static int fail_ambiguous(const char *prefix, json_t *found, struct sb_error *error) {
  _cleanup_text_ struct text list = {0};
  for (void *at = json_object_iter(found); at; at = json_object_iter_next(found, at)) {
    _cleanup_free_ char *id = escape_string(json_object_iter_key(at));
    text_appendf(&list, "%s%s", list.length ? ", " : "", id);
  }
  _cleanup_free_ char *shown = escape_string(prefix);
  if (json_object_size(found) == 0) {
    sb_fail(error, SB_CODE_NOT_FOUND, 0, "there is no audit log of session '%s'", shown);
    return sb_hint(error, "'sandbox audit' without an id shows every log");
  }
  sb_fail(error, SB_CODE_USAGE, 0, "more than one session starts with '%s'", shown);
  return sb_hint(error, "write more of it: %s", text_string(&list));
}

/* By its beginning, as everywhere. New string, NULL without a prefix. */
static int find_session(const char *home, const char *prefix, char **ret_id,
                        struct sb_error *error) {
  if (!prefix)
    return 0;
  struct search search = {.prefix = prefix, .found = json_object()};
  int result = audit_read(home, NULL, look_for_id, &search, error);
  if (result == 0 && (json_object_size(search.found) != 1 || *prefix == '-'))
    result = fail_ambiguous(prefix, search.found, error);
  if (result == 0)
    *ret_id = xstrdup(json_object_iter_key(json_object_iter(search.found)));
  json_decref(search.found);
  return result;
}

/* ---- verify ---- */

static json_t *verdict_to_json(const struct audit_verdict *verdict) {
  json_t *problems = json_array();
  for (size_t i = 0; i < verdict->problem_count; i++) {
    const struct audit_problem *problem = &verdict->problems[i];
    json_t *object = json_object();
    json_set_string(object, "file", problem->file);
    json_object_set_new(object, "line", json_integer((json_int_t)problem->line));
    json_set_string(object, "problem", problem->what);
    json_array_append_new(problems, object);
  }
  json_t *chain = json_pack("{s:I, s:s}", "count", (json_int_t)verdict->chain_count, "head",
                            verdict->chain_head);
  return json_pack("{s:b, s:I, s:I, s:o, s:o, s:o}", "valid", verdict->problem_count == 0, "logs",
                   (json_int_t)verdict->logs, "lines", (json_int_t)verdict->lines, "chain", chain,
                   "problems", problems, "notes",
                   json_string_array(verdict->notes.items, verdict->notes.count));
}

static char *verdict_to_text(const struct audit_verdict *verdict) {
  struct text text = {0};
  for (size_t i = 0; i < verdict->problem_count; i++) {
    const struct audit_problem *problem = &verdict->problems[i];
    _cleanup_free_ char *file = escape_string(problem->file);
    text_append(&text, file);
    if (problem->line)
      text_appendf(&text, ":%zu", problem->line);
    text_appendf(&text, ": %s\n", problem->what);
  }
  STRV_FOREACH (note, &verdict->notes)
    text_appendf(&text, "note: %s\n", *note);
  if (verdict->problem_count)
    text_appendf(&text, "NOT intact: %zu problem%s\n", verdict->problem_count,
                 verdict->problem_count == 1 ? "" : "s");
  else
    text_appendf(&text,
                 "intact: %zu line%s, %zu log%s; the chain has %llu record%s and ends with %s\n",
                 verdict->lines, verdict->lines == 1 ? "" : "s", verdict->logs,
                 verdict->logs == 1 ? "" : "s", (unsigned long long)verdict->chain_count,
                 verdict->chain_count == 1 ? "" : "s",
                 verdict->chain_head[0] ? verdict->chain_head : "nothing");
  return text_steal(&text);
}

static int verify(const char *home, const char *session, bool json, struct sb_error *error) {
  _cleanup_verdict_ struct audit_verdict verdict = {0};
  if (audit_verify(home, session, &verdict, error) < 0)
    return -1;
  _cleanup_free_ char *text = NULL;
  if (json) {
    json_t *object = verdict_to_json(&verdict);
    text = json_line(object);
    json_decref(object);
  } else {
    text = verdict_to_text(&verdict);
  }
  int result = cli_print(text);
  return result ? result : verdict.problem_count > 0;
}

/* ---- prune ---- */

static int prune(const char *home, const char *value, bool json, struct sb_error *error) {
  size_t count;
  _cleanup_free_ char *before = audit_parse_time("--prune", value, error);
  if (!before || audit_prune(home, before, &count, error) < 0)
    return -1;
  _cleanup_free_ char *line = json ? xasprintf("{\"removed\":%zu}\n", count)
                                   : xasprintf("removed %zu log%s; the chain remembers them\n",
                                               count, count == 1 ? "" : "s");
  return cli_print(line);
}

/* ---- the verb ---- */

static int read_filter(const struct invocation *invocation, const char *cwd,
                       struct audit_filter *filter, struct sb_error *error) {
  const char *since = invocation_value(invocation, AUDIT_SINCE);
  const char *until = invocation_value(invocation, AUDIT_UNTIL);
  const char *path = invocation_value(invocation, AUDIT_PATH);
  if ((since && !(filter->since = audit_parse_time("--since", since, error))) ||
      (until && !(filter->until = audit_parse_time("--until", until, error))))
    return -1;
  filter->path = path ? path_join(cwd, path) : NULL;
  filter->event = invocation_value(invocation, AUDIT_EVENT);
  filter->decision = invocation_value(invocation, AUDIT_DECISION);
  return 0;
}

static int check_usage(const struct invocation *invocation, struct sb_error *error) {
  static const int alone[] = {AUDIT_VERIFY, AUDIT_FOLLOW, AUDIT_PRUNE};
  int count = 0;
  for (size_t i = 0; i < ARRAY_SIZE(alone); i++)
    count += invocation_has(invocation, alone[i]);
  if (count > 1)
    return sb_fail(error, SB_CODE_USAGE, 0, "use one of --verify, --follow and --prune");
  if (invocation->operand_count > (invocation_has(invocation, AUDIT_PRUNE) ? 0 : 1)) {
    sb_fail(error, SB_CODE_USAGE, 0, "too many operands");
    return sb_hint(error, "sandbox audit [SID]");
  }
  return 0;
}

static int dispatch(const struct invocation *invocation, struct sb_error *error) {
  _cleanup_host_ struct host_context host = {0};
  _cleanup_filter_ struct audit_filter filter = {0};
  if (check_usage(invocation, error) < 0 || host_context_load(&host, error) < 0 ||
      read_filter(invocation, host.cwd, &filter, error) < 0)
    return -1;
  _cleanup_free_ char *home = events_home(&host), *session = NULL;
  bool json = invocation_has(invocation, AUDIT_JSON);
  if (invocation_has(invocation, AUDIT_PRUNE))
    return prune(home, invocation_value(invocation, AUDIT_PRUNE), json, error);
  const char *prefix = invocation->operand_count ? invocation->operands[0] : NULL;
  if (find_session(home, prefix, &session, error) < 0)
    return -1;
  if (invocation_has(invocation, AUDIT_VERIFY))
    return verify(home, session, json, error);
  const struct audit_listing listing = {
      .home = home, .session = session, .filter = &filter, .json = json};
  return invocation_has(invocation, AUDIT_FOLLOW) ? audit_follow(&listing, error)
                                                  : audit_print(&listing, error);
}

static int run_audit(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  int result = dispatch(invocation, &error);
  return result < 0 ? cli_report_for(invocation, &error) : result;
}

const struct verb audit_verb = {
    .name = "audit",
    .synopsis = "[OPTION]... [SID]",
    .summary = "show and verify what sessions did",
    .description =
        "Shows the audit log of session SID, or of all sessions, by time (UTC): starts and ends, "
        "commands, decisions, limits, and what you did to the policy. --verify recomputes the "
        "chain of hashes, names each line that was changed, cut, inserted, moved or replaced, and "
        "exits with 1 if there is any.",
    .options = audit_options,
    .operand_completion = COMPLETE_SESSION,
    .run = run_audit,
};
