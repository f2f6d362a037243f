/* Reading git configuration; see git-config.h. Believes nothing: who uses a name that stands in
 * there has to look whether it may be used. */
#include "policy/git-config.h"

#include <fcntl.h>
#include <string.h>
#include <strings.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"

#define SIZE_LIMIT    (64 * 1024)
#define INCLUDE_DEPTH 4 /* git's own limit is 10 */
#define NAME_LIMIT    64

/* Git stops where it may not look at an include, and does other things than outside without the
 * rest. */
static const struct {
  const char *section, *key;
  bool is_config;
} named[] = {
    {"include", "path", true},  {"includeif", "path", true}, {"core", "excludesfile"},
    {"core", "attributesfile"}, {"core", "hookspath"},       {"commit", "template"},
    {"init", "templatedir"},
};

struct reading {
  const struct policy_context *context;
  struct strv *paths;
};

const char *git_config_value(const char *line, const char *key) {
  size_t length = strlen(key);
  line += strspn(line, " \t");
  if (line[0] == '[' && strchr(line, ']'))
    line = strchr(line, ']') + 1;
  line += strspn(line, " \t");
  if (strncasecmp(line, key, length) != 0)
    return NULL;
  line += length + strspn(line + length, " \t");
  return *line == '=' ? line + 1 + strspn(line + 1, " \t\"") : NULL;
}

/* A value ends at its quote, or at a comment, without the blanks before it. */
char *git_config_text(const char *value) {
  bool quoted = value[-1] == '"';
  size_t length = strcspn(value, quoted ? "\"" : "\"#;");
  while (!quoted && length > 0 && strchr(" \t", value[length - 1]))
    length--;
  return xstrndup(value, length);
}

/* `[includeIf "gitdir:~/work/"]` is of the section includeIf. */
static bool is_section(const char *section, const char *name) {
  size_t length = strlen(name);
  section += strspn(section, " \t");
  return strncasecmp(section, name, length) == 0 && strchr(" \t\"]", section[length]);
}

/* Only names that do not depend on the repository: what is relative to one lies in it. */
static char *absolute_path(const struct reading *reading, const char *file, const char *written) {
  const char *home = reading->context->home;
  if (written[0] == '/')
    return path_normalize(written);
  if (strncmp(written, "~/", 2) == 0)
    return home ? path_join(home, written + 2) : NULL;
  _cleanup_free_ char *folder = file ? path_parent(file) : NULL;
  return folder && written[0] ? path_join(folder, written) : NULL;
}

/* An included file may lie in a project, where a session has written it: it names nothing but what
 * lies beside it. Not so in the home folder itself, and where git keeps its settings. */
static bool may_name(const struct reading *reading, const char *file, const char *path) {
  const char *home = reading->context->home, *config_home = reading->context->config_home;
  _cleanup_free_ char *folder = path_parent(file);
  _cleanup_free_ char *settings = config_home ? path_join(config_home, "git") : NULL;
  return (home && strcmp(folder, home) == 0) || (settings && path_is_under(folder, settings)) ||
         path_is_under(path, folder);
}

static void read_config(const struct reading *reading, const char *file, size_t depth);

static void read_line(const struct reading *reading, const char *file, const char *section,
                      const char *line, size_t depth) {
  for (size_t i = 0; i < ARRAY_SIZE(named); i++) {
    const char *value = git_config_value(line, named[i].key);
    if (!value || !is_section(section, named[i].section))
      continue;
    _cleanup_free_ char *text = git_config_text(value);
    _cleanup_free_ char *path = absolute_path(reading, named[i].is_config ? file : NULL, text);
    if (!path || !may_name(reading, file, path) || strv_contains(reading->paths, path) ||
        reading->paths->count >= NAME_LIMIT)
      continue;
    strv_add(reading->paths, path);
    if (named[i].is_config && depth < INCLUDE_DEPTH)
      read_config(reading, path, depth + 1);
  }
}

static void read_config(const struct reading *reading, const char *file, size_t depth) {
  _cleanup_free_ char *data = NULL;
  if (file_read_at(AT_FDCWD, file, SIZE_LIMIT, &data, NULL) < 0)
    return;
  const char *section = "";
  char *rest = NULL;
  for (char *line = strtok_r(data, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
    line += strspn(line, " \t");
    if (line[0] == '[')
      section = line + 1;
    read_line(reading, file, section, line, depth);
  }
}

void git_config_named(const struct policy_context *context, struct strv *ret_paths) {
  const struct reading reading = {context, ret_paths};
  const struct {
    const char *folder, *name;
  } files[] = {{context->home, ".gitconfig"}, {context->config_home, "git/config"}};
  for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
    _cleanup_free_ char *file = files[i].folder ? path_join(files[i].folder, files[i].name) : NULL;
    if (file)
      read_config(&reading, file, 0);
  }
}
