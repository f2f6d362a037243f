/* The words of one `podman run` or `docker run`. The tool gets no right that the plan does not
 * name: no capability, no network, no writable root, no image that is not here already. */
#include "backend/container.h"

#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"
#include "core/text.h"
#include "net/publish.h"

struct writer {
  const struct container_setup *setup;
  const struct backend_request *request;
  struct wrapped *wrapped;
  struct strv *argv;
  bool has_folder, has_mask; /* made in the scratch folder */
};

/* A name in the scratch folder, which is there from then on. New string. */
static char *scratch_file(struct writer *writer, const char *name) {
  if (!writer->has_folder)
    wrapped_add_folder(writer->wrapped, writer->setup->scratch);
  writer->has_folder = true;
  return path_join(writer->setup->scratch, name);
}

/* ---- frame ---- */

static void add_words(struct strv *argv, const char *const *words) {
  for (; *words; words++)
    strv_add(argv, *words);
}

static void add_frame(struct writer *writer) {
  static const char *const always[] = {"run",
                                       "--rm",
                                       "--interactive",
                                       "--pull=never",
                                       "--read-only",
                                       "--cap-drop=all",
                                       "--security-opt=no-new-privileges",
                                       NULL};
  const struct container_setup *setup = writer->setup;
  const char *id = writer->request->session_id;
  strv_add(writer->argv, setup->program);
  add_words(writer->argv, always);
  strv_addf(writer->argv, "--name=sandbox-%s", id);
  strv_addf(writer->argv, "--hostname=sandbox-%s", id);
  strv_addf(writer->argv, "--label=sandbox.session=%s", id);
  strv_addf(writer->argv, "--label=sandbox.user=%u", (unsigned)writer->request->host->user);
  if (setup->is_podman) {
    strv_add(writer->argv, "--read-only-tmpfs=false"); /* ours have sizes and modes */
    strv_add(writer->argv, "--http-proxy=false");      /* the caller's would be passed */
  }
  if (setup->has_init)
    strv_add(writer->argv, "--init");
  if (setup->init)
    strv_addf(writer->argv, "--init-path=%s", setup->init);
  if (setup->runtime)
    strv_addf(writer->argv, "--runtime=%s", setup->runtime);
  if (setup->is_remapped)
    strv_add(writer->argv, "--userns=host");
  if (setup->is_labelled)
    strv_add(writer->argv, "--security-opt=label=disable");
  if (writer->request->has_terminal)
    strv_add(writer->argv, "--tty");
}

/* ---- identity ---- */

static void add_identity(struct writer *writer) {
  const struct host_context *host = writer->request->host;
  switch (writer->setup->identity) {
  case CONTAINER_KEEP_ID:
    strv_add(writer->argv, "--userns=keep-id");
    strv_addf(writer->argv, "--user=%u:%u", (unsigned)host->user, (unsigned)host->group);
    return;
  case CONTAINER_SAME_IDS:
    strv_addf(writer->argv, "--user=%u:%u", (unsigned)host->user, (unsigned)host->group);
    return;
  case CONTAINER_AS_ROOT:
    strv_add(writer->argv, "--user=0:0");
    return;
  case CONTAINER_CREATE: {
    /* What groupadd, useradd and su need; the image's /etc has to be writable for them. */
    static const char *const rights[] = {
        "--user=0:0",      "--read-only=false",      "--cap-add=SETUID", "--cap-add=SETGID",
        "--cap-add=CHOWN", "--cap-add=DAC_OVERRIDE", "--cap-add=FOWNER", NULL};
    add_words(writer->argv, rights);
    return;
  }
  }
}

/* ---- network ---- */

/* With an address always: without one the engines listen on all of them. */
static void add_port(struct writer *writer, const char *text) {
  struct published published;
  if (!publish_parse(text, &published))
    return; /* the policy's reader has refused it */
  _cleanup_free_ char *full = publish_text(&published, published.inside);
  strv_addf(writer->argv, "--publish=%s", full);
}

static int add_network(struct writer *writer, struct sb_error *error) {
  const struct policy *policy = writer->request->policy;
  const char *program = writer->setup->program;
  if (policy->network.mode == NETWORK_FILTERED) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "%s cannot filter the network by host", program);
    return sb_hint(error, "use --backend native, or network.mode none or full");
  }
  if (policy->network.mode == NETWORK_NONE && policy->network.publish.count > 0) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "%s cannot publish ports of a container without network",
            program);
    return sb_hint(error, "use --backend native, or network.mode full");
  }
  if (policy->network.mode == NETWORK_NONE)
    strv_add(writer->argv, "--network=none");
  STRV_FOREACH (port, &policy->network.publish)
    add_port(writer, *port);
  return 0;
}

/* ---- mounts ---- */

static void add_private_places(struct writer *writer) {
  static const struct {
    const char *path, *mode;
  } places[] = {{"/tmp", "1777"}, {"/var/tmp", "1777"}, {"/run", "0755"}};
  unsigned long long size = writer->request->plan->private_size_bytes;
  for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
    _cleanup_text_ struct text text = {0};
    text_appendf(&text, "--tmpfs=%s:rw,nosuid,nodev,exec,mode=%s", places[i].path, places[i].mode);
    if (size)
      text_appendf(&text, ",size=%llu", size);
    strv_add(writer->argv, text_string(&text));
  }
}

static bool has_mounts_below(const struct mount_table *table, const char *path) {
  for (size_t i = 0; table && i < table->count; i++) {
    const char *below = path_below(table->entries[i].point, path);
    if (below && below[0])
      return true;
  }
  return false;
}

static void append_field(struct text *text, const char *key, const char *value) {
  _cleanup_free_ char *field = container_field(key, value);
  text_appendf(text, ",%s", field);
}

static void add_bind(struct writer *writer, const char *source, const char *target, bool readonly) {
  _cleanup_text_ struct text text = {0};
  text_append(&text, "--mount=type=bind");
  append_field(&text, "source", source);
  append_field(&text, "destination", target);
  if (readonly)
    text_append(&text, ",ro");
  /* "Read-only" is said of the topmost mount alone: better what is mounted below does not show. */
  if (readonly && has_mounts_below(writer->setup->mounts, source))
    text_append(&text, ",bind-nonrecursive=true");
  strv_add(writer->argv, text_string(&text));
}

/* A file that nobody can read; where none can be made, an empty device. */
static void add_file_mask(struct writer *writer, const char *target) {
  if (!writer->setup->scratch) {
    add_bind(writer, "/dev/null", target, true);
    return;
  }
  _cleanup_free_ char *mask = scratch_file(writer, "mask");
  if (!writer->has_mask)
    wrapped_add_unreadable(writer->wrapped, mask);
  writer->has_mask = true;
  add_bind(writer, mask, target, true);
}

/* Empty and read-only. Podman would fill a new tmpfs with what it hides. */
static void add_mask(struct writer *writer, const struct container_mount *mount,
                     const char *target) {
  if (!mount->folder) {
    add_file_mask(writer, target);
    return;
  }
  _cleanup_text_ struct text text = {0};
  text_append(&text, "--mount=type=tmpfs");
  append_field(&text, "destination", target);
  text_append(&text, ",tmpfs-size=65536,ro");
  if (writer->setup->is_podman)
    text_append(&text, ",notmpcopyup");
  strv_add(writer->argv, text_string(&text));
}

/* Both of these understand neither an escaped colon nor an escaped comma in the paths. */
static int check_overlay(const struct writer *writer, const struct container_mount *mount,
                         struct sb_error *error) {
  if (!strpbrk(mount->path, ":,\\\"") && !strpbrk(mount->upper, ":,\\\""))
    return 0;
  _cleanup_free_ char *shown = escape_string(mount->path);
  sb_fail(error, SB_CODE_UNSUPPORTED, 0,
          "%s cannot overlay '%s': colons, commas, quotes and backslashes divide its options",
          writer->setup->program, shown);
  return sb_hint(error, "use --backend native");
}

static int add_overlay(struct writer *writer, const struct container_mount *mount,
                       const char *target, struct sb_error *error) {
  if (check_overlay(writer, mount, error) < 0)
    return -1;
  const char *lower = mount->source ? mount->source : mount->path;
  if (writer->setup->is_podman) {
    strv_addf(writer->argv, "--volume=%s:%s:O,upperdir=%s/upper,workdir=%s/work", lower, target,
              mount->upper, mount->upper);
    return 0;
  }
  _cleanup_free_ char *options = xasprintf(
      "lowerdir=%s,upperdir=%s/upper,workdir=%s/work,userxattr", lower, mount->upper, mount->upper);
  _cleanup_free_ char *field = container_field("volume-opt=o", options);
  strv_addf(writer->argv,
            "--mount=type=volume,destination=%s,volume-driver=local,volume-opt=type=overlay,"
            "volume-opt=device=overlay,%s",
            target, field);
  return 0;
}

/* The tools differ in what they take: docker keeps the mode of a folder that it made itself on the
 * way to the working folder, and podman knows no owner. */
static void add_home(struct writer *writer, const char *target) {
  const struct host_context *host = writer->request->host;
  if (writer->setup->is_podman)
    strv_addf(writer->argv, "--tmpfs=%s:rw,nosuid,nodev,exec,mode=1777,notmpcopyup", target);
  else
    strv_addf(writer->argv, "--tmpfs=%s:rw,nosuid,nodev,exec,mode=0755,uid=%u,gid=%u", target,
              (unsigned)host->user, (unsigned)host->group);
}

static int add_mount(struct writer *writer, const struct container_mount *mount,
                     struct sb_error *error) {
  _cleanup_free_ char *target = container_path(mount->path);
  if (!target) {
    _cleanup_free_ char *shown = escape_string(mount->path);
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "'%s' has no place in a container", shown);
    return sb_hint(error, "use a path that starts with a drive letter: C:\\work");
  }
  const char *source = mount->source ? mount->source : mount->path;
  switch (mount->kind) {
  case CONTAINER_BIND:
  case CONTAINER_BIND_READONLY:
    add_bind(writer, source, target, mount->kind == CONTAINER_BIND_READONLY);
    return 0;
  case CONTAINER_MASK:
    add_mask(writer, mount, target);
    return 0;
  case CONTAINER_HOME:
    add_home(writer, target);
    return 0;
  case CONTAINER_OVERLAY:
    return add_overlay(writer, mount, target, error);
  }
  return 0;
}

static int add_mounts(struct writer *writer, struct sb_error *error) {
  _cleanup_container_mounts_ struct container_mounts mounts = {0};
  if (container_mounts_collect(writer->setup, writer->request, &mounts, error) < 0)
    return -1;
  add_private_places(writer);
  for (size_t i = 0; i < mounts.count; i++) {
    if (add_mount(writer, &mounts.items[i], error) < 0)
      return -1;
  }
  return 0;
}

/* ---- environment ---- */

/* These describe the host's programs and folders; the image has its own. */
static bool is_of_the_host(const struct policy *policy, const char *entry) {
  static const char *const names[] = {
      "PATH=", "SHELL=", "XDG_RUNTIME_DIR=", "LD_LIBRARY_PATH=", "MANPATH="};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    if (strncmp(entry, names[i], strlen(names[i])) == 0)
      return !strv_contains(&policy->environment_set, entry);
  }
  return false;
}

static bool is_set(const struct strv *environment, const char *name) {
  size_t length = strlen(name);
  STRV_FOREACH (entry, environment) {
    if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
      return true;
  }
  return false;
}

/* The client puts the proxies of its configuration, with their passwords, into every container. */
static void hide_proxies(struct writer *writer) {
  static const char *const names[] = {"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy",
                                      "FTP_PROXY",  "ftp_proxy",  "NO_PROXY",    "no_proxy",
                                      "ALL_PROXY",  "all_proxy"};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    if (!is_set(&writer->request->plan->environment, names[i]))
      strv_addf(writer->argv, "--env=%s=", names[i]);
  }
}

/* Values may be secrets, and everybody can read a command line: they go by file where they can. */
static void add_environment(struct writer *writer) {
  const struct backend_request *request = writer->request;
  _cleanup_text_ struct text lines = {0};
  STRV_FOREACH (entry, &request->plan->environment) {
    if (is_of_the_host(request->policy, *entry))
      continue;
    if (writer->setup->scratch && container_plain_value(*entry))
      text_appendf(&lines, "%s\n", *entry);
    else
      strv_addf(writer->argv, "--env=%s", *entry);
  }
  if (writer->setup->has_proxies)
    hide_proxies(writer);
  if (lines.length == 0)
    return;
  _cleanup_free_ char *file = scratch_file(writer, "environment");
  strv_addf(writer->argv, "--env-file=%s", file);
  wrapped_add_file(writer->wrapped, file, text_string(&lines), lines.length);
}

/* ---- limits ---- */

static int refuse_limit(const struct writer *writer, enum limit_kind kind, struct sb_error *error) {
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "%s cannot limit %s", writer->setup->program,
          limit_title(kind));
  return sb_hint(error, "remove %s, or use --backend native", limit_policy_key(kind));
}

/* The smaller one of the limit that was asked for and that of the caller; 0: none. */
static void add_ulimit(struct writer *writer, const char *name, unsigned long long limit,
                       unsigned long long own) {
  if (own && (!limit || own < limit))
    limit = own;
  if (limit)
    strv_addf(writer->argv, "--ulimit=%s=%llu:%llu", name, limit, limit);
}

unsigned container_held_limits(uint64_t lost) {
  static const struct {
    enum limit_kind kind;
    uint64_t feature;
  } limits[] = {{LIMIT_MEMORY, FEATURE(LIMIT_MEMORY)},
                {LIMIT_CPU, FEATURE(LIMIT_CPU)},
                {LIMIT_PROCESSES, FEATURE(LIMIT_PROCESSES)},
                {LIMIT_OPEN_FILES, FEATURE(LIMIT_FILES)},
                {LIMIT_FILE_SIZE, FEATURE(LIMIT_FILES)}};
  unsigned held = 0;
  for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
    held |= lost & limits[i].feature ? 0 : 1u << limits[i].kind;
  return held;
}

static int add_limits(struct writer *writer, struct sb_error *error) {
  static const enum limit_kind unsupported[] = {LIMIT_DISK, LIMIT_INODES, LIMIT_IO};
  const uint64_t *value = writer->request->limits->value;
  for (size_t i = 0; i < ARRAY_SIZE(unsupported); i++) {
    if (value[unsupported[i]] && !writer->request->weaken)
      return refuse_limit(writer, unsupported[i], error);
  }
  struct strv *argv = writer->argv;
  unsigned held = container_held_limits(writer->request->lost);
  if (value[LIMIT_MEMORY] && held & 1u << LIMIT_MEMORY) {
    strv_addf(argv, "--memory=%llub", (unsigned long long)value[LIMIT_MEMORY]);
    strv_addf(argv, "--memory-swap=%llub", (unsigned long long)value[LIMIT_MEMORY]);
  }
  if (value[LIMIT_CPU] && held & 1u << LIMIT_CPU)
    strv_addf(argv, "--cpus=%.3f", (double)value[LIMIT_CPU] / 1e9);
  if (value[LIMIT_PROCESSES] &&
      held & 1u << LIMIT_PROCESSES) /* the init is ours, not the command's */
    strv_addf(argv, "--pids-limit=%llu",
              (unsigned long long)value[LIMIT_PROCESSES] + writer->setup->has_init);
  add_ulimit(writer, "nofile", value[LIMIT_OPEN_FILES], writer->setup->open_files);
  add_ulimit(writer, "fsize", value[LIMIT_FILE_SIZE], 0);
  add_ulimit(writer, "nproc", 0, writer->setup->own_processes);
  return 0;
}

/* ---- the command ---- */

/* For tools that must find the caller in the image's /etc/passwd: the user is made first. */
static void add_created_user(struct writer *writer) {
  const struct host_context *host = writer->request->host;
  _cleanup_text_ struct text text = {0};
  text_appendf(
      &text,
      "groupadd -f -o -g %u sandbox 2>/dev/null; "
      "useradd -o -u %u -g %u -d \"$HOME\" -M sandbox 2>/dev/null; exec su -p sandbox -c '",
      (unsigned)host->group, (unsigned)host->user, (unsigned)host->group);
  _cleanup_text_ struct text command = {0};
  text_append(&command, "exec");
  STRV_FOREACH (word, &writer->request->plan->arguments) {
    _cleanup_free_ char *quoted = escape_shell_word(*word);
    text_appendf(&command, " %s", quoted);
  }
  for (const char *at = text_string(&command); *at; at++)
    text_append(&text, *at == '\'' ? "'\\''" : (char[]){*at, '\0'});
  text_append_char(&text, '\'');
  strv_add(writer->argv, "--entrypoint=/bin/sh");
  strv_add(writer->argv, writer->setup->image);
  strv_add(writer->argv, "-c");
  strv_add(writer->argv, text_string(&text));
}

/* By --entrypoint, or the image's own one would get our words as arguments. */
static void add_command(struct writer *writer) {
  const struct plan *plan = writer->request->plan;
  _cleanup_free_ char *folder = container_path(plan->working_folder);
  strv_addf(writer->argv, "--workdir=%s", folder ? folder : "/");
  if (writer->setup->identity == CONTAINER_CREATE) {
    add_created_user(writer);
    return;
  }
  strv_addf(writer->argv, "--entrypoint=%s", plan->arguments.items[0]);
  strv_add(writer->argv, writer->setup->image);
  for (size_t i = 1; i < plan->arguments.count; i++)
    strv_add(writer->argv, plan->arguments.items[i]);
}

static void add_end(const struct container_setup *setup, const char *session_id,
                    struct strv *argv) {
  strv_add(argv, setup->program);
  strv_add(argv, "rm");
  strv_add(argv, "--force");
  strv_add(argv, "--volumes");
  if (setup->is_podman) {
    strv_add(argv, "--ignore");
    strv_add(argv, "--time=0");
  }
  strv_addf(argv, "sandbox-%s", session_id);
}

/* A created user is not the container's own, who is root. */
static void add_enter(const struct container_setup *setup, const struct backend_request *request,
                      struct wrapped *ret) {
  strv_add(&ret->enter_argv, setup->program);
  strv_add(&ret->enter_argv, "exec");
  strv_add(&ret->enter_argv, "--interactive");
  if (setup->identity == CONTAINER_CREATE)
    strv_addf(&ret->enter_argv, "--user=%u:%u", (unsigned)request->host->user,
              (unsigned)request->host->group);
  ret->enter_name = xasprintf("sandbox-%s", request->session_id);
}

/* An image name is a word of the command line: never an option. */
static int check_image(const struct container_setup *setup, struct sb_error *error) {
  if (setup->image && setup->image[0] && setup->image[0] != '-')
    return 0;
  _cleanup_free_ char *shown = escape_string(setup->image ? setup->image : "");
  sb_fail(error, SB_CODE_POLICY, 0, "container.image '%s' is not the name of an image", shown);
  return sb_hint(error, "write a name such as debian:12");
}

int container_wrap(const struct container_setup *setup, const struct backend_request *request,
                   struct wrapped *ret, struct sb_error *error) {
  struct writer writer = {setup, request, ret, &ret->argv, false, false};
  if (check_image(setup, error) < 0)
    return -1;
  add_frame(&writer);
  add_identity(&writer);
  if (add_network(&writer, error) < 0 || add_limits(&writer, error) < 0 ||
      add_mounts(&writer, error) < 0)
    return -1;
  add_environment(&writer);
  add_command(&writer);
  add_end(setup, request->session_id, &ret->end_argv);
  add_enter(setup, request, ret);
  return 0;
}
