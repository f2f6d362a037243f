/* `sandbox learn`: runs a command with its reads recorded instead of asked about, and proposes a
 * policy that allows them. What it read is in the session's audit log; nothing is stored unless
 * --write says so, and not before it was shown. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit/audit.h"
#include "audit/filter.h"
#include "cli/policy.h"
#include "cli/run-options.h"
#include "cli/session.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/text.h"
#include "plan/named-secrets.h"
#include "policy/generalise.h"
#include "session/events.h"

enum learn_option { LEARN_WRITE = 1000, LEARN_PROJECT, LEARN_OUTPUT };
enum { REMARKS_MAX = 40, SEARCH_MAX = 1000000 };

static const struct option_spec learn_options[] = {
    {LEARN_WRITE, "write", 0, ARGUMENT_NONE, NULL, "add the proposal to your policy.yaml",
     COMPLETE_NONE},
    {LEARN_PROJECT, "project", 0, ARGUMENT_NONE, NULL,
     "with --write: to this project's policy, not yours", COMPLETE_NONE},
    {LEARN_OUTPUT, "output", 'o', ARGUMENT_REQUIRED, "FILE", "write the proposal to FILE",
     COMPLETE_PATH},
    {RUN_RW, "rw", 0, ARGUMENT_REQUIRED, "PATH", "let the command read and write PATH",
     COMPLETE_PATH},
    {RUN_RO, "ro", 0, ARGUMENT_REQUIRED, "PATH", "let it read PATH; not part of the proposal",
     COMPLETE_PATH},
    {RUN_BLACKLIST, "blacklist", 0, ARGUMENT_REQUIRED, "PATH", "hide PATH", COMPLETE_PATH},
    {RUN_ALLOW_NETWORK, "allow-network", 0, ARGUMENT_OPTIONAL, "HOST,...",
     "allow the network, or only the hosts listed", COMPLETE_NONE},
    {RUN_ENV, "env", 0, ARGUMENT_REQUIRED, "NAME[=VALUE]",
     "pass an environment variable, or set it", COMPLETE_NONE},
    {RUN_GATE, "gate", 0, ARGUMENT_REQUIRED, "TRIGGER", "what makes the command wait",
     COMPLETE_WORDS, "auto fuse notify"},
    {RUN_POLICY, "policy", 0, ARGUMENT_REQUIRED, "FILE",
     "apply one more policy file, over all others", COMPLETE_PATH},
    {RUN_MEMORY, "memory", 0, ARGUMENT_REQUIRED, "SIZE", "limit memory: 512M", COMPLETE_NONE},
    {RUN_PIDS, "pids", 0, ARGUMENT_REQUIRED, "NUMBER", "limit processes and threads: 50",
     COMPLETE_NONE},
    {RUN_TIMEOUT, "timeout", 0, ARGUMENT_REQUIRED, "TIME", "limit the time: 60, 5m, 1h",
     COMPLETE_NONE},
    {RUN_CHDIR, "chdir", 'C', ARGUMENT_REQUIRED, "DIR", "start in the folder DIR", COMPLETE_FOLDER},
    {RUN_COMMAND, "command", 'c', ARGUMENT_REQUIRED, "STRING", "run STRING with the shell",
     COMPLETE_NONE},
    {RUN_TTY, "tty", 0, ARGUMENT_REQUIRED, "WHEN", "arrange for a terminal", COMPLETE_WORDS,
     "auto always never"},
    {0},
};

/* ---- what happened ---- */

struct lesson {
  const char *since; /* when we began */
  int code;          /* that the command ended with */
  char *session;     /* its id, once found */
  struct observed *reads;
  size_t count;
  struct strv paths; /* what the reads point to */
  struct strv remarks;
  size_t unsaid; /* remarks that would be too many */
};

static void lesson_clear(struct lesson *lesson) {
  free(lesson->session);
  free(lesson->reads);
  strv_clear(&lesson->paths);
  strv_clear(&lesson->remarks);
}

static const char *text_of(const json_t *line, const char *key) {
  const char *text = json_string_value(json_object_get(line, key));
  return text ? text : "";
}

/* Our own session: started by this very process, since we began. */
static bool find_session(void *context, const struct audit_entry *entry) {
  struct lesson *lesson = context;
  bool ours = strcmp(text_of(entry->json, "event"), "session.start") == 0 &&
              json_integer_value(json_object_get(entry->json, "pid")) == getpid() &&
              strcmp(text_of(entry->json, "time"), lesson->since) >= 0;
  if (ours) {
    free(lesson->session);
    lesson->session = xstrdup(text_of(entry->json, "session"));
  }
  return true;
}

static void remark(struct lesson *lesson, char *sentence) {
  _cleanup_free_ char *owned = sentence;
  if (strv_contains(&lesson->remarks, owned))
    return;
  if (lesson->remarks.count < REMARKS_MAX)
    strv_add(&lesson->remarks, owned);
  else
    lesson->unsaid++;
}

static void take_read(struct lesson *lesson, const json_t *line) {
  char *path = json_get_path(line, "path");
  if (!path)
    return;
  strv_take(&lesson->paths, path);
  ARRAY_GROW(lesson->reads, lesson->count);
  lesson->reads[lesson->count++] =
      (struct observed){.path = path, .folder = strcmp(text_of(line, "access"), "list") == 0};
}

static void take_denial(struct lesson *lesson, const json_t *line) {
  _cleanup_free_ char *path = json_get_path(line, "path");
  const char *host = text_of(line, "host"), *reason = text_of(line, "reason");
  if (*host)
    remark(lesson, xasprintf("%s:%lld: the network is not learned; see --allow-network", host,
                             json_integer_value(json_object_get(line, "port"))));
  else if (path && strcmp(text_of(line, "access"), "write") == 0)
    remark(lesson, xasprintf("%s: a write; allow it with filesystem.write", path));
  else if (path)
    remark(lesson, xasprintf("%s: denied (%s)", path, *reason ? reason : "policy"));
}

static bool take_decision(void *context, const struct audit_entry *entry) {
  struct lesson *lesson = context;
  if (strcmp(text_of(entry->json, "event"), "decision") != 0)
    return true;
  bool allowed = strcmp(text_of(entry->json, "decision"), "allow") == 0;
  if (allowed && strcmp(text_of(entry->json, "by"), "learn") == 0)
    take_read(lesson, entry->json);
  else if (!allowed)
    take_denial(lesson, entry->json);
  return true;
}

/* ---- the proposal ---- */

static char *heading_of(const struct invocation *invocation, const struct lesson *lesson) {
  struct text text = {0};
  text_append(&text, "Learned from:");
  const char *script = invocation_value(invocation, RUN_COMMAND);
  _cleanup_free_ char *quoted = script ? escape_shell_word(script) : NULL;
  if (script)
    text_appendf(&text, " -c %s", quoted);
  for (size_t i = 0; i < invocation->operand_count; i++) {
    _cleanup_free_ char *word = escape_shell_word(invocation->operands[i]);
    text_appendf(&text, " %s", word);
  }
  text_appendf(&text, "\n(session %s; %zu %s that no rule covered)", lesson->session, lesson->count,
               lesson->count == 1 ? "read" : "reads");
  if (lesson->code != 0)
    text_appendf(&text, "\nThe command has failed (status %d): it may need more than this.",
                 lesson->code);
  return text_steal(&text);
}

/* Adds what has to be hidden in a folder that is proposed. False if that cannot be known. */
static bool hide_named(const struct policy *policy, const char *folder, struct strv *hidden) {
  _cleanup_strv_ struct strv found = {0};
  if (!named_secrets_find(policy, folder, SEARCH_MAX, &found))
    return false;
  STRV_FOREACH (path, &found)
    strv_add(hidden, *path);
  return true;
}

/* A rule allows everything in its folder: files called like secrets are hidden by a rule, too. */
static void hide_named_secrets(const struct policy *policy, struct proposal *proposal) {
  size_t count = 0;
  for (size_t i = 0; i < proposal->count; i++) {
    struct proposed item = proposal->items[i];
    if (!item.folder || hide_named(policy, item.path, &proposal->hidden))
      proposal->items[count++] = item;
    else
      strv_take(&proposal->too_broad, item.path);
  }
  proposal->count = count;
}

static int propose(const struct invocation *invocation, const struct policy_context *context,
                   struct lesson *lesson, char **ret_yaml, struct sb_error *error) {
  _cleanup_policy_ struct policy *policy = NULL;
  _cleanup_proposal_ struct proposal proposal = {0};
  _cleanup_free_ char *heading = heading_of(invocation, lesson);
  if (policy_load(context, &policy, error) < 0)
    return -1;
  policy_resolve(policy);
  policy->mode = MODE_DYNAMIC; /* that is what was learned in */
  policy_generalise(policy, context, lesson->reads, lesson->count, &proposal);
  hide_named_secrets(policy, &proposal);
  if (lesson->unsaid > 0)
    strv_addf(&lesson->remarks, "and %zu more: sandbox audit %s --decision deny", lesson->unsaid,
              lesson->session);
  *ret_yaml = proposal_to_yaml(&proposal, context, heading, &lesson->remarks);
  return 0;
}

static int write_output(const char *file, const char *yaml, struct sb_error *error) {
  int result = file_replace_at(AT_FDCWD, file, yaml, strlen(yaml), 0644);
  if (result == 0)
    return 0;
  _cleanup_free_ char *shown = escape_string(file);
  return sb_fail(error, SB_CODE_SYSTEM, -result, "--output '%s'", shown);
}

static int deliver(const struct invocation *invocation, const struct host_context *host,
                   const char *yaml, struct sb_error *error) {
  const char *output = invocation_value(invocation, LEARN_OUTPUT);
  if (output && write_output(output, yaml, error) < 0)
    return -1;
  /* Standard output belongs to the command. */
  if (!output)
    session_say_last(host->state_home, yaml);
  if (!invocation_has(invocation, LEARN_WRITE))
    return 0;
  return policy_merge_text(
      &host->policy,
      &(struct policy_merge){.source = "the proposal",
                             .text = yaml,
                             .length = strlen(yaml),
                             .project = invocation_has(invocation, LEARN_PROJECT),
                             .quiet = true,
                             .comment = "learned by 'sandbox learn'"},
      error);
}

/* ---- the verb ---- */

static int check_usage(const struct invocation *invocation, struct sb_error *error) {
  if (invocation->operand_count == 0 && !invocation_has(invocation, RUN_COMMAND)) {
    sb_fail(error, SB_CODE_USAGE, 0, "learn needs a command");
    return sb_hint(error, "sandbox learn -- make test");
  }
  if (invocation_has(invocation, LEARN_PROJECT) && !invocation_has(invocation, LEARN_WRITE)) {
    sb_fail(error, SB_CODE_USAGE, 0, "--project says where to write, but nothing is written");
    return sb_hint(error, "add --write");
  }
  return 0;
}

static int run_learn(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_host_ struct host_context host = {0};
  __attribute__((cleanup(lesson_clear))) struct lesson lesson = {0};
  if (check_usage(invocation, &error) < 0 || host_context_load(&host, &error) < 0)
    return cli_report(&error);
  _cleanup_free_ char *since = audit_parse_time("now", "0s", &error);
  lesson.since = since;
  int code = run_main(invocation);
  lesson.code = code;
  _cleanup_free_ char *home = events_home(&host), *yaml = NULL;
  if (audit_read(home, NULL, find_session, &lesson, &error) < 0)
    return cli_report(&error);
  if (!lesson.session)
    return code; /* it did not start, and has said why */
  if (audit_read(home, lesson.session, take_decision, &lesson, &error) < 0 ||
      propose(invocation, &host.policy, &lesson, &yaml, &error) < 0 ||
      deliver(invocation, &host, yaml, &error) < 0)
    return cli_report(&error);
  return code;
}

const struct verb learn_verb = {
    .name = "learn",
    .synopsis = "[OPTION]... [--] COMMAND [ARGUMENT]...",
    .summary = "run a command and propose a policy for what it read",
    .description =
        "Runs COMMAND in dynamic mode with reads recorded instead of asked about, and prints a "
        "policy that allows them on standard error: folders where three or more of their entries "
        "were read, never a whole home folder, and never a secret. Secrets stay hidden meanwhile, "
        "and nothing outside the project becomes writable. --write adds the proposal to your "
        "policy after it was shown. The command can read what is not secret: learn only from "
        "commands you would let read your files.",
    .options = learn_options,
    .stop_at_operand = true,
    .operand_completion = COMPLETE_COMMAND,
    .run = run_learn,
};
