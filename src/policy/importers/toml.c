/* TOML by a helper program; see src/toml/sandbox-toml.cc. What it says is checked like everything
 * that comes from outside. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"
#include "core/text.h"
#include "policy/importers/importer.h"

#define HELPER "sandbox-toml"

enum { TREE_DEPTH_MAX = 16 };

/* Installed, or in the build folder of a command that is not. */
static char *find_helper(void) {
  static const char *const places[] = {HELPER, "../toml/" HELPER, "../../src/toml/" HELPER};
  char *installed = xstrdup(SANDBOX_LIBEXEC "/" HELPER), *self = NULL;
  if (access(installed, X_OK) == 0 || file_resolve("/proc/self/exe", &self) < 0)
    return installed;
  _cleanup_free_ char *folder = path_parent(self);
  free(self);
  for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
    char *helper = path_join(folder, places[i]);
    if (access(helper, X_OK) == 0) {
      free(installed);
      return helper;
    }
    free(helper);
  }
  return installed;
}

/* ---- talking to it ---- */

/* The input is at most a mebibyte, which no pipe holds: a file without a name does. */
static int input_file(const char *data, size_t length) {
  int fd = memfd_create("toml", MFD_CLOEXEC);
  if (fd < 0)
    return -errno;
  int result = file_write_all(fd, data, length);
  if (result < 0 || lseek(fd, 0, SEEK_SET) < 0) {
    close(fd);
    return result < 0 ? result : -errno;
  }
  return fd;
}

static int start(const char *helper, int input, int output, pid_t *ret_child) {
  char *arguments[] = {(char *)HELPER, NULL}, *environment[] = {NULL};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  int result = posix_spawn(ret_child, helper, &actions, NULL, arguments, environment);
  posix_spawn_file_actions_destroy(&actions);
  return -result;
}

static void read_all(int fd, struct text *ret_text) {
  char buffer[65536];
  ssize_t got;
  while ((got = read(fd, buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR))
    if (got > 0)
      text_append_bytes(ret_text, buffer, (size_t)got);
}

static int run_helper(const char *helper, const char *data, size_t length, struct text *ret_text) {
  int ends[2];
  pid_t child;
  _cleanup_close_ int input = input_file(data, length);
  if (input < 0)
    return input;
  if (pipe2(ends, O_CLOEXEC) < 0)
    return -errno;
  _cleanup_close_ int from = ends[0];
  int result = start(helper, input, ends[1], &child);
  close(ends[1]);
  if (result < 0)
    return result;
  read_all(from, ret_text);
  int status = child_wait(child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBADMSG;
}

/* ---- what it said ---- */

static struct node *convert(const json_t *value, struct arena *arena, unsigned depth);

static bool convert_entries(const json_t *list, bool mapping, struct node *parent,
                            struct arena *arena, unsigned depth) {
  struct node **next = &parent->first;
  size_t index;
  json_t *entry;
  if (!json_is_array(list))
    return false;
  json_array_foreach(list, index, entry) {
    *next = convert(mapping ? json_array_get(entry, 3) : entry, arena, depth + 1);
    if (!*next)
      return false;
    const char *key = json_string_value(json_array_get(entry, 0));
    if (mapping && key) {
      struct node *name = (*next)->key = arena_alloc(arena, sizeof *name);
      *name = (struct node){
          .line = (unsigned)json_integer_value(json_array_get(entry, 1)),
          .column = (unsigned)json_integer_value(json_array_get(entry, 2)),
          .text = arena_strdup(arena, key),
      };
    }
    if (mapping && !key)
      return false;
    next = &(*next)->next;
  }
  return true;
}

/* NULL if it is nothing that the helper writes; a NUL in a string counts as such. */
static struct node *convert(const json_t *value, struct arena *arena, unsigned depth) {
  const char *type = json_string_value(json_array_get(value, 0));
  const json_t *content = json_array_get(value, 3);
  if (!type || depth > TREE_DEPTH_MAX)
    return NULL;
  struct node *node = arena_alloc(arena, sizeof *node);
  node->line = (unsigned)json_integer_value(json_array_get(value, 1));
  node->column = (unsigned)json_integer_value(json_array_get(value, 2));
  if (*type == 'm' || *type == 's') {
    node->type = *type == 'm' ? NODE_MAPPING : NODE_SEQUENCE;
    return convert_entries(content, *type == 'm', node, arena, depth) ? node : NULL;
  }
  if (!json_is_string(content))
    return NULL;
  node->plain = *type == 'p';
  node->text = arena_strdup(arena, json_string_value(content));
  return node;
}

static int fail_syntax(const json_t *answer, const char *file, struct sb_error *error) {
  const char *what = json_string_value(json_object_get(answer, "error"));
  _cleanup_free_ char *shown = escape_string(what ? what : "not valid TOML");
  return sb_fail(error, SB_CODE_POLICY, 0, "%s:%d:%d: %s", file,
                 (int)json_integer_value(json_object_get(answer, "line")),
                 (int)json_integer_value(json_object_get(answer, "column")), shown);
}

int toml_parse(const char *file, const char *data, size_t length, struct arena *arena,
               struct node **ret_root, struct sb_error *error) {
  _cleanup_free_ char *helper = find_helper();
  _cleanup_text_ struct text text = {0};
  int result = run_helper(helper, data, length, &text);
  if (result < 0) {
    sb_fail(error, SB_CODE_SYSTEM, -result, "reading TOML with '%s'", helper);
    return sb_hint(error, "it is a part of sandbox: build and install it with libtomlplusplus-dev");
  }
  json_t *answer = json_loadb(text_string(&text), text.length, 0, NULL);
  if (json_is_object(answer)) {
    fail_syntax(answer, file, error);
    json_decref(answer);
    return -1;
  }
  struct node *root = convert(answer, arena, 0);
  json_decref(answer);
  if (!root) {
    sb_fail(error, SB_CODE_POLICY, 0, "%s: nested too deeply, or holds a NUL", file);
    return -1;
  }
  *ret_root = root;
  return 0;
}
