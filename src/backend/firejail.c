/* firejail: the plan as a profile. It is a setuid program with rules of its own, so everything here
 * is said in its words: read-only, read-write, blacklist, in this order, since a later line is done
 * on top of an earlier one. Names that its parser would read as something else are refused. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/registry.h"
#include "backend/view.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/folder.h"
#include "core/path.h"
#include "core/text.h"

/* Its own limits: words on the command line, and bytes of each. */
enum { WORDS_MAX = 100, WORD_SIZE_MAX = 4000 };

struct builder {
  const struct backend_request *request;
  struct text profile;
  struct tool_version version;
  struct sb_error *error;
};

/* Wildcards, macros, comments, lists and the characters that it takes for an attack. */
static bool is_usable_name(const char *path) {
  size_t length = strlen(path);
  for (const char *at = path; *at; at++) {
    if ((unsigned char)*at < ' ' || strchr("\\&!?\"'<>%^{};,*[]#$`~|", *at))
      return false;
  }
  return length < WORD_SIZE_MAX && !strstr(path, "  ") && path[length - 1] != ' ';
}

static int add_path(struct builder *builder, const char *keyword, const char *path) {
  if (is_usable_name(path)) {
    text_appendf(&builder->profile, "%s %s\n", keyword, path);
    return 0;
  }
  _cleanup_free_ char *shown = escape_string(path);
  sb_fail(builder->error, SB_CODE_UNSUPPORTED, 0, "firejail cannot take the name '%s'", shown);
  return sb_hint(builder->error, "rename it, or use another back end: see 'sandbox backends'");
}

/* ---- the base ---- */

/* Everything but what firejail makes itself, and /var, which it makes read-only around its own
 * temporary folder. */
static bool is_own_place(const char *name) {
  static const char *const own[] = {"proc", "sys", "dev", "tmp", "run", "var"};
  for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
    if (strcmp(name, own[i]) == 0)
      return true;
  }
  return false;
}

struct listing {
  struct builder *builder;
  const char *folder, *keyword;
  int result;
};

static bool add_entry(void *context, const struct folder_entry *entry) {
  struct listing *listing = context;
  bool root = strcmp(listing->folder, "/") == 0;
  if (entry->type == DT_LNK || (root && is_own_place(entry->name)) ||
      (!root && strcmp(entry->name, "firejail") == 0))
    return true;
  _cleanup_free_ char *path = path_join(listing->folder, entry->name);
  listing->result = add_path(listing->builder, listing->keyword, path);
  return listing->result == 0;
}

static int add_entries(struct builder *builder, const char *folder, const char *keyword) {
  struct listing listing = {builder, folder, keyword, 0};
  _cleanup_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0)
    (void)folder_read(fd, add_entry, &listing);
  return listing.result;
}

/* Without UNIX sockets, what appears in /run later is no way out either. */
static void add_settings(struct builder *builder) {
  struct text *profile = &builder->profile;
  const struct policy *policy = builder->request->policy;
  text_append(profile, "quiet\nallusers\nprivate-dev\nprivate-tmp\nipc-namespace\n"
                       "caps.drop all\nnonewprivs\nnogroups\nseccomp\n"
                       "protocol inet,inet6,netlink\ndbus-user none\ndbus-system none\n"
                       "deterministic-exit-code\ndeterministic-shutdown\n");
  if (policy->network.mode != NETWORK_FULL)
    text_append(profile, "net none\n");
  if (builder->request->plan->seccomp.debug)
    text_append(profile, "allow-debuggers\n");
  if (tool_at_least(builder->version, 0, 9, 72))
    text_append(profile, "restrict-namespaces\nkeep-fd 3\n");
  else
    text_append(profile, "shell none\n");
  text_appendf(profile, "hostname %s\n", builder->request->plan->hostname);
  /* The dynamic loader takes this one away from setuid programs. */
  text_append(profile, "env TMPDIR=/tmp\n");
}

/* ---- operations ---- */

static bool is_private_place(const char *path) {
  static const char *const places[] = {"/tmp", "/var/tmp", "/run", "/dev"};
  for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
    if (path_is_under(path, places[i]))
      return true;
  }
  return false;
}

static int add_place(struct builder *builder, const struct operation *operation) {
  bool writable = operation->kind == OPERATION_WRITABLE;
  if (!is_private_place(operation->path))
    return add_path(builder, writable ? "read-write" : "read-only", operation->path);
  _cleanup_free_ char *shown = escape_string(operation->path);
  sb_fail(builder->error, SB_CODE_UNSUPPORTED, 0,
          "firejail cannot show '%s' in a private temporary folder", shown);
  return sb_hint(builder->error, "work in another folder, or use another back end");
}

/* Only a mount point stays where it is, and only a change of mode makes it one. */
static int add_pin(struct builder *builder, const struct operation *operation) {
  return add_path(builder, "read-only", operation->path) < 0
             ? -1
             : add_path(builder, "read-write", operation->path);
}

static int add_readonly(struct builder *builder, const struct operation *operation) {
  if (view_is_kernel_path(operation->path) || (operation->flags & OPERATION_NOFOLLOW))
    return 0;
  return add_path(builder, "read-only", operation->path);
}

static int add_mask(struct builder *builder, const struct operation *operation) {
  if (!(operation->flags & OPERATION_HOLES))
    return add_path(builder, "blacklist", operation->path);
  _cleanup_free_ char *shown = escape_string(operation->path);
  sb_fail(builder->error, SB_CODE_UNSUPPORTED, 0,
          "firejail cannot hide '%s' and show something below it", shown);
  return sb_hint(builder->error, "allow nothing below it, or use another back end");
}

static int (*const adders[OPERATION_COUNT])(struct builder *, const struct operation *) = {
    [OPERATION_WRITABLE] = add_place, [OPERATION_READONLY] = add_place,
    [OPERATION_PIN] = add_pin,        [OPERATION_PROTECT] = add_readonly,
    [OPERATION_SEAL] = add_readonly,  [OPERATION_MASK] = add_mask,
};

static int write_profile(struct builder *builder) {
  const struct plan *plan = builder->request->plan;
  add_settings(builder);
  if (add_entries(builder, "/", "read-only") < 0)
    return -1;
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    if (adders[operation->kind] && adders[operation->kind](builder, operation) < 0)
      return -1;
  }
  return add_entries(builder, "/run",
                     "blacklist"); /* last: it needs its own part of it till then */
}

/* ---- the command line ---- */

static int add_command(const struct builder *builder, struct wrapped *wrapped) {
  const struct plan *plan = builder->request->plan;
  bool too_long = plan->arguments.count > WORDS_MAX;
  strv_add(&wrapped->argv, "--");
  if (tool_at_least(builder->version, 0, 9, 72)) {
    /* Only the command itself can tell that it was started. */
    wrapped->status_fd = 3;
    wrapped->ran_mark = wrapped->started_mark = "ran";
    wrapped_words(wrapped, "/bin/sh", "-c", "echo ran >&3; exec 3>&-; exec \"$@\"", "sh", NULL);
  }
  wrapped->command_index = wrapped->argv.count;
  STRV_FOREACH (word, &plan->arguments) {
    strv_add(&wrapped->argv, *word);
    too_long |= strlen(*word) > WORD_SIZE_MAX;
  }
  if (!too_long)
    return 0;
  sb_fail(builder->error, SB_CODE_UNSUPPORTED, 0,
          "firejail takes at most %d words of %d bytes each as a command", WORDS_MAX,
          WORD_SIZE_MAX);
  return sb_hint(builder->error, "put the command into a script, or use another back end");
}

static int wrap(const struct backend_request *request, struct wrapped *ret,
                struct sb_error *error) {
  _cleanup_free_ char *tool = tool_find("firejail");
  _cleanup_free_ char *path = path_join(request->scratch, "firejail.profile");
  struct builder builder = {.request = request, .error = error};
  if (!tool || !tool_version(tool, &builder.version))
    return sb_fail(error, SB_CODE_NOT_FOUND, 0, "firejail is not installed");
  struct wrapped wrapped = WRAPPED_NONE;
  wrapped_words(&wrapped, tool, "--quiet", NULL);
  strv_addf(&wrapped.argv, "--profile=%s", path);
  int result = write_profile(&builder);
  if (result == 0)
    result = add_command(&builder, &wrapped);
  wrapped_add_folder(&wrapped, request->scratch);
  wrapped_add_file(&wrapped, path, builder.profile.data, builder.profile.length);
  text_clear(&builder.profile);
  wrapped.signals_inside = true;
  wrapped.own_placeholders = true;
  STRV_FOREACH (entry, &request->plan->environment)
    strv_add(&wrapped.environment, *entry);
  if (result < 0)
    wrapped_clear(&wrapped);
  else
    *ret = wrapped;
  return result;
}

/* ---- probe ---- */

/* Inside a container or another sandbox firejail runs the command without any confinement and calls
 * it a warning. Only a network namespace of its own shows that it does what was asked. */
static bool really_confines(char *tool, char **ret_said) {
  char own[64];
  char *argv[] = {tool, "--noprofile",   "--quiet",           "--net=none",
                  "--", "/bin/readlink", "/proc/self/ns/net", NULL};
  ssize_t length = readlink("/proc/self/ns/net", own, sizeof own - 1);
  if (length <= 0 || tool_ask(argv, 10, ret_said) != 0)
    return false;
  own[length] = '\0';
  return strncmp(*ret_said, "net:[", 5) == 0 && strncmp(*ret_said, own, (size_t)length) != 0;
}

static void probe(const struct host_context *host, const struct policy *policy,
                  struct backend_status *status) {
  (void)host;
  (void)policy;
  _cleanup_free_ char *tool = tool_find("firejail"), *output = NULL;
  struct tool_version version;
  if (!tool) {
    backend_missing(status, "apt-get install firejail", "firejail is not installed");
    return;
  }
  if (!tool_version(tool, &version) || !tool_at_least(version, 0, 9, 70)) {
    backend_missing(status, "install firejail 0.9.70 or newer", "this firejail is too old");
    return;
  }
  if (!really_confines(tool, &output)) {
    _cleanup_free_ char *shown = escape_string(output ? output : "");
    shown[strcspn(shown, "\\\n")] = '\0';
    backend_missing(status, "it is a setuid program: run it outside of containers and sandboxes",
                    "it does not confine here: %s", shown);
    return;
  }
  backend_available(status, "firejail %d.%d.%d", version.major, version.minor, version.patch);
}

const struct backend firejail_backend = {
    .name = "firejail",
    .summary = "firejail (setuid), with a generated profile and its own system call filter",
    .features = FEATURE(READ_ALL) | FEATURE(HIDE) | FEATURE(HIDE_IN_WRITABLE) | FEATURE(PROTECT) |
                FEATURE(RESERVE) | FEATURE(READONLY_IN_WRITABLE) | FEATURE(NETWORK_NONE) |
                FEATURE(NETWORK_FULL) | FEATURE(LIMIT_MEMORY) | FEATURE(LIMIT_CPU) |
                FEATURE(LIMIT_PROCESSES) | FEATURE(LIMIT_IO) | FEATURE(LIMIT_FILES) |
                FEATURE(LIMIT_TIME) | FEATURE(NO_DEBUG) | FEATURE(SYSCALL_FILTER) |
                FEATURE(PRIVATE_TMP) | FEATURE(PROCESS_ISOLATION) | FEATURE(SIGNAL_ISOLATION) |
                FEATURE(METADATA),
    .limits_by_group = true,
    .probe = probe,
    .wrap = wrap,
};
