/* Which sessions there are; see registry.h. */
#include "session/registry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "audit/audit.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/path.h"
#include "core/text.h"
#include "session/control.h"
#include "session/events.h"
#include "session/session.h"

#define STATE_LIMIT (4u << 20)

static int fail_runtime(const struct host_context *host, int errnum, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(host->runtime_folder);
  sb_fail(error, SB_CODE_SYSTEM, errnum, "the runtime folder '%s'", shown);
  if (errnum == ENOSPC || errnum == EDQUOT)
    return sb_hint(error, "make room on its file system, or set XDG_RUNTIME_DIR");
  return sb_hint(error, "it must be a folder of yours with mode 0700: remove it, or set "
                        "XDG_RUNTIME_DIR");
}

/* The state is locked and complete before it has a name: whoever can lock a state file knows that
 * its session is dead, at any moment. */
static int write_state(const char *runtime, const json_t *state, int *ret_fd) {
  _cleanup_free_ char *text = json_line(state);
  _cleanup_close_ int fd = open(runtime, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
    return -errno;
  int result = file_write_all(fd, text, strlen(text));
  if (result == 0)
    *ret_fd = steal_fd(&fd);
  return result;
}

/* Somebody who sweeps may remove the folder while it is still empty: then once more. */
static int make_folder(const char *folder, int state) {
  _cleanup_free_ char *path = path_join(folder, "state.json");
  int result = -ENOENT;
  for (int attempt = 0; result == -ENOENT && attempt < 100; attempt++) {
    if (mkdir(folder, 0700) < 0)
      return -errno;
    result = file_name_nameless(state, AT_FDCWD, path);
  }
  return result;
}

json_t *registry_state(const struct registry_subject *subject) {
  const struct strv *command = subject->command;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  json_t *state = json_pack("{s:i, s:s, s:i, s:f, s:s, s:s, s:b}", "version", CONTROL_VERSION,
                            "sid", subject->session_id, "pid", (int)getpid(), "started",
                            (double)now.tv_sec + (double)now.tv_nsec / 1e9, "mode", subject->mode,
                            "backend", subject->backend, "detached", command == NULL);
  json_object_set_new(state, "command",
                      command ? json_string_array(command->items, command->count) : json_null());
  json_set_path(state, "project", subject->host->project);
  return state;
}

int registry_add(const struct host_context *host, const char *session_id, const json_t *state,
                 struct registration *ret_registration, struct sb_error *error) {
  int result = file_private_folder(host->runtime_folder);
  if (result < 0)
    return fail_runtime(host, -result, error);
  struct registration made = {.lock = -1};
  made.folder = xasprintf("%s/.%s", host->runtime_folder, session_id);
  made.final = xasprintf("%s/%s", host->runtime_folder, session_id);
  result = write_state(host->runtime_folder, state, &made.lock);
  if (result == 0)
    result = make_folder(made.folder, made.lock);
  if (result < 0) {
    registry_remove(&made);
    return fail_runtime(host, -result, error);
  }
  *ret_registration = made;
  return 0;
}

int registry_publish(struct registration *registration, struct sb_error *error) {
  if (rename(registration->folder, registration->final) < 0) {
    _cleanup_free_ char *shown = escape_string(registration->final);
    return sb_fail_errno(error, "naming the session's folder '%s'", shown);
  }
  free(registration->folder);
  registration->folder = steal_pointer(registration->final);
  return 0;
}

/* The state last: a folder without it has nothing in it. */
static void remove_folder(const char *folder) {
  static const char *const names[] = {"control.sock", "state.json"};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    _cleanup_free_ char *path = path_join(folder, names[i]);
    unlink(path);
  }
  rmdir(folder);
}

void registry_remove(struct registration *registration) {
  if (registration->folder)
    remove_folder(registration->folder);
  if (registration->lock >= 0)
    close(registration->lock);
  free(registration->folder);
  free(registration->final);
  *registration = REGISTRATION_NONE;
}

enum life { ALIVE, DEAD, UNBORN };

/* The kernel releases the lock, however the monitor ended. A folder without a state is empty: its
 * maker died, or is about to link the state into it. */
static enum life life_of(const char *folder) {
  _cleanup_free_ char *path = path_join(folder, "state.json");
  _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT ? UNBORN : ALIVE;
  return flock(fd, LOCK_SH | LOCK_NB) == 0 ? DEAD : ALIVE;
}

static json_t *load_state(const char *folder) {
  _cleanup_free_ char *path = path_join(folder, "state.json"), *data = NULL;
  size_t length;
  if (file_read_at(AT_FDCWD, path, STATE_LIMIT, &data, &length) < 0)
    return NULL;
  return json_loadb(data, length, 0, NULL);
}

static void add_entry(struct registry *registry, const char *id, char *folder) {
  json_t *state = id[0] == '.' ? NULL : load_state(folder);
  if (!state) {
    free(folder);
    return;
  }
  ARRAY_GROW(registry->entries, registry->count);
  registry->entries[registry->count++] = (struct registry_entry){xstrdup(id), folder, state};
}

/* Ids have eight letters and no hyphens; other folders of ours in the same place have. */
static bool is_id(const struct dirent *entry) {
  const char *name = entry->d_name + (entry->d_name[0] == '.');
  return strlen(name) == SESSION_ID_LENGTH && !strpbrk(name, ".-");
}

static int by_start(const void *left, const void *right) {
  double a =
      json_number_value(json_object_get(((const struct registry_entry *)left)->state, "started"));
  double b =
      json_number_value(json_object_get(((const struct registry_entry *)right)->state, "started"));
  return (a > b) - (a < b);
}

/* Its audit log ends here, however the monitor ended. */
static void bury(const struct host_context *host, const char *name, const char *folder) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_free_ char *home = events_home(host);
  (void)audit_seal(home, name + (name[0] == '.'), &error);
  remove_folder(folder);
}

/* Looks at every session's folder: the dead are removed, the living go to the list, if any. Where
 * everybody may make a folder of that name (/dev/shm), it may be another user's: what he put there
 * would be believed, and what his links lead to would be removed. Returns 0 or a negative errno. */
static int look_at_all(const struct host_context *host, struct registry *registry) {
  int result = file_check_private_folder(host->runtime_folder);
  DIR *folder = result < 0 ? NULL : opendir(host->runtime_folder);
  if (!folder)
    return result == -ENOENT ? 0 : result;
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (!is_id(entry))
      continue;
    char *path = path_join(host->runtime_folder, entry->d_name);
    enum life life = life_of(path);
    if (life == DEAD)
      bury(host, entry->d_name, path);
    else if (life == UNBORN)
      rmdir(path); /* if it is still empty: nothing that came meanwhile may be touched */
    if (life == ALIVE && registry)
      add_entry(registry, entry->d_name, path);
    else
      free(path);
  }
  closedir(folder);
  return 0;
}

void registry_sweep(const struct host_context *host) {
  (void)look_at_all(host, NULL);
}

int registry_load(const struct host_context *host, struct registry *ret_registry,
                  struct sb_error *error) {
  struct registry registry = {0};
  int result = look_at_all(host, &registry);
  if (result < 0)
    return fail_runtime(host, -result, error);
  if (registry.count > 0)
    qsort(registry.entries, registry.count, sizeof *registry.entries, by_start);
  *ret_registry = registry;
  return 0;
}

void registry_clear(struct registry *registry) {
  for (size_t i = 0; i < registry->count; i++) {
    free(registry->entries[i].id);
    free(registry->entries[i].folder);
    json_decref(registry->entries[i].state);
  }
  free(registry->entries);
  *registry = (struct registry){0};
}

/* ---- who watches them all ---- */

/* A lock of the open folder: it ends with whoever holds it, and leaves nothing. To look does not
 * take it, so nobody can be mistaken for one who watches. */
static int open_attendance(const struct host_context *host) {
  return open(host->runtime_folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int registry_attend(const struct host_context *host) {
  struct flock all = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
  if (file_private_folder(host->runtime_folder) < 0)
    return -1;
  _cleanup_close_ int fd = open_attendance(host);
  return fd < 0 || fcntl(fd, F_OFD_SETLK, &all) < 0 ? -1 : steal_fd(&fd);
}

bool registry_is_attended(const struct host_context *host) {
  struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  _cleanup_close_ int fd = open_attendance(host);
  return fd >= 0 && fcntl(fd, F_OFD_GETLK, &all) == 0 && all.l_type != F_UNLCK;
}

/* ---- finding one ---- */

static void list_ids(const struct registry *registry, const char *prefix, struct text *ret_list) {
  for (size_t i = 0; i < registry->count; i++) {
    if (strncmp(registry->entries[i].id, prefix, strlen(prefix)) == 0)
      text_appendf(ret_list, "%s%s", ret_list->length ? ", " : "", registry->entries[i].id);
  }
}

int registry_find(const struct registry *registry, const char *prefix,
                  const struct registry_entry **ret_entry, struct sb_error *error) {
  const struct registry_entry *found = NULL;
  size_t matches = 0;
  for (size_t i = 0; i < registry->count; i++) {
    if (prefix[0] == '\0' || strncmp(registry->entries[i].id, prefix, strlen(prefix)) != 0)
      continue;
    found = &registry->entries[i];
    matches++;
  }
  if (matches == 1) {
    *ret_entry = found;
    return 0;
  }
  _cleanup_text_ struct text list = {0};
  list_ids(registry, matches ? prefix : "", &list);
  _cleanup_free_ char *shown = escape_string(prefix);
  sb_fail(error, SB_CODE_NOT_FOUND, 0,
          matches ? "more than one session starts with '%s'" : "no session '%s'", shown);
  return list.length ? sb_hint(error, "there %s: %s", matches ? "are" : "is", text_string(&list))
                     : sb_hint(error, "none of yours is running: 'sandbox ps' lists them");
}
