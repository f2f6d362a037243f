/* sandbox policy export, import and diff: policies as files. Only `import` writes: one policy.yaml,
 * after printing what changes in it. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/audit.h"
#include "cli/policy.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"
#include "core/sha256.h"
#include "core/text.h"
#include "policy/export.h"
#include "policy/importers/importer.h"
#include "policy/load.h"

/* ---- export ---- */

/* An answer for a folder leaves out what is called like a secret in it; a rule is as written. */
static bool has_answers(const struct policy *policy) {
  for (size_t i = 0; i < policy->rule_count; i++) {
    if (policy->rules[i].granted)
      return true;
  }
  return false;
}

int policy_run_export(const struct policy_request *request) {
  _cleanup_policy_ struct policy *policy = NULL;
  if (policy_load(request->context, &policy, request->error) < 0)
    return -1;
  STRV_FOREACH (sentence, &policy->ignored)
    cli_warn("%s", *sentence);
  if (has_answers(policy))
    cli_warn("answers become rules: a rule for a folder opens files in it that are called like "
             "secrets, too, and is not revoked but changed in its file");
  _cleanup_free_ char *project = escape_string(request->context->project);
  _cleanup_free_ char *comment = xasprintf(
      "# What the stores say together for %s,\n# on top of the built-in tables.\n", project);
  _cleanup_free_ char *text = policy_to_yaml(policy, STORE_COUNT, comment);
  return cli_print(text);
}

/* ---- diff ---- */

static int lines_of_store(const struct policy_request *request, enum policy_store store,
                          struct strv *ret_lines) {
  _cleanup_policy_ struct policy *policy = NULL;
  if (policy_load(request->context, &policy, request->error) < 0)
    return -1;
  policy_to_lines(policy, store, ret_lines);
  return 0;
}

static int lines_of_file(const struct policy_request *request, const char *file,
                         struct strv *ret_lines) {
  _cleanup_policy_ struct policy *policy = policy_new(request->context);
  if (policy_load_file(request->context, file, STORE_USER, policy, request->error) < 0)
    return -1;
  policy_to_lines(policy, STORE_USER, ret_lines);
  return 0;
}

static int lines_of(const struct policy_request *request, const char *name,
                    struct strv *ret_lines) {
  static const struct {
    const char *name;
    enum policy_store store;
  } stores[] = {
      {"org", STORE_ORG}, {"project", STORE_PROJECT}, {"user", STORE_USER}, {"all", STORE_COUNT}};
  if (strcmp(name, "built-in") == 0)
    return 0; /* what everything else is compared with */
  for (size_t i = 0; i < ARRAY_SIZE(stores); i++)
    if (strcmp(stores[i].name, name) == 0)
      return lines_of_store(request, stores[i].store, ret_lines);
  return lines_of_file(request, name, ret_lines);
}

static int print_difference(const struct policy_difference *difference, bool json) {
  if (json) {
    const struct strv *removed = &difference->removed, *added = &difference->added;
    return policy_print_json(json_pack("{s:o, s:o}", "removed",
                                       json_string_array(removed->items, removed->count), "added",
                                       json_string_array(added->items, added->count)));
  }
  _cleanup_free_ char *text = policy_difference_to_text(difference);
  return cli_print(text);
}

int policy_run_diff(const struct policy_request *request) {
  const char *before = request->operand ? request->operand : "built-in";
  const char *after = request->second ? request->second : "all";
  _cleanup_strv_ struct strv old = {0}, new = {0};
  _cleanup_difference_ struct policy_difference difference = {0};
  if (lines_of(request, before, &old) < 0 || lines_of(request, after, &new) < 0)
    return -1;
  policy_differ(&old, &new, &difference);
  return print_difference(&difference, policy_wants_json(request));
}

/* ---- import ---- */

struct target {
  enum policy_store store;
  char *folder, *file;
  char *old; /* its text, NULL if there is none */
  size_t old_length;
};

static void target_clear(struct target *target) {
  free(target->folder);
  free(target->file);
  free(target->old);
}
#define _cleanup_target_ __attribute__((cleanup(target_clear)))

static int find_target(const struct policy_context *context, bool project, struct target *target,
                       struct sb_error *error) {
  target->store = project ? STORE_PROJECT : STORE_USER;
  if (!project && !context->config_home) {
    sb_fail(error, SB_CODE_NOT_FOUND, 0, "there is no place for your policy: no home folder");
    return sb_hint(error, "set HOME or XDG_CONFIG_HOME, or write --project");
  }
  target->folder = project ? path_join(context->project, ".sandbox")
                           : path_join(context->config_home, "sandbox");
  target->file = path_join(target->folder, "policy.yaml");
  struct stat status;
  if (project && lstat(target->file, &status) == 0 && !S_ISREG(status.st_mode)) {
    _cleanup_free_ char *shown = escape_string(target->file);
    sb_fail(error, SB_CODE_POLICY, 0, "%s is not a regular file", shown);
    return sb_hint(error, "look at it, then remove it");
  }
  int result =
      file_read_at(AT_FDCWD, target->file, POLICY_FILE_MAX, &target->old, &target->old_length);
  if (result == 0 || result == -ENOENT)
    return 0;
  _cleanup_free_ char *shown = escape_string(target->file);
  return sb_fail(error, SB_CODE_POLICY, -result, "reading %s", shown);
}

static int apply_text(struct policy *policy, const struct policy_context *context,
                      const struct target *target, const char *source, const char *text,
                      size_t length, struct sb_error *error) {
  return policy_apply(policy, context,
                      &(struct policy_source){
                          .file = source, .store = target->store, .data = text, .length = length},
                      error);
}

/* The comment at the top of the old file stays; those in between cannot be kept in a merged one. */
static char *comment_of(const struct target *target, const char *fallback) {
  struct text text = {0};
  text_append(&text, "");
  for (const char *at = target->old; at && *at == '#';) {
    const char *end = strchr(at, '\n');
    size_t length = end ? (size_t)(end - at) + 1 : strlen(at);
    text_append_bytes(&text, at, length);
    at += length;
  }
  if (text.length == 0 && fallback)
    text_appendf(&text, "# %s\n", fallback);
  return text_steal(&text);
}

static int note_write(const struct policy_context *context, const char *file, const char *text,
                      struct sb_error *error) {
  char hash[SHA256_HEX_SIZE];
  sha256_hex(text, strlen(text), hash);
  if (!context->state_home)
    return 0;
  json_t *fields = json_pack("{s:s}", "sha256", hash);
  json_set_path(fields, "file", file);
  return audit_note(context->state_home, "policy.write", fields, error);
}

/* A repository may have put a link where the folder or the file should be. */
static int open_target(const struct target *target, struct sb_error *error) {
  int made = file_make_folders(target->folder, target->store == STORE_PROJECT ? 0755 : 0700);
  int flags =
      O_RDONLY | O_DIRECTORY | O_CLOEXEC | (target->store == STORE_PROJECT ? O_NOFOLLOW : 0);
  int folder = made < 0 ? -1 : open(target->folder, flags);
  if (folder >= 0)
    return folder;
  int errnum = made < 0 ? -made : errno;
  _cleanup_free_ char *shown = escape_string(target->folder);
  return sb_fail(error, SB_CODE_SYSTEM, errnum, "opening the folder %s", shown);
}

/* Somebody may have saved it in an editor since it was read. */
static int check_unchanged(int folder, const struct target *target, struct sb_error *error) {
  _cleanup_free_ char *now = NULL;
  size_t length = 0;
  int result = file_read_at(folder, "policy.yaml", POLICY_FILE_MAX, &now, &length);
  bool same = result == 0 ? target->old && length == target->old_length &&
                                memcmp(now, target->old, length) == 0
                          : result == -ENOENT && !target->old;
  if (same)
    return 0;
  _cleanup_free_ char *shown = escape_string(target->file);
  sb_fail(error, SB_CODE_CONFLICT, 0, "%s has changed in this moment", shown);
  return sb_hint(error, "try again");
}

static int write_target(const struct policy_context *context, const struct target *target,
                        const char *text, struct sb_error *error) {
  _cleanup_close_ int folder = open_target(target, error);
  if (folder < 0)
    return -1;
  mode_t mode = target->store == STORE_PROJECT ? 0644 : 0600;
  int result = 0;
  if (check_unchanged(folder, target, error) < 0 ||
      note_write(context, target->file, text, error) < 0)
    return -1;
  /* What is merged loses its comments: the old file stays beside it. */
  if (result == 0 && target->old)
    result = file_replace_at(folder, "policy.yaml.old", target->old, target->old_length, mode);
  if (result == 0)
    result = file_replace_at(folder, "policy.yaml", text, strlen(text), mode);
  if (result == 0)
    return 0;
  _cleanup_free_ char *shown = escape_string(target->file);
  return sb_fail(error, SB_CODE_SYSTEM, -result, "writing %s", shown);
}

static void tell_written(const struct target *target) {
  _cleanup_free_ char *shown = escape_string(target->file);
  _cleanup_text_ struct text text = {0};
  text_appendf(&text, "written: %s%s\n", shown,
               target->old ? " (the old one is policy.yaml.old)" : "");
  if (target->store == STORE_PROJECT)
    text_append(&text, "it may only narrow until you run: sandbox policy trust\n");
  (void)file_write_all(STDERR_FILENO, text_string(&text), text.length);
}

int policy_merge_text(const struct policy_context *context, const struct policy_merge *merge,
                      struct sb_error *error) {
  _cleanup_target_ struct target target = {0};
  _cleanup_policy_ struct policy *policy = policy_new(context);
  _cleanup_strv_ struct strv before = {0}, after = {0};
  _cleanup_difference_ struct policy_difference difference = {0};
  if (find_target(context, merge->project, &target, error) < 0 ||
      (target.old &&
       apply_text(policy, context, &target, target.file, target.old, target.old_length, error) < 0))
    return -1;
  policy_to_lines(policy, target.store, &before);
  if (apply_text(policy, context, &target, merge->source, merge->text, merge->length, error) < 0)
    return -1;
  policy_to_lines(policy, target.store, &after);
  policy_differ(&before, &after, &difference);
  int result = merge->quiet ? 0 : print_difference(&difference, merge->json);
  if (result != 0 || merge->dry_run || difference.added.count + difference.removed.count == 0)
    return result;
  _cleanup_free_ char *comment = comment_of(&target, merge->comment);
  _cleanup_free_ char *text = policy_to_yaml(policy, target.store, comment);
  if (write_target(context, &target, text, error) < 0)
    return -1;
  tell_written(&target);
  return 0;
}

/* Ours has a version at its top; other programs' settings have not. */
static bool is_ours(const char *text, size_t length) {
  _cleanup_arena_ struct arena arena = {0};
  _cleanup_error_ struct sb_error ignored = {0};
  struct node *root = NULL;
  if (length == 0 || tree_parse("", text, length, &arena, &root, &ignored) < 0 ||
      root->type != NODE_MAPPING)
    return false;
  for (const struct node *entry = root->first; entry; entry = entry->next)
    if (entry->key->type == NODE_SCALAR && strcmp(entry->key->text, "version") == 0)
      return true;
  return false;
}

/* Another program's settings become our text, in place; what is lost is said. */
static int translate(const struct policy_request *request, char **text, size_t *length) {
  const char *format = invocation_value(request->invocation, OPTION_FROM);
  bool ours = format ? strcmp(format, "sandbox") == 0 : is_ours(*text, *length);
  if (ours)
    return 0;
  _cleanup_import_ struct import_result result = {0};
  if (policy_import_foreign(format, request->operand, *text, *length, &result, request->error) < 0)
    return -1;
  STRV_FOREACH (sentence, &result.lost)
    cli_warn("not imported: %s", *sentence);
  STRV_FOREACH (sentence, &result.notes)
    cli_warn("%s", *sentence);
  free(*text);
  *text = steal_pointer(result.policy);
  *length = strlen(*text);
  return 0;
}

int policy_run_import(const struct policy_request *request) {
  if (!request->operand) {
    sb_fail(request->error, SB_CODE_USAGE, 0, "import needs a file");
    return sb_hint(request->error, "sandbox policy import --dry-run FILE");
  }
  _cleanup_free_ char *text = NULL;
  size_t length = 0;
  int result = file_read_at(AT_FDCWD, request->operand, POLICY_FILE_MAX, &text, &length);
  _cleanup_free_ char *shown = escape_string(request->operand);
  if (result < 0) {
    sb_fail(request->error, result == -ENOENT ? SB_CODE_NOT_FOUND : SB_CODE_SYSTEM, -result,
            "reading %s", shown);
    return sb_hint(request->error, "name a policy file of at most 1 MiB");
  }
  if (translate(request, &text, &length) < 0)
    return -1;
  _cleanup_free_ char *comment = xasprintf("imported from %s", shown);
  return policy_merge_text(
      request->context,
      &(struct policy_merge){.source = request->operand,
                             .text = text,
                             .length = length,
                             .project = invocation_has(request->invocation, OPTION_PROJECT),
                             .dry_run = invocation_has(request->invocation, OPTION_DRY_RUN),
                             .json = policy_wants_json(request),
                             .comment = comment},
      request->error);
}
