/* The table of policy keys; see schema.h. Pure data and what reads it. A new setting is one line
 * here and one member of struct policy. */
#include "policy/schema.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/suggest.h"
#include "core/text.h"
#include "net/idn.h"
#include "net/match.h"
#include "net/publish.h"
#include "net/settings.h"

/* Choices go from strict to loose: NARROWING_SMALLER and the enums in policy.h rely on it. */
static const char *const mode_words[] = {"dynamic", "static", NULL};
static const char *const require_words[] = {"required", "preferred", "disabled", NULL};
static const char *const network_words[] = {"none", "filtered", "full", NULL};
static const char *const seatbelt_words[] = {"restrictive", "permissive", NULL};
static const char *const nix_words[] = {"auto", "on", "off", NULL};
static const char *const container_user_words[] = {"keep", "create", NULL};
static const char *const driver_words[] = {"auto", "relay", "slirp4netns", "pasta", "veth", NULL};
static const char *const backend_words[] = {"auto",   "native",   "landlock", "bwrap",
                                            "podman", "docker",   "firejail", "nsjail",
                                            "vm",     "seatbelt", NULL};

/* ---- checks of list entries ---- */

static const char *check_text(const char *value) {
  if (*value == '\0')
    return "is empty";
  for (const char *at = value; *at; at++)
    if (isspace((unsigned char)*at) || iscntrl((unsigned char)*at))
      return "contains a space or a control character";
  return NULL;
}

static const char *check_host(const char *value) {
  const char *problem = check_text(value);
  if (problem)
    return problem;
  if (strstr(value, "://"))
    return "is an address with a scheme; write only HOST or HOST:PORT";
  if (strpbrk(value, "@?#\\\"'"))
    return "has characters that no host name has; write HOST, *.DOMAIN, ADDRESS/BITS, or any of "
           "them with :PORT";
  struct host_rule ignored;
  return host_rule_parse(value, &ignored);
}

static const char *check_http_proxy(const char *value) {
  struct upstream ignored;
  const char *problem = check_text(value);
  return problem ? problem : upstream_parse(value, false, &ignored);
}

static const char *check_socks_proxy(const char *value) {
  struct upstream ignored;
  const char *problem = check_text(value);
  return problem ? problem : upstream_parse(value, true, &ignored);
}

static const char *check_socket(const char *value) {
  if (*value == '\0')
    return "is empty";
  return strchr("/~$.", *value) ? NULL : "is not a path; start it with /, ~, $ or .";
}

static const char *check_profile(const char *value) {
  return *value == '\0' ? "is empty" : NULL;
}

static const char *check_file(const char *value) {
  return *value == '/' ? NULL : "is not an absolute path; start it with /";
}

static const char *check_publish(const char *value) {
  struct published ignored;
  return publish_parse(value, &ignored) ? NULL : "is not HOST_PORT:SANDBOX_PORT, as in 8080:80";
}

static const char *check_variable_pattern(const char *value) {
  size_t length = strlen(value);
  size_t name = length > 0 && value[length - 1] == '*' ? length - 1 : length;
  if (length == 0 || isdigit((unsigned char)value[0]))
    return "is not the name of a variable";
  for (size_t i = 0; i < name; i++)
    if (!isalnum((unsigned char)value[i]) && value[i] != '_')
      return "is not the name of a variable (letters, digits and _, perhaps a * at the end)";
  return NULL;
}

static const char *check_variable(const char *value) {
  const char *problem = check_variable_pattern(value);
  return problem ? problem : strchr(value, '*') ? "is not the name of a variable" : NULL;
}

/* ---- the table ---- */

#define MEMBER(member) offsetof(struct policy, member)
#define LIMIT(key, top, text)                                                                      \
  {                                                                                                \
    .name = "limits." #key, .type = SCHEMA_COUNT, .offset = MEMBER(limits.key),                    \
    .narrowing = NARROWING_LIMIT, .minimum = 1, .maximum = top, .help = text                       \
  }
#define RULES(key, rule_kind_, narrowing_, text)                                                   \
  {                                                                                                \
    .name = "filesystem." key, .type = SCHEMA_RULES, .kind = rule_kind_, .narrowing = narrowing_,  \
    .help = text                                                                                   \
  }
#define CHOICE(key, member, words_, text)                                                          \
  {                                                                                                \
    .name = key, .type = SCHEMA_CHOICE, .offset = MEMBER(member), .narrowing = NARROWING_SMALLER,  \
    .words = words_, .help = text                                                                  \
  }
#define WORD(key, member, words_, text)                                                            \
  { .name = key, .type = SCHEMA_WORD, .offset = MEMBER(member), .words = words_, .help = text }
#define TEXT(key, member, check_, help_)                                                           \
  { .name = key, .type = SCHEMA_TEXT, .offset = MEMBER(member), .check = check_, .help = help_ }
/* A permission: false takes it away, so an untrusted store may say false. */
#define SWITCH(key, member, text)                                                                  \
  {                                                                                                \
    .name = key, .type = SCHEMA_BOOLEAN, .offset = MEMBER(member), .narrowing = NARROWING_SMALLER, \
    .help = text                                                                                   \
  }
#define ORG_SWITCH(key, member, text)                                                              \
  {                                                                                                \
    .name = key, .type = SCHEMA_BOOLEAN, .offset = MEMBER(member), .narrowing = NARROWING_SMALLER, \
    .help = text, .org_final = true                                                                \
  }
#define LIST(key, member, narrowing_, check_, text)                                                \
  {                                                                                                \
    .name = key, .type = SCHEMA_LIST, .offset = MEMBER(member), .narrowing = narrowing_,           \
    .check = check_, .help = text                                                                  \
  }

enum { PETABYTE_MB = 1 << 30, YEAR_SECONDS = 366 * 24 * 3600 };

const struct schema_key schema_table[] = {
    {.name = "version",
     .type = SCHEMA_VERSION,
     .narrowing = NARROWING_ALWAYS,
     .minimum = 1,
     .maximum = 1,
     .help = "version of this schema; every file must have it"},
    CHOICE("mode", mode, mode_words, "dynamic asks for what is not allowed yet; static never asks"),
    WORD("backend", backend, backend_words, "what builds the sandbox"),
    CHOICE("require", require, require_words, "what happens if a protection cannot be had"),
    RULES("read", RULE_READ, NARROWING_NEVER, "readable paths"),
    RULES("write", RULE_WRITE, NARROWING_NEVER, "readable and writable paths"),
    RULES("overlay", RULE_OVERLAY, NARROWING_NEVER,
          "paths writable inside, while the host's copy stays as it is"),
    RULES("hide", RULE_HIDE, NARROWING_ALWAYS, "paths never readable and never asked about"),
    RULES("protect", RULE_PROTECT, NARROWING_ALWAYS, "paths never writable or creatable"),
    RULES("unprotect", RULE_UNPROTECT, NARROWING_NEVER, "takes a protected name back"),
    RULES("list", RULE_LIST, NARROWING_NEVER,
          "folders, no globs, of which the names may be listed and nothing else (dynamic mode)"),
    SWITCH("filesystem.ask_writes", ask_writes, "ask about writes, too (dynamic mode)"),
    SWITCH("filesystem.ask_secrets", ask_secrets,
           "ask about built-in secrets instead of hiding them (dynamic mode)"),
    CHOICE("network.mode", network.mode, network_words, "what can be reached"),
    LIST("network.allow", network.allow, NARROWING_NEVER, check_host,
         "reachable hosts: NAME, *.DOMAIN, ADDRESS/BITS, each with or without :PORT"),
    LIST("network.deny", network.deny, NARROWING_ALWAYS, check_host, "hosts never reachable"),
    LIST("network.unix_sockets", network.unix_sockets, NARROWING_NEVER, check_socket,
         "host sockets bound into the sandbox, by path"),
    LIST("network.publish", network.publish, NARROWING_NEVER, check_publish,
         "HOST_PORT:SANDBOX_PORT, on the host's loopback"),
    TEXT("network.http_proxy", network.http_proxy, check_http_proxy, "an upstream HTTP proxy"),
    TEXT("network.socks_proxy", network.socks_proxy, check_socks_proxy, "an upstream SOCKS5 proxy"),
    WORD("network.driver", network.driver, driver_words, "what carries the traffic"),
    SWITCH("network.allow_local_binding", network.allow_local_binding,
           "the command may listen on its own loopback; if not, on no socket at all"),
    SWITCH("network.unix_datagrams", network.unix_datagrams,
           "static mode: UNIX datagram sockets, which can send to any socket in view"),
    {.name = "limits.cpu_percent",
     .type = SCHEMA_DECIMAL,
     .offset = MEMBER(limits.cpu_percent),
     .narrowing = NARROWING_LIMIT,
     .minimum = 1,
     .maximum = 100 * 4096,
     .help = "processor time; 100 is one core"},
    LIMIT(memory_mb, PETABYTE_MB, "memory, in MiB"),
    LIMIT(disk_mb, PETABYTE_MB, "what may be written, in MiB"),
    LIMIT(max_processes, 1 << 22, "processes and threads at a time"),
    LIMIT(timeout_seconds, YEAR_SECONDS, "wall-clock time"),
    LIMIT(io_mb_per_s, PETABYTE_MB, "disk throughput, in MiB per second"),
    LIMIT(open_files, 1 << 20, "open files per process"),
    LIMIT(file_size_mb, PETABYTE_MB, "size of one file, in MiB"),
    LIMIT(inodes, 1 << 30, "files in private temporary folders"),
    LIST("environment.pass", environment_pass, NARROWING_NEVER, check_variable_pattern,
         "variables passed on besides the built-in list; a * at the end is a prefix"),
    {.name = "environment.set",
     .type = SCHEMA_VARIABLES,
     .offset = MEMBER(environment_set),
     .check = check_variable,
     .help = "variables set to a value"},
    {.name = "prompt.timeout_seconds",
     .type = SCHEMA_SECONDS,
     .offset = MEMBER(prompt_timeout_seconds),
     .narrowing = NARROWING_SMALLER,
     .minimum = 1,
     .maximum = 24 * 3600,
     .help = "an unanswered question is denied after this time"},
    SWITCH("debug", debug, "processes inside may trace each other (gdb, strace)"),
    SWITCH("weaker_nested", weaker_nested, "inside a container go on without a /proc of our own"),
    SWITCH("containers", containers, "the command may create containers of its own"),
    {.name = "vm.enabled",
     .type = SCHEMA_BOOLEAN,
     .offset = MEMBER(vm.enabled),
     .help = "run in a virtual machine"},
    SWITCH("vm.kvm", vm.kvm, "the virtual machine may use /dev/kvm"),
    TEXT("vm.kernel", vm.kernel, check_file,
         "kernel image of the virtual machine; null: the newest of /boot"),
    TEXT("container.image", container.image, check_text,
         "image of podman and docker, never fetched unasked; null: ubuntu:22.04"),
    TEXT("container.runtime", container.runtime, check_text,
         "what runs the container, such as runsc; null: the tool's own choice"),
    WORD("container.user", container.user, container_user_words,
         "keep the caller's ids, or create a user in the image at the start"),
    WORD(
        "nix", nix, nix_words,
        "auto: the store of Nix can be read; on: its daemon can be asked, too; off: /nix is hidden"),
    LIST("commands.exclude", commands.exclude, NARROWING_NEVER, check_text,
         "commands that are not to be sandboxed"),
    ORG_SWITCH("commands.allow_unsandboxed", commands.allow_unsandboxed,
               "excluded commands may run without a sandbox"),
    ORG_SWITCH("commands.allow_bypass", commands.allow_bypass,
               "--bypass may run a command without a sandbox"),
    SWITCH("commands.auto_allow", commands.auto_allow,
           "callers need not ask a person about a sandboxed command"),
    CHOICE("seatbelt.profile", seatbelt.profile, seatbelt_words,
           "macOS: what the profile says about what it does not name"),
    TEXT("seatbelt.custom_profile", seatbelt.custom_profile, check_profile,
         "macOS: a profile to use instead of a generated one"),
    {0},
};

/* ---- finding ---- */

static const char *const section_names[] = {"filesystem", "network", "limits",   "environment",
                                            "prompt",     "vm",      "commands", "seatbelt",
                                            "container",  NULL};

/* The part after "section.", or the name itself for section ""; NULL if elsewhere. */
static const char *name_within(const struct schema_key *key, const char *section) {
  size_t length = strlen(section);
  if (length == 0)
    return strchr(key->name, '.') ? NULL : key->name;
  return strncmp(key->name, section, length) == 0 && key->name[length] == '.'
             ? key->name + length + 1
             : NULL;
}

char *schema_suggest(const struct schema_key *key, const char *value) {
  return key->check == check_host ? idn_suggest(value) : NULL;
}

const struct schema_key *schema_find(const char *section, const char *name) {
  for (const struct schema_key *key = schema_table; key->name; key++) {
    const char *within = name_within(key, section);
    if (within && strcmp(within, name) == 0)
      return key;
  }
  return NULL;
}

bool schema_is_section(const char *name) {
  for (const char *const *section = section_names; *section; section++)
    if (strcmp(*section, name) == 0)
      return true;
  return false;
}

size_t schema_index(const struct schema_key *key) {
  return (size_t)(key - schema_table);
}

size_t schema_count(void) {
  return ARRAY_SIZE(schema_table) - 1;
}

/* The right name in the wrong place is the commonest error of all. */
static const char *find_elsewhere(const char *name) {
  for (const struct schema_key *key = schema_table; key->name; key++) {
    const char *dot = strrchr(key->name, '.');
    if (strcmp(dot ? dot + 1 : key->name, name) == 0)
      return key->name;
  }
  return NULL;
}

const char *schema_nearest(const char *section, const char *name) {
  const char *elsewhere = find_elsewhere(name);
  if (elsewhere)
    return elsewhere;
  const char *candidates[ARRAY_SIZE(schema_table) + ARRAY_SIZE(section_names)] = {0};
  size_t count = 0;
  for (const struct schema_key *key = schema_table; key->name; key++) {
    const char *within = name_within(key, section);
    if (within)
      candidates[count++] = within;
  }
  for (const char *const *own = section_names; *section == '\0' && *own; own++)
    candidates[count++] = *own;
  const char *nearest = suggest_nearest(name, candidates, count);
  const struct schema_key *key = nearest ? schema_find(section, nearest) : NULL;
  return key ? key->name : nearest;
}

/* ---- values ---- */

bool schema_is_scalar(const struct schema_key *key) {
  return key->type > SCHEMA_VERSION && key->type < SCHEMA_LIST;
}

static void *member_of(const struct policy *policy, const struct schema_key *key) {
  return (char *)policy + key->offset;
}

struct strv *schema_list(const struct policy *policy, const struct schema_key *key) {
  return member_of(policy, key);
}

struct schema_value schema_get(const struct policy *policy, const struct schema_key *key) {
  const void *member = member_of(policy, key);
  switch (key->type) {
  case SCHEMA_CHOICE:
    return (struct schema_value){.number = *(const unsigned *)member};
  case SCHEMA_BOOLEAN:
    return (struct schema_value){.number = *(const bool *)member};
  case SCHEMA_SECONDS:
    return (struct schema_value){.number = *(const unsigned *)member};
  case SCHEMA_COUNT:
    return (struct schema_value){.number = (double)*(const unsigned long long *)member};
  case SCHEMA_DECIMAL:
    return (struct schema_value){.number = *(const double *)member};
  case SCHEMA_WORD:
  case SCHEMA_TEXT:
    return (struct schema_value){.text = *(char *const *)member};
  default:
    return (struct schema_value){0};
  }
}

static void replace_text(char **member, const char *text) {
  free(*member);
  *member = text ? xstrdup(text) : NULL;
}

void schema_set(struct policy *policy, const struct schema_key *key, struct schema_value value) {
  void *member = member_of(policy, key);
  switch (key->type) {
  case SCHEMA_CHOICE:
  case SCHEMA_SECONDS:
    *(unsigned *)member = (unsigned)value.number;
    break;
  case SCHEMA_BOOLEAN:
    *(bool *)member = value.number != 0;
    break;
  case SCHEMA_COUNT:
    *(unsigned long long *)member = (unsigned long long)value.number;
    break;
  case SCHEMA_DECIMAL:
    *(double *)member = value.number;
    break;
  case SCHEMA_WORD:
  case SCHEMA_TEXT:
    replace_text(member, value.text);
    break;
  default:
    break;
  }
}

static bool same_text(const char *a, const char *b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}

bool schema_narrows(struct schema_value old, struct schema_value new,
                    const struct schema_key *key) {
  switch (key->narrowing) {
  case NARROWING_NEVER:
    return old.number == new.number &&same_text(old.text, new.text);
  case NARROWING_SMALLER:
    return new.number <= old.number;
  case NARROWING_LIMIT:
    return old.number == 0 || (new.number != 0 && new.number <= old.number);
  case NARROWING_ALWAYS:
    return true;
  }
  return false;
}

/* ---- words for people ---- */

static void append_words(struct text *text, const char *const *words) {
  for (size_t i = 0; words[i]; i++) {
    const char *separator = i == 0 ? "" : words[i + 1] ? ", " : " or ";
    text_appendf(text, "%s%s", separator, words[i]);
  }
}

char *schema_describe(const struct schema_key *key) {
  struct text text = {0};
  switch (key->type) {
  case SCHEMA_CHOICE:
  case SCHEMA_WORD:
    append_words(&text, key->words);
    break;
  case SCHEMA_BOOLEAN:
    text_append(&text, "true or false");
    break;
  case SCHEMA_VERSION:
    text_append(&text, "1");
    break;
  case SCHEMA_COUNT:
  case SCHEMA_SECONDS:
  case SCHEMA_DECIMAL:
    text_appendf(&text, "%s from %llu to %llu%s",
                 key->type == SCHEMA_DECIMAL ? "a number" : "a whole number", key->minimum,
                 key->maximum, key->type == SCHEMA_SECONDS ? "" : ", or null for no limit");
    break;
  case SCHEMA_TEXT:
    text_append(&text, "text, or null");
    break;
  case SCHEMA_LIST:
    text_append(&text, "a list");
    break;
  case SCHEMA_RULES:
    text_append(&text, "a list of paths or globs");
    break;
  case SCHEMA_VARIABLES:
    text_append(&text, "names and their values");
    break;
  case SCHEMA_TYPE_COUNT:
    break;
  }
  return text_steal(&text);
}

char *schema_show(const struct policy *policy, const struct schema_key *key) {
  struct schema_value value = schema_get(policy, key);
  switch (key->type) {
  case SCHEMA_CHOICE:
    return xstrdup(key->words[(unsigned)value.number]);
  case SCHEMA_BOOLEAN:
    return xstrdup(value.number != 0 ? "true" : "false");
  case SCHEMA_WORD:
  case SCHEMA_TEXT:
    return value.text ? escape_string(value.text) : xstrdup("null");
  default:
    return value.number == 0 ? xstrdup("null") : xasprintf("%.15g", value.number);
  }
}
