/* Policy to profile; see sbpl.h. What cannot be said exactly is said more strictly, never less. */
#include "backend/sbpl.h"

#include <stdlib.h>
#include <string.h>

#include "backend/sbpl-base.h"
#include "backend/sbpl-regex.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"
#include "policy/glob.h"

struct generator {
  const struct sbpl_request *request;
  struct text *out;
  struct strv *parameters;
  struct rule *places; /* read, write, hide: literals by depth, then globs by strictness */
  size_t place_count, literal_count;
  struct rule *guards; /* protect */
  size_t guard_count;
  struct strv pinned;
  struct strv extra_folders; /* WRITE_DIR_0, WRITE_DIR_1, ... */
  struct arena strings;
};

void sbpl_clear(struct sbpl *sbpl) {
  text_clear(&sbpl->profile);
  strv_clear(&sbpl->parameters);
}

/* ---- words of the language ---- */

/* A string of the profile language, quoted. */
static void append_string(struct text *text, const char *string) {
  text_append_char(text, '"');
  for (; *string; string++) {
    if (*string == '"' || *string == '\\')
      text_append_char(text, '\\');
    text_append_char(text, *string);
  }
  text_append_char(text, '"');
}

static void append_comment(struct generator *generator, const struct rule *rule) {
  const char *said = rule->written ? rule->written : rule->pattern;
  _cleanup_free_ char *written = escape_string(said);
  _cleanup_free_ char *why = rule->why ? escape_string(rule->why) : NULL;
  text_appendf(generator->out, "; %s %s%s%s\n", rule_kind_name(rule->kind), written,
               why ? ": " : "", why ? why : "");
}

/* The path as a parameter and what comes after it; false if it is not below that folder. */
static bool append_below_parameter(struct generator *generator, const char *path, const char *name,
                                   const char *folder) {
  const char *below = folder && strcmp(folder, "/") != 0 ? path_below(path, folder) : NULL;
  if (below && *below == '\0') {
    text_appendf(generator->out, "(param \"%s\")", name);
  } else if (below) {
    text_appendf(generator->out, "(string-append (param \"%s\") ", name);
    append_string(generator->out, path + strlen(folder));
    text_append_char(generator->out, ')');
  }
  return below != NULL;
}

static void append_path(struct generator *generator, const char *path) {
  const struct sbpl_request *request = generator->request;
  for (size_t i = 0; i < generator->extra_folders.count; i++) {
    _cleanup_free_ char *name = xasprintf("WRITE_DIR_%zu", i);
    if (append_below_parameter(generator, path, name, generator->extra_folders.items[i]))
      return;
  }
  if (!append_below_parameter(generator, path, "TARGET_DIR", request->project) &&
      !append_below_parameter(generator, path, "TMP_DIR", request->temporary) &&
      !append_below_parameter(generator, path, "HOME_DIR", request->home))
    append_string(generator->out, path);
}

/* Folders of macOS that are links; the kernel shows a profile what they lead to. */
static char *real_name(const char *path) {
  static const char *const links[] = {"/etc", "/tmp", "/var"};
  for (size_t i = 0; i < ARRAY_SIZE(links); i++)
    if (path_is_under(path, links[i]))
      return xasprintf("/private%s", path);
  return NULL;
}

static void append_regex(struct generator *generator, const char *expression) {
  text_append(generator->out, "(regex ");
  append_string(generator->out, expression);
  text_append_char(generator->out, ')');
}

static bool takes_away(enum rule_kind kind) {
  return kind == RULE_HIDE || kind == RULE_PROTECT;
}

/* Folders that exist have the name that the disk gives them; what is below may be yet to come. */
static struct regex_bias bias_of(const struct generator *generator, enum rule_kind kind,
                                 const char *pattern) {
  const struct sbpl_request *request = generator->request;
  struct regex_bias bias = {.wide = takes_away(kind)};
  const char *const folders[] = {request->home, request->temporary, request->project};
  for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
    if (folders[i] && !strpbrk(folders[i], "*?[\\") && path_is_under(pattern, folders[i]))
      bias.from = strlen(folders[i]);
  STRV_FOREACH (folder, &generator->extra_folders)
    if (!strpbrk(*folder, "*?[\\") && path_is_under(pattern, *folder))
      bias.from = strlen(*folder);
  return bias;
}

/* Templates such as .env.example are no secrets. */
static void define_exceptions(struct generator *generator) {
  text_append(generator->out, "(define no-template (require-not (require-any");
  for (const char *const *name = secret_exceptions; *name; name++) {
    _cleanup_text_ struct text text = {0};
    regex_append_name(&text, *name);
    text_append(generator->out, "\n  ");
    append_regex(generator, text_string(&text));
  }
  text_append(generator->out, ")))\n");
}

static void append_glob_filter(struct generator *generator, const struct rule *rule,
                               const char *expression) {
  if (rule->has_exceptions)
    text_append(generator->out, "(require-all ");
  append_regex(generator, expression);
  if (rule->has_exceptions)
    text_append(generator->out, " no-template)");
}

static void append_literal_filter(struct generator *generator, const struct rule *rule,
                                  const char *path) {
  /* A name that is not to come into being must not do so in capitals, either. */
  if (rule->kind == RULE_PROTECT) {
    _cleanup_text_ struct text text = {0};
    regex_append_path(&text, path, bias_of(generator, rule->kind, path));
    append_regex(generator, text_string(&text));
    return;
  }
  text_append(generator->out, "(subpath ");
  append_path(generator, path);
  text_append_char(generator->out, ')');
}

/* What a rule covers, under both of its names. */
static void append_filter(struct generator *generator, const struct rule *rule) {
  _cleanup_free_ char *real = real_name(rule->pattern);
  const char *names[] = {rule->pattern, real};
  for (size_t i = 0; i < ARRAY_SIZE(names) && names[i]; i++) {
    _cleanup_text_ struct text text = {0};
    if (i > 0)
      text_append_char(generator->out, ' ');
    if (rule->is_glob) {
      regex_append_glob(&text, names[i], bias_of(generator, rule->kind, names[i]));
      append_glob_filter(generator, rule, text_string(&text));
    } else {
      append_literal_filter(generator, rule, names[i]);
    }
  }
}

/* ---- places: read, write, hide ---- */

static const struct {
  const char *allow, *deny;
} effects[RULE_KIND_COUNT] = {
    [RULE_READ] = {"file-read*", "file-write*"},
    [RULE_WRITE] = {"file-read* file-write*", NULL},
    [RULE_HIDE] = {NULL, "file*"},
    [RULE_PROTECT] = {NULL, "file-write*"},
};

/* One statement for what is allowed and one for what is not, each with the filter that the callback
 * writes. */
typedef void write_filter(struct generator *generator, const struct rule *rule, const void *more);

static void append_effect(struct generator *generator, const struct rule *rule,
                          write_filter *filter, const void *more) {
  const struct {
    const char *action, *operations;
  } statements[] = {{"allow", effects[rule->kind].allow}, {"deny", effects[rule->kind].deny}};
  for (size_t i = 0; i < ARRAY_SIZE(statements); i++) {
    if (!statements[i].operations)
      continue;
    text_appendf(generator->out, "(%s %s ", statements[i].action, statements[i].operations);
    filter(generator, rule, more);
    text_append(generator->out, ")\n");
  }
}

static void filter_whole(struct generator *generator, const struct rule *rule, const void *more) {
  (void)more;
  append_filter(generator, rule);
}

static void filter_expression(struct generator *generator, const struct rule *rule,
                              const void *more) {
  append_glob_filter(generator, rule, more);
}

struct below {
  struct generator *generator;
  const struct rule *rule;
};

static void append_below(void *context, const char *expression) {
  const struct below *below = context;
  append_effect(below->generator, below->rule, filter_expression, expression);
}

/* A glob that matches deeper than a literal decides over it, so it is said again after it. */
static void repeat_globs_below(struct generator *generator, const struct rule *literal) {
  for (size_t i = generator->literal_count; i < generator->place_count; i++) {
    struct below below = {generator, &generator->places[i]};
    if (below.rule->kind != literal->kind)
      regex_below(below.rule->pattern, literal->pattern, takes_away(below.rule->kind), append_below,
                  &below);
  }
}

static void append_places(struct generator *generator) {
  for (size_t i = generator->literal_count; i < generator->place_count; i++) {
    append_comment(generator, &generator->places[i]);
    append_effect(generator, &generator->places[i], filter_whole, NULL);
  }
  for (size_t i = 0; i < generator->literal_count; i++) {
    const struct rule *rule = &generator->places[i];
    append_comment(generator, rule);
    append_effect(generator, rule, filter_whole, NULL);
    repeat_globs_below(generator, rule);
  }
  /* Nothing of what is below decides over the organisation. */
  for (size_t i = 0; i < generator->place_count; i++) {
    const struct rule *rule = &generator->places[i];
    if (rule->kind == RULE_HIDE && rule->origin.store == STORE_ORG)
      append_effect(generator, rule, filter_whole, NULL);
  }
}

/* ---- protected names ---- */

static bool takes_back(const struct rule *unprotect, const struct rule *guard) {
  if (unprotect->kind != RULE_UNPROTECT)
    return false;
  if (strcmp(unprotect->pattern, guard->pattern) == 0)
    return unprotect->origin.store > guard->origin.store || guard->is_glob > unprotect->is_glob;
  if (guard->origin.store == STORE_BUILTIN && !guard->is_glob &&
      rule_matches(unprotect, guard->pattern))
    return true;
  return !unprotect->is_glob && rule_matches(guard, unprotect->pattern);
}

static bool policy_unprotects(const struct policy *policy) {
  for (size_t i = 0; i < policy->rule_count; i++)
    if (policy->rules[i].kind == RULE_UNPROTECT)
      return true;
  return false;
}

static void append_guard(struct generator *generator, const struct rule *guard) {
  const struct policy *policy = generator->request->policy;
  struct text *out = generator->out;
  append_comment(generator, guard);
  if (!policy_unprotects(policy)) {
    append_effect(generator, guard, filter_whole, NULL);
    return;
  }
  text_append(out, "(deny file-write* (require-all (require-any ");
  append_filter(generator, guard);
  text_append_char(out, ')');
  for (size_t i = 0; i < policy->rule_count; i++) {
    if (!takes_back(&policy->rules[i], guard))
      continue;
    text_append(out, " (require-not ");
    append_filter(generator, &policy->rules[i]);
    text_append_char(out, ')');
  }
  text_append(out, "))\n");
  struct below below = {generator, guard};
  for (size_t i = 0; guard->is_glob && i < policy->rule_count; i++)
    if (takes_back(&policy->rules[i], guard) && !policy->rules[i].is_glob)
      regex_below(guard->pattern, policy->rules[i].pattern, true, append_below, &below);
}

/* ---- folders that must stay where they are ---- */

static bool is_writable_below(const struct generator *generator, const char *path) {
  for (size_t i = 0; i < generator->literal_count; i++) {
    const struct rule *rule = &generator->places[i];
    if (rule->kind == RULE_WRITE && path_is_under(path, rule->pattern))
      return true;
  }
  return false;
}

static void pin(struct generator *generator, const char *path, bool is_glob) {
  if (strv_contains(&generator->pinned, path))
    return;
  strv_add(&generator->pinned, path);
  _cleanup_text_ struct text text = {0};
  text_append(generator->out, "(deny file-write-unlink ");
  if (is_glob) {
    regex_append_glob_itself(&text, path, bias_of(generator, RULE_HIDE, path));
    append_regex(generator, text_string(&text));
  } else {
    text_append(generator->out, "(literal ");
    append_path(generator, path);
    text_append_char(generator->out, ')');
  }
  text_append(generator->out, ")\n");
}

/* Profiles know names, not objects: a folder that is moved takes what is below it out of the rules
 * about it. */
static void pin_parents(struct generator *generator, const struct rule *rule) {
  _cleanup_free_ char *path = xstrdup(rule->pattern);
  for (char *slash = strrchr(path, '/'); slash && slash > path; slash = strrchr(path, '/')) {
    *slash = '\0';
    bool is_glob = rule->is_glob && glob_has_wildcards(path);
    _cleanup_free_ char *literal = xstrdup(path);
    if (rule->is_glob)
      glob_unescape(literal);
    /* A ** stands for folders of any name: wherever they are moved, it matches there, too. */
    if (is_glob ? strcmp(path_base(path), "**") != 0 : is_writable_below(generator, literal))
      pin(generator, is_glob ? path : literal, is_glob);
  }
}

static void append_pins(struct generator *generator) {
  text_append(generator->out, "\n; a folder that is moved away would take its contents out of the "
                              "rules above\n");
  for (size_t i = 0; i < generator->literal_count; i++)
    if (generator->places[i].kind == RULE_WRITE)
      pin(generator, generator->places[i].pattern, false);
  for (size_t i = 0; i < generator->place_count; i++)
    if (generator->places[i].kind != RULE_WRITE)
      pin_parents(generator, &generator->places[i]);
  for (size_t i = 0; i < generator->guard_count; i++)
    pin_parents(generator, &generator->guards[i]);
}

/* ---- network ---- */

unsigned sbpl_proxy_port(const char *proxy) {
  const char *scheme = strstr(proxy, "://");
  const char *host = scheme ? scheme + strlen("://") : proxy;
  static const char *const local[] = {"localhost:", "127.0.0.1:", "[::1]:"};
  for (size_t i = 0; i < ARRAY_SIZE(local); i++) {
    size_t length = strlen(local[i]);
    char *end;
    if (strncmp(host, local[i], length) != 0)
      continue;
    unsigned long port = strtoul(host + length, &end, 10);
    return (*end == '\0' || strcmp(end, "/") == 0) && port <= 65535 ? (unsigned)port : 0;
  }
  return 0;
}

static int append_proxies(struct generator *generator, struct sb_error *error) {
  const struct policy *policy = generator->request->policy;
  const char *const proxies[] = {policy->network.http_proxy, policy->network.socks_proxy};
  bool any = false;
  for (size_t i = 0; i < ARRAY_SIZE(proxies); i++) {
    if (!proxies[i])
      continue;
    unsigned port = sbpl_proxy_port(proxies[i]);
    if (port == 0) {
      _cleanup_free_ char *shown = escape_string(proxies[i]);
      sb_fail(error, SB_CODE_UNSUPPORTED, 0,
              "seatbelt: the proxy '%s' is not a port of this machine", shown);
      return sb_hint(error, "a profile can only allow such: http_proxy: http://127.0.0.1:8080");
    }
    text_appendf(generator->out, "(allow network-outbound (remote ip \"localhost:%u\"))\n", port);
    any = true;
  }
  if (any)
    return 0;
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "seatbelt: a filtered network needs a proxy that filters");
  return sb_hint(error, "start one on this machine and set network.http_proxy or socks_proxy");
}

static void append_sockets(struct generator *generator) {
  STRV_FOREACH (path, &generator->request->policy->network.unix_sockets) {
    text_append(generator->out, "(allow network-outbound (remote unix-socket (path-literal ");
    append_path(generator, *path);
    text_append(generator->out, ")))\n");
  }
}

static int append_network(struct generator *generator, struct sb_error *error) {
  const struct policy *policy = generator->request->policy;
  const struct origin *binding = policy_key_origin(policy, "network.allow_local_binding");
  text_append(generator->out, "\n; network\n");
  if (policy->network.mode == NETWORK_FULL)
    text_append(generator->out, sbpl_open);
  if (policy->network.mode == NETWORK_FILTERED && append_proxies(generator, error) < 0)
    return -1;
  /* There is no loopback of its own here: only where it was asked for. */
  if (policy->network.allow_local_binding && binding && binding->store != STORE_BUILTIN)
    text_append(generator->out, sbpl_local_binding);
  append_sockets(generator);
  return 0;
}

/* ---- collecting ---- */

static void add_rule(struct rule **list, size_t *count, const struct rule *rule) {
  ARRAY_GROW(*list, *count);
  (*list)[(*count)++] = *rule;
}

static int strictness(enum rule_kind kind) {
  return kind == RULE_HIDE ? 2 : kind == RULE_READ ? 1 : 0;
}

/* Literals before globs; literals from shallow to deep, then as a policy settles a tie. Of two
 * globs that both match the stricter counts: which one is deeper depends on the path. */
static int compare_places(const void *first, const void *second) {
  const struct rule *a = first, *b = second;
  if (a->is_glob != b->is_glob)
    return a->is_glob - b->is_glob;
  int depth = a->is_glob ? 0 : (int)path_depth(a->pattern) - (int)path_depth(b->pattern);
  int store = a->is_glob ? 0 : (int)a->origin.store - (int)b->origin.store;
  int strict = strictness(a->kind) - strictness(b->kind);
  return depth ? depth : store ? store : strict ? strict : strcmp(a->pattern, b->pattern);
}

static void add_guards_of_plan(struct generator *generator) {
  const struct plan *plan = generator->request->plan;
  for (size_t i = 0; plan && i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    if (operation->kind != OPERATION_PROTECT)
      continue;
    const struct rule rule = {
        .kind = RULE_PROTECT, .pattern = operation->path, .why = "found on the disk"};
    bool known = false;
    for (size_t j = 0; j < generator->guard_count && !known; j++)
      known = strcmp(generator->guards[j].pattern, operation->path) == 0;
    if (!known)
      add_rule(&generator->guards, &generator->guard_count, &rule);
  }
}

static void add_mac_rules(struct generator *generator) {
  if (!generator->request->home)
    return;
  const char *home = arena_concat(&generator->strings, generator->request->home, "/");
  for (const struct sbpl_mac_rule *at = sbpl_mac_rules; at->path; at++) {
    const struct rule rule = {.kind = at->kind,
                              .pattern = arena_concat(&generator->strings, home, at->path),
                              .why = at->why};
    if (at->kind == RULE_PROTECT)
      add_rule(&generator->guards, &generator->guard_count, &rule);
    else
      add_rule(&generator->places, &generator->place_count, &rule);
  }
}

/* As parameters, as many as there are. */
static void name_extra_folders(struct generator *generator) {
  for (size_t i = 0; i < generator->literal_count; i++) {
    const struct rule *rule = &generator->places[i];
    if (rule->kind != RULE_WRITE || rule->origin.store == STORE_BUILTIN ||
        strv_contains(&generator->extra_folders, rule->pattern))
      continue;
    strv_addf(generator->parameters, "WRITE_DIR_%zu=%s", generator->extra_folders.count,
              rule->pattern);
    strv_add(&generator->extra_folders, rule->pattern);
  }
}

static int collect_rules(struct generator *generator, struct sb_error *error) {
  const struct sbpl_request *request = generator->request;
  const struct rule temporary = {
      .kind = RULE_WRITE, .pattern = request->temporary, .why = "temporary files"};
  add_rule(&generator->places, &generator->place_count, &temporary);
  for (size_t i = 0; i < request->policy->rule_count; i++) {
    const struct rule *rule = &request->policy->rules[i];
    if (rule->kind == RULE_OVERLAY) {
      _cleanup_free_ char *path = escape_string(rule->pattern);
      sb_fail(error, SB_CODE_UNSUPPORTED, 0, "seatbelt: no overlay for '%s'", path);
      return sb_hint(error, "remove filesystem.overlay, or choose another back end");
    }
    if (rule->kind == RULE_PROTECT)
      add_rule(&generator->guards, &generator->guard_count, rule);
    else if (rule->kind <= RULE_HIDE)
      add_rule(&generator->places, &generator->place_count, rule);
  }
  return 0;
}

static int collect(struct generator *generator, struct sb_error *error) {
  if (collect_rules(generator, error) < 0)
    return -1;
  add_guards_of_plan(generator);
  add_mac_rules(generator);
  qsort(generator->places, generator->place_count, sizeof *generator->places, compare_places);
  while (generator->literal_count < generator->place_count &&
         !generator->places[generator->literal_count].is_glob)
    generator->literal_count++;
  sbpl_add_parameters(generator->request, generator->parameters);
  name_extra_folders(generator);
  return 0;
}

void sbpl_add_parameters(const struct sbpl_request *request, struct strv *parameters) {
  strv_addf(parameters, "TARGET_DIR=%s", request->project);
  strv_addf(parameters, "TMP_DIR=%s", request->temporary);
  strv_addf(parameters, "HOME_DIR=%s", request->home ? request->home : "/var/empty");
  strv_addf(parameters, "CACHE_DIR=%s/Library/Caches",
            request->home ? request->home : "/var/empty");
}

static void append_own_folder(struct generator *generator) {
  if (!generator->request->own_folder)
    return;
  text_append(generator->out, "(deny file* (subpath ");
  append_path(generator, generator->request->own_folder);
  text_append(generator->out, "))\n");
}

static int generate(struct generator *generator, struct sb_error *error) {
  if (collect(generator, error) < 0)
    return -1;
  text_append(generator->out, sbpl_base[generator->request->policy->seatbelt.profile]);
  text_append(generator->out, sbpl_common);
  if (append_network(generator, error) < 0)
    return -1;
  text_append(generator->out, "\n; places: patterns first, then paths from shallow to deep\n");
  define_exceptions(generator);
  append_places(generator);
  text_append(generator->out, "\n; names that tools outside run or trust later\n");
  for (size_t i = 0; i < generator->guard_count; i++)
    append_guard(generator, &generator->guards[i]);
  append_pins(generator);
  append_own_folder(generator);
  return 0;
}

int sbpl_generate(const struct sbpl_request *request, struct sbpl *ret, struct sb_error *error) {
  _cleanup_sbpl_ struct sbpl made = {0};
  struct generator generator = {
      .request = request, .out = &made.profile, .parameters = &made.parameters};
  int result = generate(&generator, error);
  free(generator.places);
  free(generator.guards);
  strv_clear(&generator.pinned);
  strv_clear(&generator.extra_folders);
  arena_clear(&generator.strings);
  if (result < 0)
    return -1;
  *ret = made;
  made = (struct sbpl){0};
  return 0;
}
