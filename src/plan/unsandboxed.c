/* See unsandboxed.h. Going without a sandbox is decided on programs, never on the beginning of a
 * text: `docker; rm -rf ~` begins like docker. Any doubt means: sandboxed. */
#include "plan/unsandboxed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/path.h"
#include "core/shell.h"
#include "plan/plan.h"

/* ---- programs ---- */

/* The canonical file of a command as the caller's shell would find it. Entries of PATH that are not
 * absolute depend on the folder one happens to be in: whatever is found there does not count. */
static char *find_program(const struct host_context *host, const char *word) {
  _cleanup_strv_ struct strv environment = {0}, places = {0};
  for (char *const *entry = host->policy.environment; *entry; entry++)
    strv_add(&environment, *entry);
  plan_find_executables(&environment, word, &places);
  STRV_FOREACH (place, &places) {
    if (access(*place, X_OK) < 0)
      continue;
    char *resolved = NULL;
    return **place == '/' && file_resolve(*place, &resolved) == 0 ? resolved : NULL;
  }
  return NULL;
}

/* By name and by file: one file may have many names (busybox), and one name many files. */
static bool is_listed(const struct command_question *question, const char *word,
                      const char *resolved) {
  STRV_FOREACH (entry, &question->policy->commands.exclude) {
    if (strcmp(path_base(*entry), path_base(word)) != 0)
      continue;
    _cleanup_free_ char *listed = find_program(question->host, *entry);
    if (listed && strcmp(listed, resolved) == 0)
      return true;
  }
  return false;
}

static const char *why_not_excluded(const struct command_question *question, const char *word,
                                    const char *resolved) {
  if (!resolved)
    return "no program of that name in an absolute folder of PATH";
  if (!is_listed(question, word, resolved))
    return "not in commands.exclude";
  /* What was run in a sandbox before could have put it there. */
  if (policy_decide(question->policy, resolved, ACCESS_WRITE).verdict == VERDICT_ALLOW)
    return "its file is writable for sandboxed commands";
  return NULL;
}

static void add_program(const struct command_question *question, const char *word,
                        struct command_verdict *ret) {
  char *resolved = find_program(question->host, word);
  const char *why_not = why_not_excluded(question, word, resolved);
  ARRAY_GROW(ret->programs, ret->program_count);
  ret->programs[ret->program_count++] = (struct command_program){
      .name = xstrdup(word), .resolved = resolved, .why_not = why_not ? xstrdup(why_not) : NULL};
}

/* ---- the question ---- */

static void add_reason(struct command_verdict *ret, const char *name, const char *text) {
  _cleanup_free_ char *shown = escape_string(name);
  strv_addf(&ret->reasons, "'%s': %s", shown, text);
}

static void look_at_programs(const struct command_question *question, struct command_verdict *ret) {
  if (!question->script) {
    add_program(question, question->arguments[0], ret);
    return;
  }
  _cleanup_shell_script_ struct shell_script script = {0};
  shell_split(question->script, &script);
  for (size_t i = 0; i < script.count; i++)
    add_program(question, script.commands[i].words.items[0], ret);
  if (!script.doubt)
    return;
  strv_addf(&ret->reasons, "the string has %s, so nothing in it is excluded", script.doubt);
  for (size_t i = 0; i < ret->program_count; i++)
    if (!ret->programs[i].why_not)
      ret->programs[i].why_not = xstrdup("in a string that is not understood");
}

static void decide_exclusion(const struct command_question *question, struct command_verdict *ret) {
  size_t excluded = 0;
  if (question->policy->commands.exclude.count == 0)
    return;
  look_at_programs(question, ret);
  for (size_t i = 0; i < ret->program_count; i++) {
    if (!ret->programs[i].why_not)
      excluded++;
    else
      add_reason(ret, ret->programs[i].name, ret->programs[i].why_not);
  }
  ret->excluded = ret->program_count > 0 && excluded == ret->program_count;
  if (ret->excluded)
    strv_add(&ret->reasons, "every command of it is in commands.exclude");
  else if (excluded > 0)
    strv_add(&ret->reasons, "excluded commands together with others are sandboxed");
}

void command_decide(const struct command_question *question, struct command_verdict *ret) {
  const struct policy *policy = question->policy;
  *ret = (struct command_verdict){0};
  decide_exclusion(question, ret);
  bool disabled = policy->require == REQUIRE_DISABLED;
  if (disabled)
    strv_add(&ret->reasons, "require: disabled");
  if (question->bypass)
    strv_add(&ret->reasons, policy->commands.allow_bypass
                                ? "the caller asked for no sandbox"
                                : "going without a sandbox on request is not allowed "
                                  "(commands.allow_bypass: false)");
  if (ret->excluded && !policy->commands.allow_unsandboxed)
    strv_add(&ret->reasons, "running it without a sandbox is not allowed "
                            "(commands.allow_unsandboxed: false)");
  ret->refused = question->bypass ? !policy->commands.allow_bypass
                                  : ret->excluded && !policy->commands.allow_unsandboxed;
  ret->sandboxed = !ret->excluded && !disabled && !question->bypass;
  ret->needs_approval = !ret->sandboxed || !policy->commands.auto_allow;
  if (ret->sandboxed && !policy->commands.auto_allow)
    strv_add(&ret->reasons, "sandboxed commands are to be approved (commands.auto_allow: false)");
}

/* ---- showing ---- */

json_t *command_verdict_to_json(const struct command_verdict *verdict) {
  json_t *programs = json_array();
  for (size_t i = 0; i < verdict->program_count; i++) {
    json_t *program = json_object();
    json_set_string(program, "name", verdict->programs[i].name);
    json_set_string(program, "resolved", verdict->programs[i].resolved);
    json_object_set_new(program, "excluded", json_boolean(!verdict->programs[i].why_not));
    json_array_append_new(programs, program);
  }
  return json_pack("{s:b, s:b, s:b, s:b, s:o, s:o}", "sandboxed", verdict->sandboxed, "excluded",
                   verdict->excluded, "refused", verdict->refused, "needs_approval",
                   verdict->needs_approval, "reasons",
                   json_string_array(verdict->reasons.items, verdict->reasons.count), "programs",
                   programs);
}

void command_verdict_clear(struct command_verdict *verdict) {
  for (size_t i = 0; i < verdict->program_count; i++) {
    free(verdict->programs[i].name);
    free(verdict->programs[i].resolved);
    free(verdict->programs[i].why_not);
  }
  free(verdict->programs);
  strv_clear(&verdict->reasons);
  *verdict = (struct command_verdict){0};
}
