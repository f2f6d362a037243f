/* What would run a request, as data: building, printing. Pure. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/path.h"
#include "core/text.h"

enum { FIRST_DESCRIPTOR = 3 };

void wrapped_clear(struct wrapped *wrapped) {
  strv_clear(&wrapped->argv);
  strv_clear(&wrapped->environment);
  strv_clear(&wrapped->end_argv);
  strv_clear(&wrapped->enter_argv);
  free(wrapped->enter_name);
  for (size_t i = 0; i < wrapped->file_count; i++) {
    free(wrapped->files[i].path);
    free(wrapped->files[i].content);
  }
  free(wrapped->files);
  *wrapped = WRAPPED_NONE;
}

static struct wrapped_file *add_file(struct wrapped *wrapped, const char *path, const void *content,
                                     size_t size) {
  ARRAY_GROW(wrapped->files, wrapped->file_count);
  struct wrapped_file *file = &wrapped->files[wrapped->file_count++];
  *file = (struct wrapped_file){.path = path ? xstrdup(path) : NULL, .fd = -1, .size = size};
  if (size > 0)
    file->content = memcpy(xmalloc(size), content, size);
  return file;
}

int wrapped_add_descriptor(struct wrapped *wrapped, const void *content, size_t size) {
  int next = wrapped->status_fd >= 0 ? wrapped->status_fd + 1 : FIRST_DESCRIPTOR;
  for (size_t i = 0; i < wrapped->file_count; i++) {
    if (wrapped->files[i].fd >= next)
      next = wrapped->files[i].fd + 1;
  }
  add_file(wrapped, NULL, content, size)->fd = next;
  return next;
}

void wrapped_add_file(struct wrapped *wrapped, const char *path, const void *content, size_t size) {
  add_file(wrapped, path, content, size);
}

void wrapped_add_unreadable(struct wrapped *wrapped, const char *path) {
  add_file(wrapped, path, NULL, 0)->unreadable = true;
}

void wrapped_add_folder(struct wrapped *wrapped, const char *path) {
  add_file(wrapped, path, NULL, 0)->folder = true;
}

void wrapped_words(struct wrapped *wrapped, ...) {
  va_list words;
  va_start(words, wrapped);
  for (const char *word; (word = va_arg(words, const char *));)
    strv_add(&wrapped->argv, word);
  va_end(words);
}

/* ---- for running it without us ---- */

static void append_words(struct text *text, const struct strv *words) {
  STRV_FOREACH (word, words) {
    _cleanup_free_ char *quoted = escape_shell_word(*word);
    text_appendf(text, "%s%s", text->length > 0 ? " " : "", quoted);
  }
}

static void add_placeholders(struct wrapped *wrapped, const struct plan *plan) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    const char *content = operation->source ? operation->source : "";
    if (operation->kind == OPERATION_PLACEHOLDER_FILE)
      wrapped_add_file(wrapped, operation->path, content, strlen(content));
    else if (operation->kind == OPERATION_PLACEHOLDER_FOLDER)
      wrapped_add_folder(wrapped, operation->path);
  }
}

/* Deepest last come, first go. What a running session holds by its lock stays: it is mounted on
 * there. So does a folder that is not empty any more. */
static void append_removals(struct text *script, const struct wrapped *wrapped,
                            const char *scratch) {
  bool in_scratch = false;
  for (size_t i = wrapped->file_count; i-- > 0;) {
    const struct wrapped_file *file = &wrapped->files[i];
    if (!file->path)
      continue;
    if (scratch && path_is_under(file->path, scratch)) {
      in_scratch = true;
      continue;
    }
    _cleanup_free_ char *path = escape_shell_word(file->path);
    text_appendf(script, "flock -n %s %s %s; ", path, file->folder ? "rmdir" : "rm -f", path);
  }
  if (in_scratch) {
    _cleanup_free_ char *path = escape_shell_word(scratch);
    text_appendf(script, "rm -rf %s; ", path);
  }
}

void wrapped_complete(struct wrapped *wrapped, const struct backend_request *request) {
  _cleanup_text_ struct text script = {0};
  if (wrapped->own_placeholders)
    add_placeholders(wrapped, request->plan);
  append_words(&script, &wrapped->end_argv);
  if (script.length > 0)
    text_append(&script, "; ");
  size_t before = script.length;
  append_removals(&script, wrapped, request->scratch);
  if (script.length == before)
    return; /* end_argv, if any, is all */
  script.data[script.length -= strlen("; ")] = '\0';
  strv_clear(&wrapped->end_argv);
  strv_add(&wrapped->end_argv, "/bin/sh");
  strv_add(&wrapped->end_argv, "-c");
  strv_add(&wrapped->end_argv, text_string(&script));
}

/* ---- showing ---- */

static json_t *file_to_json(const struct wrapped_file *file) {
  json_t *object = json_object();
  if (file->path)
    json_set_path(object, "path", file->path);
  else
    json_object_set_new(object, "fd", json_integer(file->fd));
  if (file->folder) {
    json_object_set_new(object, "folder", json_true());
    return object;
  }
  if (file->unreadable)
    json_object_set_new(object, "mode", json_integer(0));
  _cleanup_free_ char *encoded = base64_encode(file->content, file->size);
  json_object_set_new(object, "content_b64", json_string(encoded));
  return object;
}

json_t *wrapped_to_json(const struct wrapped *wrapped) {
  json_t *object = json_object(), *files = json_array(), *fds = json_array();
  json_set_words(object, "argv", wrapped->argv.items, wrapped->argv.count);
  json_set_words(object, "env", wrapped->environment.items, wrapped->environment.count);
  for (size_t i = 0; i < wrapped->file_count; i++)
    json_array_append_new(wrapped->files[i].path ? files : fds, file_to_json(&wrapped->files[i]));
  if (wrapped->status_fd >= 0)
    json_array_append_new(fds, json_pack("{s:i, s:b}", "fd", wrapped->status_fd, "written", true));
  json_object_set_new(object, "fds", fds);
  json_object_set_new(object, "files", files);
  if (wrapped->end_argv.count > 0)
    json_set_words(object, "end_argv", wrapped->end_argv.items, wrapped->end_argv.count);
  return object;
}

/* A descriptor as a here-document would lose bytes; base64 does not. */
static void append_redirections(struct text *text, const struct wrapped *wrapped) {
  for (size_t i = 0; i < wrapped->file_count; i++) {
    const struct wrapped_file *file = &wrapped->files[i];
    if (file->path)
      continue;
    _cleanup_free_ char *encoded = base64_encode(file->content, file->size);
    text_appendf(text, " %d< <(base64 -d <<< %s)", file->fd, encoded);
  }
  if (wrapped->status_fd >= 0)
    text_appendf(text, " %d>/dev/null", wrapped->status_fd);
}

static void append_files(struct text *text, const struct wrapped *wrapped) {
  for (size_t i = 0; i < wrapped->file_count; i++) {
    const struct wrapped_file *file = &wrapped->files[i];
    if (!file->path)
      continue;
    _cleanup_free_ char *path = escape_shell_word(file->path);
    _cleanup_free_ char *encoded = base64_encode(file->content, file->size);
    if (file->folder)
      text_appendf(text, "mkdir -p -m 700 %s && ", path);
    else
      text_appendf(text, "(umask %s; base64 -d <<< %s > %s) && ", file->unreadable ? "777" : "077",
                   file->size > 0 ? encoded : "''", path);
  }
}

char *wrapped_to_text(const struct wrapped *wrapped) {
  struct text text = {0};
  append_files(&text, wrapped);
  text_append(&text, "env -i");
  append_words(&text, &wrapped->environment);
  append_words(&text, &wrapped->argv);
  append_redirections(&text, wrapped);
  if (wrapped->end_argv.count > 0) {
    text_append(&text, "; status=$?;");
    append_words(&text, &wrapped->end_argv);
    text_append(&text, "; (exit $status)");
  }
  text_append_char(&text, '\n');
  return text_steal(&text);
}
