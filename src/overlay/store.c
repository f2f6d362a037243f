/* The folders behind a session's overlays; see store.h. */
#include "overlay/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "changes/changes.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/path.h"
#include "overlay/remove.h"
#include "session/lookup.h"

#define METADATA_NAME "overlay.json"
#define LOCK_NAME     "lock"

enum { METADATA_VERSION = 1, METADATA_SIZE_LIMIT = 4 << 20 };

static char *overlays_folder(const struct host_context *host) {
  if (!host->state_home)
    return xasprintf("%s/overlays", host->runtime_folder);
  return xasprintf("%s/sandbox/overlays", host->state_home);
}

char *overlay_folder(const struct host_context *host, const char *session_id) {
  _cleanup_free_ char *all = overlays_folder(host);
  return path_join(all, session_id);
}

void overlay_clear(struct overlay *overlay) {
  free(overlay->folder);
  free(overlay->project);
  strv_clear(&overlay->command);
  strv_clear(&overlay->intent.only);
  for (size_t i = 0; i < overlay->layer_count; i++) {
    free(overlay->layers[i].path);
    free(overlay->layers[i].folder);
  }
  free(overlay->layers);
  *overlay = (struct overlay){0};
}

static void add_layer(struct overlay *overlay, char *path, char *folder) {
  ARRAY_GROW(overlay->layers, overlay->layer_count);
  overlay->layers[overlay->layer_count++] = (struct overlay_layer){path, folder};
}

/* ---- metadata ---- */

static const char *const state_names[OVERLAY_STATE_COUNT] = {"kept", "applying", "applied"};

const char *overlay_state_name(enum overlay_state state) {
  return state_names[state];
}

static json_t *layers_to_json(const struct overlay *overlay) {
  json_t *layers = json_array();
  for (size_t i = 0; i < overlay->layer_count; i++) {
    json_t *layer = json_object();
    json_set_path(layer, "path", overlay->layers[i].path);
    json_set_string(layer, "folder", path_base(overlay->layers[i].folder));
    json_array_append_new(layers, layer);
  }
  return layers;
}

static json_t *intent_to_json(const struct overlay_intent *intent) {
  json_t *object = json_object(), *only = json_array();
  json_object_set_new(object, "force", json_boolean(intent->force));
  json_object_set_new(object, "include_protected", json_boolean(intent->include_protected));
  STRV_FOREACH (path, &intent->only) {
    json_t *wrapped = json_object();
    json_set_path(wrapped, "path", *path);
    json_array_append_new(only, wrapped);
  }
  json_object_set_new(object, "only", only);
  return object;
}

static json_t *overlay_to_json(const struct overlay *overlay) {
  json_t *object = json_object();
  json_object_set_new(object, "version", json_integer(METADATA_VERSION));
  json_set_string(object, "session", overlay->id);
  json_set_string(object, "state", state_names[overlay->state]);
  json_set_path(object, "project", overlay->project);
  json_object_set_new(object, "command",
                      json_string_array(overlay->command.items, overlay->command.count));
  json_object_set_new(object, "started", json_integer(overlay->started.tv_sec));
  json_object_set_new(object, "started_ns", json_integer(overlay->started.tv_nsec));
  json_object_set_new(object, "layers", layers_to_json(overlay));
  json_object_set_new(object, "apply", intent_to_json(&overlay->intent));
  return object;
}

static int save(const struct overlay *overlay, struct sb_error *error) {
  json_t *json = overlay_to_json(overlay);
  _cleanup_free_ char *line = json_line(json), *path = path_join(overlay->folder, METADATA_NAME);
  json_decref(json);
  int result = file_replace_at(AT_FDCWD, path, line, strlen(line), 0600);
  if (result == 0)
    return 0;
  _cleanup_free_ char *shown = escape_string(path);
  return sb_fail(error, SB_CODE_SYSTEM, -result, "writing '%s'", shown);
}

int overlay_set_state(struct overlay *overlay, enum overlay_state state, struct sb_error *error) {
  overlay->state = state;
  return save(overlay, error);
}

static bool read_layers(struct overlay *overlay, const json_t *layers) {
  for (size_t i = 0; i < json_array_size(layers); i++) {
    const json_t *layer = json_array_get(layers, i);
    const char *folder = json_string_value(json_object_get(layer, "folder"));
    char *path = json_get_path(layer, "path");
    if (!path || path[0] != '/' || !folder || !*folder ||
        strspn(folder, "0123456789") != strlen(folder)) {
      free(path);
      return false;
    }
    add_layer(overlay, path, path_join(overlay->folder, folder));
  }
  return overlay->layer_count > 0;
}

static void read_intent(struct overlay_intent *intent, const json_t *json) {
  intent->force = json_is_true(json_object_get(json, "force"));
  intent->include_protected = json_is_true(json_object_get(json, "include_protected"));
  const json_t *only = json_object_get(json, "only");
  for (size_t i = 0; i < json_array_size(only); i++) {
    char *path = json_get_path(json_array_get(only, i), "path");
    if (path)
      strv_take(&intent->only, path);
  }
}

void overlay_forget_intent(struct overlay *overlay) {
  strv_clear(&overlay->intent.only);
  overlay->intent = (struct overlay_intent){0};
}

static bool read_state(struct overlay *overlay, const char *name) {
  for (size_t i = 0; name && i < OVERLAY_STATE_COUNT; i++)
    if (strcmp(name, state_names[i]) == 0) {
      overlay->state = (enum overlay_state)i;
      return true;
    }
  return false;
}

static bool read_metadata(struct overlay *overlay, const json_t *json) {
  if (json_integer_value(json_object_get(json, "version")) != METADATA_VERSION)
    return false;
  overlay->project = json_get_path(json, "project");
  overlay->started.tv_sec = json_integer_value(json_object_get(json, "started"));
  overlay->started.tv_nsec = (long)json_integer_value(json_object_get(json, "started_ns"));
  const json_t *words = json_object_get(json, "command");
  for (size_t i = 0; i < json_array_size(words); i++) {
    const char *word = json_string_value(json_array_get(words, i));
    strv_add(&overlay->command, word ? word : "");
  }
  read_intent(&overlay->intent, json_object_get(json, "apply"));
  return read_state(overlay, json_string_value(json_object_get(json, "state"))) &&
         read_layers(overlay, json_object_get(json, "layers"));
}

/* The metadata goes last: without it nothing is left but the folder, or one was never finished. */
static bool was_emptied(const struct overlay *overlay) {
  _cleanup_free_ char *first = path_join(overlay->folder, "0");
  return faccessat(AT_FDCWD, first, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
}

static int load_metadata(struct overlay *overlay, struct sb_error *error) {
  _cleanup_free_ char *path = path_join(overlay->folder, METADATA_NAME), *data = NULL;
  _cleanup_free_ char *shown = escape_string(path);
  size_t length;
  int result = file_read_at(AT_FDCWD, path, METADATA_SIZE_LIMIT, &data, &length);
  if (result == -ENOENT && was_emptied(overlay)) {
    overlay->state = OVERLAY_APPLIED;
    return 0;
  }
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "reading '%s'", shown);
  json_t *json = json_loadb(data, length, 0, NULL);
  bool is_valid = json && read_metadata(overlay, json);
  json_decref(json);
  return is_valid
             ? 0
             : sb_fail(error, SB_CODE_CONFLICT, 0, "'%s' is not what this version can read", shown);
}

int overlay_open(const struct host_context *host, const char *prefix, struct overlay *ret_overlay,
                 struct sb_error *error) {
  _cleanup_overlay_ struct overlay overlay = {0};
  _cleanup_free_ char *all = overlays_folder(host);
  if (session_find(all, "", prefix, "overlay", overlay.id, error) < 0)
    return -1;
  overlay.folder = path_join(all, overlay.id);
  if (load_metadata(&overlay, error) < 0)
    return sb_hint(error, "drop the overlay with: sandbox discard %s", overlay.id);
  *ret_overlay = overlay;
  overlay = (struct overlay){0};
  return 0;
}

void overlay_list(const struct host_context *host, struct strv *ret_ids) {
  _cleanup_free_ char *all = overlays_folder(host);
  session_ids_in(all, "", ret_ids);
}

/* ---- the lock ---- */

static int take_lock(const char *folder) {
  _cleanup_free_ char *path = path_join(folder, LOCK_NAME);
  _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
    return -errno;
  return steal_fd(&fd);
}

int overlay_lock(const struct overlay *overlay, struct sb_error *error) {
  int fd = take_lock(overlay->folder);
  if (fd >= 0)
    return fd;
  if (fd != -EWOULDBLOCK)
    return sb_fail(error, SB_CODE_SYSTEM, -fd, "locking the overlay of session %s", overlay->id);
  sb_fail(error, SB_CODE_CONFLICT, 0, "the overlay of session %s is in use", overlay->id);
  return sb_hint(error, "wait until the session, or another `sandbox apply`, has ended");
}

/* ---- making it ---- */

static int fail_to_make(const char *path, int result, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(path);
  sb_fail(error, SB_CODE_SYSTEM, -result, "making the overlay's folder '%s'", shown);
  return sb_hint(error, "make $XDG_STATE_HOME a writable folder");
}

/* Where there are none, an overlay can be mounted, but a folder in it cannot be removed: the kernel
 * notes in one that what is below does not show. */
static int need_attributes(const char *upper, struct sb_error *error) {
  static const char name[] = "user.sandbox";
  if (setxattr(upper, name, "", 0, 0) == 0) {
    (void)removexattr(upper, name);
    return 0;
  }
  if (errno != EOPNOTSUPP)
    return fail_to_make(upper, -errno, error);
  _cleanup_free_ char *shown = escape_string(upper);
  sb_fail(error, SB_CODE_UNSUPPORTED, 0,
          "the file system of '%s' cannot hold an overlay: it has no extended attributes", shown);
  return sb_hint(error,
                 "set $XDG_STATE_HOME to a folder on a disk; tmpfs will do from Linux 6.6 on");
}

static int make_pair(const struct operation *operation, struct sb_error *error) {
  static const char *const names[] = {"upper", "work"};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    _cleanup_free_ char *path = path_join(operation->upper, names[i]);
    int result = file_make_folders(path, 0700);
    if (result < 0)
      return fail_to_make(path, result, error);
  }
  /* The root of the overlay looks like its upper folder: same mode as the original. */
  struct stat status;
  _cleanup_free_ char *upper = path_join(operation->upper, "upper");
  if (stat(operation->path, &status) == 0)
    chmod(upper, status.st_mode & 0777);
  return need_attributes(upper, error);
}

static int make_pairs(struct overlay *overlay, const struct plan *plan, struct sb_error *error) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    if (operation->kind != OPERATION_OVERLAY)
      continue;
    if (make_pair(operation, error) < 0)
      return -1;
    add_layer(overlay, xstrdup(operation->path), xstrdup(operation->upper));
  }
  return 0;
}

int overlay_create(const struct host_context *host, const struct plan *plan, const char *session_id,
                   struct sb_error *error) {
  _cleanup_overlay_ struct overlay overlay = {.folder = overlay_folder(host, session_id),
                                              .project = xstrdup(host->project)};
  memcpy(overlay.id, session_id, SESSION_ID_LENGTH);
  STRV_FOREACH (word, &plan->arguments)
    strv_add(&overlay.command, *word);
  int result = file_make_folders(overlay.folder, 0700);
  if (result < 0)
    return fail_to_make(overlay.folder, result, error);
  _cleanup_close_ int lock = overlay_lock(&overlay, error);
  if (lock < 0 || make_pairs(&overlay, plan, error) < 0)
    return -1;
  overlay.started = change_clock_tick();
  return save(&overlay, error) < 0 ? -1 : steal_fd(&lock);
}

void overlay_settle(const char *folder) {
  _cleanup_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0)
    syncfs(fd);
}

/* ---- removing it ---- */

/* The metadata goes last: what is left of an interrupted removal can still be named. */
int overlay_remove(const char *folder) {
  return tree_remove(AT_FDCWD, folder, METADATA_NAME);
}
