/* sandbox policy: show, check, explain and trust. Reads policy and prints; only `trust` writes, and
 * only the user's own list. stdout carries the answer, stderr the warnings. */
#include <string.h>
#include <unistd.h>

#include "cli/policy-revoke.h"
#include "cli/policy.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/path.h"
#include "core/text.h"
#include "plan/project.h"
#include "policy/policy.h"

static const struct option_spec policy_options[] = {
    {OPTION_JSON, "json", 0, ARGUMENT_NONE, NULL, "print JSON on standard output", COMPLETE_NONE,
     NULL},
    {OPTION_WRITE, "write", 'w', ARGUMENT_NONE, NULL, "explain: ask about writing, not reading",
     COMPLETE_NONE, NULL},
    {OPTION_LIST, "list", 0, ARGUMENT_NONE, NULL, "trust: list what is trusted", COMPLETE_NONE,
     NULL},
    {OPTION_REVOKE, "revoke", 0, ARGUMENT_NONE, NULL, "trust: forget this project", COMPLETE_NONE,
     NULL},
    {OPTION_SESSION, "session", 0, ARGUMENT_REQUIRED, "SID", "revoke: only in this session",
     COMPLETE_SESSION, NULL},
    {OPTION_DRY_RUN, "dry-run", 'n', ARGUMENT_NONE, NULL, "import: only show what would change",
     COMPLETE_NONE, NULL},
    {OPTION_FROM, "from", 0, ARGUMENT_REQUIRED, "FORMAT",
     "import: whose settings these are (else by their look)", COMPLETE_WORDS,
     "sandbox claude srt dive mycode neuraphage"},
    {OPTION_PROJECT, "project", 0, ARGUMENT_NONE, NULL,
     "import: into this project's policy, not yours", COMPLETE_NONE, NULL},
    {0},
};

int policy_print_json(json_t *value) {
  _cleanup_free_ char *line = json_line(value);
  json_decref(value);
  return cli_print(line);
}

bool policy_wants_json(const struct policy_request *request) {
  return invocation_has(request->invocation, OPTION_JSON);
}

static void warn_ignored(const struct policy *policy) {
  STRV_FOREACH (sentence, &policy->ignored)
    cli_warn("%s", *sentence);
}

/* ---- show ---- */

static int run_show(const struct policy_request *request) {
  _cleanup_policy_ struct policy *policy = NULL;
  if (policy_load(request->context, &policy, request->error) < 0)
    return -1;
  if (policy_wants_json(request))
    return policy_print_json(policy_to_json(policy));
  _cleanup_free_ char *text = policy_to_text(policy);
  return cli_print(text);
}

/* ---- check ---- */

static int run_check(const struct policy_request *request) {
  _cleanup_policy_ struct policy *policy = NULL;
  if (request->operand) {
    policy = policy_new(request->context);
    if (policy_load_file(request->context, request->operand, STORE_USER, policy, request->error) <
        0)
      return -1;
  } else if (policy_load(request->context, &policy, request->error) < 0) {
    return -1;
  }
  if (policy_wants_json(request)) {
    json_t *object = json_object();
    json_object_set_new(object, "valid", json_true());
    json_object_set_new(object, "ignored",
                        json_string_array(policy->ignored.items, policy->ignored.count));
    return policy_print_json(object);
  }
  warn_ignored(policy);
  return cli_print("the policy is valid\n");
}

/* ---- explain ---- */

/* From lenient to strict: of two names for one object the stricter verdict counts. */
static const struct {
  int strictness;
  const char *name, *read, *write;
} verdicts[] = {
    [VERDICT_ALLOW] = {0, "allow", "readable", "writable"},
    [VERDICT_ASK] = {1, "ask", "asked about before it is read", "asked about before it is written"},
    [VERDICT_DENY] = {2, "deny", "not readable", "not writable"},
    [VERDICT_HIDE] = {3, "hide", "hidden", "hidden"},
};

/* What becomes of a secret of the built-in list in dynamic mode. */
enum secret_answer { SECRET_NOT, SECRET_HIDDEN, SECRET_ASKED, SECRET_NAMED };

struct explanation {
  enum access access;
  enum secret_answer secret;
  char *path;     /* as asked, absolute */
  char *resolved; /* the object's own name, or the same */
  struct decision decision;
  const struct rule *overridden; /* the best rule that lost, or NULL */
  const struct rule *listed;     /* why its names may be listed, or NULL */
};

static void explanation_clear(struct explanation *explanation) {
  free(explanation->path);
  free(explanation->resolved);
}

static void decide_both_names(const struct policy *policy, struct explanation *explanation) {
  struct decision named = policy_decide(policy, explanation->path, explanation->access);
  struct decision object = policy_decide(policy, explanation->resolved, explanation->access);
  bool by_name = verdicts[named.verdict].strictness > verdicts[object.verdict].strictness;
  explanation->decision = by_name ? named : object;
  explanation->overridden =
      policy_overridden(policy, by_name ? explanation->path : explanation->resolved,
                        explanation->access, &explanation->decision);
}

static const struct rule *reserving_rule(const struct policy *policy, const char *path) {
  for (size_t i = 0; i < policy->rule_count; i++) {
    const struct rule *rule = &policy->rules[i];
    if (rule->kind == RULE_PROTECT && !rule->is_glob && !rule->if_present_only &&
        path_is_under(rule->pattern, path) &&
        policy_decide(policy, rule->pattern, ACCESS_WRITE).verdict == VERDICT_DENY)
      return rule;
  }
  return NULL;
}

/* A folder of protected names that does not exist is reserved with them: nobody can make it. */
static void mind_reserved(const struct policy *policy, struct explanation *explanation) {
  if (explanation->access != ACCESS_WRITE || explanation->decision.verdict != VERDICT_ALLOW ||
      access(explanation->resolved, F_OK) == 0)
    return;
  const struct rule *rule = reserving_rule(policy, explanation->resolved);
  if (!rule)
    return;
  explanation->overridden = explanation->decision.rule;
  explanation->decision = (struct decision){.verdict = VERDICT_DENY, .rule = rule};
}

static enum secret_answer secret_of(const struct policy *policy,
                                    const struct explanation *explanation) {
  const struct rule *rule = explanation->decision.rule;
  if (explanation->decision.secret)
    return SECRET_NAMED;
  if (explanation->access != ACCESS_READ || explanation->decision.verdict != VERDICT_HIDE ||
      !rule || rule->origin.store != STORE_BUILTIN)
    return SECRET_NOT;
  return policy->ask_secrets ? SECRET_ASKED : SECRET_HIDDEN;
}

static const char *const secret_texts[] = {
    [SECRET_HIDDEN] =
        "  asked:  never; with filesystem: {ask_secrets: true} in dynamic mode, with a "
        "warning and for one session at most\n",
    [SECRET_ASKED] = "  asked:  in dynamic mode, with a warning and for one session at most "
                     "(filesystem.ask_secrets)\n",
    [SECRET_NAMED] = "  asked:  with a warning and for one session at most, because secrets have "
                     "such names\n",
};

static char *describe_rule(const struct rule *rule) {
  _cleanup_free_ char *written = escape_string(rule->written);
  _cleanup_free_ char *origin = origin_describe(&rule->origin);
  if (rule->why)
    return xasprintf("%s %s (%s: %s)", rule_kind_name(rule->kind), written, origin, rule->why);
  return xasprintf("%s %s (%s)", rule_kind_name(rule->kind), written, origin);
}

/* The flag and the policy key that would turn the verdict around. */
struct remedy {
  const char *flag, *key, *effect;
};

static struct remedy remedy_for(const struct explanation *explanation) {
  const struct rule *rule = explanation->decision.rule;
  bool write = explanation->access == ACCESS_WRITE;
  if (explanation->decision.verdict == VERDICT_ALLOW)
    return write ? (struct remedy){"--ro", "read", "make it read-only"}
                 : (struct remedy){"--blacklist", "hide", "hide it"};
  if (rule && rule->kind == RULE_HIDE && rule->origin.store == STORE_ORG)
    return (struct remedy){0};
  if (rule && rule->kind == RULE_PROTECT)
    return (struct remedy){"--unprotect", "unprotect", "allow it"};
  return write ? (struct remedy){"--rw", "write", "allow it"}
               : (struct remedy){"--ro", "read", "allow it"};
}

static int print_explanation(const struct policy_request *request,
                             const struct explanation *explanation) {
  const struct decision *decision = &explanation->decision;
  const struct remedy remedy = remedy_for(explanation);
  _cleanup_free_ char *path = escape_string(explanation->path);
  _cleanup_free_ char *resolved = escape_string(explanation->resolved);
  _cleanup_free_ char *quoted = policy_quote_path(explanation->resolved);
  _cleanup_free_ char *word = escape_shell_word(explanation->resolved);
  _cleanup_free_ char *rule = decision->rule ? describe_rule(decision->rule) : NULL;
  _cleanup_free_ char *lost =
      explanation->overridden ? describe_rule(explanation->overridden) : NULL;
  _cleanup_free_ char *listed = explanation->listed ? describe_rule(explanation->listed) : NULL;
  _cleanup_text_ struct text text = {0};
  text_appendf(&text, "%s is %s\n", path,
               explanation->access == ACCESS_WRITE ? verdicts[decision->verdict].write
                                                   : verdicts[decision->verdict].read);
  if (strcmp(path, resolved) != 0)
    text_appendf(&text, "  it is:  %s\n", resolved);
  text_appendf(&text, "  by:     %s\n", rule ? rule : "no rule covers it");
  if (lost)
    text_appendf(&text, "  over:   %s\n", lost);
  if (listed)
    text_appendf(&text, "  names:  may be listed in dynamic mode, by %s\n", listed);
  if (explanation->secret != SECRET_NOT)
    text_append(&text, secret_texts[explanation->secret]);
  if (!remedy.flag)
    text_append(&text, "  change: only in the organisation's policy; its hide rules are final\n");
  else
    text_appendf(&text,
                 "  change: to %s for one run: sandbox run %s %s ...\n"
                 "          for good, in %s/sandbox/policy.yaml: filesystem: {%s: [%s]}\n",
                 remedy.effect, remedy.flag, word,
                 request->context->config_home ? request->context->config_home : "~/.config",
                 remedy.key, quoted);
  return cli_print(text_string(&text));
}

static json_t *explanation_to_json(const struct explanation *explanation) {
  const struct decision *decision = &explanation->decision;
  const struct remedy remedy = remedy_for(explanation);
  json_t *object = json_object();
  json_set_path(object, "path", explanation->path);
  json_set_path(object, "resolved", explanation->resolved);
  json_set_string(object, "access", explanation->access == ACCESS_WRITE ? "write" : "read");
  json_set_string(object, "verdict", verdicts[decision->verdict].name);
  json_object_set_new(object, "rule", rule_to_json(decision->rule));
  json_object_set_new(object, "overridden", rule_to_json(explanation->overridden));
  json_set_string(object, "flag", remedy.flag);
  json_set_string(object, "key", remedy.key);
  json_object_set_new(object, "listed", rule_to_json(explanation->listed));
  json_object_set_new(object, "asks_secret", json_boolean(explanation->secret >= SECRET_ASKED));
  return object;
}

static int run_explain(const struct policy_request *request) {
  if (!request->operand) {
    sb_fail(request->error, SB_CODE_USAGE, 0, "explain needs a path");
    return sb_hint(request->error, "sandbox policy explain ~/.ssh/id_ed25519");
  }
  _cleanup_policy_ struct policy *policy = NULL;
  if (policy_load(request->context, &policy, request->error) < 0)
    return -1;
  policy_resolve(policy);
  warn_ignored(policy);
  __attribute__((cleanup(explanation_clear))) struct explanation explanation = {
      .access = invocation_has(request->invocation, OPTION_WRITE) ? ACCESS_WRITE : ACCESS_READ,
      .path = path_join(request->cwd, request->operand),
  };
  if (file_resolve(explanation.path, &explanation.resolved) < 0)
    explanation.resolved = xstrdup(explanation.path);
  decide_both_names(policy, &explanation);
  mind_reserved(policy, &explanation);
  explanation.secret = secret_of(policy, &explanation);
  if (explanation.decision.verdict == VERDICT_ASK && explanation.access == ACCESS_READ)
    explanation.listed = policy_find_list(policy, explanation.resolved);
  return policy_wants_json(request) ? policy_print_json(explanation_to_json(&explanation))
                                    : print_explanation(request, &explanation);
}

/* ---- trust ---- */

static int print_trusted(const struct policy_request *request, const struct strv *entries) {
  if (policy_wants_json(request)) {
    json_t *object = json_object();
    json_object_set_new(object, "trusted", json_string_array(entries->items, entries->count));
    return policy_print_json(object);
  }
  _cleanup_text_ struct text text = {0};
  STRV_FOREACH (entry, entries)
    text_appendf(&text, "%s\n", *entry);
  return cli_print(text_string(&text));
}

static int report_trust(const struct policy_request *request, bool trusted, int count) {
  if (policy_wants_json(request)) {
    json_t *object = json_object();
    json_set_path(object, "project", request->context->project);
    json_object_set_new(object, "trusted", json_boolean(trusted));
    json_object_set_new(object, "changed", json_integer(count));
    return policy_print_json(object);
  }
  _cleanup_free_ char *project = escape_string(request->context->project);
  _cleanup_free_ char *line =
      trusted ? xasprintf("the policy of %s is trusted until it changes\n", project)
              : xasprintf("forgot %d trusted polic%s of %s\n", count, count == 1 ? "y" : "ies",
                          project);
  return cli_print(line);
}

static int run_trust(const struct policy_request *request) {
  if (invocation_has(request->invocation, OPTION_LIST)) {
    _cleanup_strv_ struct strv entries = {0};
    if (policy_trust_list(request->context, &entries, request->error) < 0)
      return -1;
    return print_trusted(request, &entries);
  }
  if (invocation_has(request->invocation, OPTION_REVOKE)) {
    int count = policy_trust_revoke(request->context, request->error);
    return count < 0 ? -1 : report_trust(request, false, count);
  }
  if (policy_trust(request->context, NULL, request->error) < 0)
    return -1;
  return report_trust(request, true, 1);
}

/* ---- revoke ---- */

static int run_revoke(const struct policy_request *request) {
  if (!request->operand) {
    sb_fail(request->error, SB_CODE_USAGE, 0, "revoke needs a path or a host");
    return sb_hint(request->error, "sandbox policy revoke /opt/sdk");
  }
  struct revoke_request revoke = {.host = request->host,
                                  .name = request->operand,
                                  .session = invocation_value(request->invocation, OPTION_SESSION)};
  struct revoke_result result;
  if (policy_revoke(&revoke, &result, request->error) < 0)
    return -1;
  if (policy_wants_json(request))
    return policy_print_json(json_pack("{s:i, s:i, s:i}", "stored", (int)result.stored, "sessions",
                                       (int)result.sessions, "held", (int)result.held));
  _cleanup_free_ char *line =
      xasprintf("revoked: %zu stored, in %zu running session%s%s\n", result.stored, result.sessions,
                result.sessions == 1 ? "" : "s",
                result.held ? "; a process that has a folder of it open may still read there" : "");
  return cli_print(line);
}

/* ---- the verb ---- */

static const struct {
  const char *name;
  size_t operands; /* at most, after the name */
  int (*run)(const struct policy_request *request);
} subverbs[] = {
    {"show", 0, run_show},
    {"check", 1, run_check},
    {"explain", 1, run_explain},
    {"trust", 0, run_trust},
    {"revoke", 1, run_revoke},
    {"grants", 0, policy_run_grants},
    {"export", 0, policy_run_export},
    {"import", 1, policy_run_import},
    {"diff", 2, policy_run_diff},
};

static int dispatch(const struct invocation *invocation, struct sb_error *error) {
  const char *name = invocation->operand_count > 0 ? invocation->operands[0] : "show";
  for (size_t i = 0; i < ARRAY_SIZE(subverbs); i++) {
    if (strcmp(subverbs[i].name, name) != 0)
      continue;
    if (invocation->operand_count > 1 + subverbs[i].operands) {
      _cleanup_free_ char *extra = escape_string(invocation->operands[1 + subverbs[i].operands]);
      return sb_fail(error, SB_CODE_USAGE, 0, "policy %s: '%s' is one operand too many", name,
                     extra);
    }
    _cleanup_host_ struct host_context host = {0};
    if (host_context_load(&host, error) < 0)
      return -1;
    const struct policy_request request = {
        .invocation = invocation,
        .context = &host.policy,
        .host = &host,
        .cwd = host.cwd,
        .operand = invocation->operand_count > 1 ? invocation->operands[1] : NULL,
        .second = invocation->operand_count > 2 ? invocation->operands[2] : NULL,
        .error = error};
    return subverbs[i].run(&request);
  }
  _cleanup_free_ char *shown = escape_string(name);
  sb_fail(error, SB_CODE_USAGE, 0, "policy has no '%s'", shown);
  return sb_hint(error, "use show, check, explain, trust, grants, revoke, export, import or diff");
}

static int run_policy(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  int result = dispatch(invocation, &error);
  return result < 0 ? cli_report_for(invocation, &error) : result;
}

const struct verb policy_verb = {
    .name = "policy",
    .synopsis = "[SUBVERB] [OPTION]... [PATH | FILE]...",
    .summary = "show, check and explain the policy",
    .description =
        "The sub-verbs: show (the default) prints the merged policy and where each value comes from. check reads FILE, or every "
        "policy file of this project, and reports the first error. explain says whether PATH is "
        "readable (or, with --write, writable), which rule decides and how to change it. trust "
        "records that you have read this project's .sandbox/policy.yaml; until then it may only "
        "take permissions away, and any change to it asks again. grants lists what was approved or "
        "denied for good, with who, when and why. revoke takes back what was approved or denied "
        "for PATH (or a host) by an answer: in the stores and in every running session, where new "
        "accesses are asked about again. export prints what all stores say together as one file. "
        "import merges FILE into your policy.yaml, or the project's, and shows what changes. diff "
        "compares two of built-in, org, project, user, all, or files.",
    .options = policy_options,
    .operand_completion = COMPLETE_WORDS,
    .operand_words = "show check explain trust grants revoke export import diff",
    .run = run_policy,
};
