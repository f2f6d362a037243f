/* `sandbox approve` and `sandbox deny`: answer one question of a session. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/session.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/path.h"

/* In the order of enum grant_scope, so that an id is a scope. */
enum answer_option {
  ANSWER_OPTION_ONCE,
  ANSWER_OPTION_SESSION,
  ANSWER_OPTION_PROJECT,
  ANSWER_OPTION_USER,
  ANSWER_OPTION_ORG,
  ANSWER_OPTION_TREE,
  ANSWER_OPTION_ALWAYS,
  ANSWER_OPTION_REST,
  ANSWER_OPTION_JSON,
};

#define OPTION_TREE                                                                                \
  {                                                                                                \
    ANSWER_OPTION_TREE, "tree", 0, ARGUMENT_REQUIRED, "PATH",                                      \
        "everything below PATH, a folder above what is asked for", COMPLETE_FOLDER                 \
  }
#define OPTION_JSON                                                                                \
  { ANSWER_OPTION_JSON, "json", 0, ARGUMENT_NONE, NULL, "print JSON", COMPLETE_NONE }

static const struct option_spec approve_options[] = {
    {ANSWER_OPTION_ONCE, "once", 0, ARGUMENT_NONE, NULL, "for this one access (the default)",
     COMPLETE_NONE},
    {ANSWER_OPTION_SESSION, "session", 0, ARGUMENT_NONE, NULL, "until the session ends",
     COMPLETE_NONE},
    {ANSWER_OPTION_PROJECT, "project", 0, ARGUMENT_NONE, NULL, "always, in this project",
     COMPLETE_NONE},
    {ANSWER_OPTION_USER, "user", 0, ARGUMENT_NONE, NULL, "always, for you", COMPLETE_NONE},
    {ANSWER_OPTION_ORG, "org", 0, ARGUMENT_NONE, NULL, "always, for everybody on this machine",
     COMPLETE_NONE},
    OPTION_TREE,
    OPTION_JSON,
    {0},
};

static const struct option_spec deny_options[] = {
    {ANSWER_OPTION_ALWAYS, "always", 0, ARGUMENT_NONE, NULL, "now and in later sessions of yours",
     COMPLETE_NONE},
    {ANSWER_OPTION_SESSION, "session", 0, ARGUMENT_NONE, NULL, "until the session ends",
     COMPLETE_NONE},
    {ANSWER_OPTION_REST, "rest", 0, ARGUMENT_NONE, NULL,
     "and everything else that this session would ask", COMPLETE_NONE},
    OPTION_TREE,
    OPTION_JSON,
    {0},
};

static const char *const scopes[] = {"once", "session", "project", "user", "org"};

/* The one scope that was given; two are an error. */
static int choose_scope(const struct invocation *invocation, const char **ret_scope,
                        struct sb_error *error) {
  *ret_scope = invocation_has(invocation, ANSWER_OPTION_ALWAYS) ? "user" : "once";
  size_t given = invocation_has(invocation, ANSWER_OPTION_ALWAYS);
  for (size_t i = 0; i < ARRAY_SIZE(scopes); i++) {
    if (!invocation_has(invocation, (int)i))
      continue;
    *ret_scope = scopes[i];
    given++;
  }
  if (given < 2)
    return 0;
  sb_fail(error, SB_CODE_USAGE, 0, "%s: more than one scope was given", invocation->verb->name);
  return sb_hint(error, "give one of them");
}

static int fail_ambiguous(const char *prefix, const char *found, const char *second,
                          struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(prefix);
  if (second) {
    sb_fail(error, SB_CODE_USAGE, 0, "'%s' is the beginning of more than one request", shown);
    return sb_hint(error, "write more of it: %.12s or %.12s", found, second);
  }
  sb_fail(error, SB_CODE_NOT_FOUND, 0, "no request '%s' waits in this session", shown);
  return sb_hint(error, "'sandbox watch' lists what waits");
}

/* The whole id of the request that starts with what a person typed. */
static int find_id(const char *folder, const char *prefix, char **ret_id, struct sb_error *error) {
  json_t *reply = NULL, *request;
  const char *found = NULL, *second = NULL;
  size_t index;
  if (client_call(folder, CLIENT_PATIENCE, json_pack("{s:s}", "cmd", "cmd.pending"), &reply,
                  error) < 0)
    return -1;
  json_array_foreach(json_object_get(reply, "requests"), index, request) {
    const char *id = json_string_value(json_object_get(request, "id"));
    if (!id || !*prefix || strncmp(id, prefix, strlen(prefix)) != 0)
      continue;
    second = found ? id : second;
    found = found ? found : id;
  }
  int result = 0;
  if (found && !second)
    *ret_id = strdup(found);
  else
    result = fail_ambiguous(prefix, found, second, error);
  json_decref(reply);
  return result;
}

/* As many letters as 'sandbox watch' lists. With fewer the command could take its question back and
 * ask others until the id of one begins alike, and nobody has seen that one. */
enum { LEAST_LETTERS = 8 };

static int check_length(const struct invocation *invocation, struct sb_error *error) {
  const char *prefix = invocation->operands[1];
  if (strcmp(invocation->verb->name, "approve") != 0 || strlen(prefix) >= LEAST_LETTERS)
    return 0;
  _cleanup_free_ char *shown = escape_string(prefix);
  sb_fail(error, SB_CODE_USAGE, 0, "'%s' could be another request by now", shown);
  return sb_hint(error, "write at least the first %d letters of it, as 'sandbox watch' lists them",
                 LEAST_LETTERS);
}

static json_t *answer_message(const struct invocation *invocation, const char *id,
                              const char *scope, const char *cwd) {
  bool approve = strcmp(invocation->verb->name, "approve") == 0;
  json_t *message = json_pack("{s:s, s:s, s:s}", "cmd", approve ? "cmd.approve" : "cmd.deny", "id",
                              id, "scope", scope);
  const char *tree = invocation_value(invocation, ANSWER_OPTION_TREE);
  _cleanup_free_ char *path = tree ? path_join(cwd, tree) : NULL;
  if (path)
    json_set_path(message, "tree", path);
  if (invocation_has(invocation, ANSWER_OPTION_REST))
    json_object_set_new(message, "rest", json_true());
  return message;
}

static int send_answer(const struct invocation *invocation, json_t **ret_reply,
                       struct sb_error *error) {
  _cleanup_choice_ struct session_choice choice = {0};
  _cleanup_free_ char *id = NULL;
  const char *scope;
  if (invocation->operand_count != 2) {
    sb_fail(error, SB_CODE_USAGE, 0, "%s needs a session and a request", invocation->verb->name);
    return sb_hint(error, "sandbox %s SID ID; 'sandbox watch' lists what waits",
                   invocation->verb->name);
  }
  if (choose_scope(invocation, &scope, error) < 0 || check_length(invocation, error) < 0 ||
      session_choose(&choice, invocation->operands[0], error) < 0 ||
      find_id(choice.entry->folder, invocation->operands[1], &id, error) < 0)
    return -1;
  return client_call(choice.entry->folder, CLIENT_PATIENCE,
                     answer_message(invocation, id, scope, choice.host.cwd), ret_reply, error);
}

static int answer_main(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  json_t *reply = NULL;
  if (send_answer(invocation, &reply, &error) < 0)
    return cli_report_for(invocation, &error);
  const char *hidden = json_string_value(json_object_get(reply, "still_hidden"));
  _cleanup_free_ char *shown = escape_string(hidden ? hidden : "");
  if (hidden)
    cli_warn("secrets in it stay hidden, such as '%s'", shown);
  if (json_is_true(json_object_get(reply, "names")))
    cli_warn("only the names in it are allowed: what is in it is asked about as before");
  const char *path = json_string_value(json_object_get(reply, "still_denied"));
  _cleanup_free_ char *denied = escape_string(path ? path : "");
  if (path)
    cli_warn("'%s' stays denied", denied);
  _cleanup_free_ char *line = json_line(reply);
  json_decref(reply);
  return invocation_has(invocation, ANSWER_OPTION_JSON) ? cli_print(line) : 0;
}

const struct verb approve_verb = {
    .name = "approve",
    .synopsis = "[OPTION]... SID ID",
    .summary = "allow what a session asks for",
    .description =
        "Allows the request ID of the session SID; the call that waits for it goes on. "
        "'sandbox watch' shows what waits. Any unambiguous beginning of SID will do, and "
        "the first eight letters of ID. Secrets can be allowed for one access or for the session, never for "
        "longer.",
    .options = approve_options,
    .operand_completion = COMPLETE_SESSION,
    .run = answer_main,
};

const struct verb deny_verb = {
    .name = "deny",
    .synopsis = "[OPTION]... SID ID",
    .summary = "deny what a session asks for",
    .description = "Denies the request ID of the session SID: the call that waits for it fails "
                   "with \"Permission denied\". Without an option it is denied once, and the next "
                   "attempt asks again.",
    .options = deny_options,
    .operand_completion = COMPLETE_SESSION,
    .run = answer_main,
};
