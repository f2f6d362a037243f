/* Placeholders for protected names; see placeholders.h. Must never remove anything that somebody
 * put something into, and never follow a symbolic link while making or removing. */
#include "session/placeholders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"
#include "core/text.h"

#define JOURNAL_LIMIT (1024 * 1024)

static int open_parent(const char *path) {
  _cleanup_free_ char *parent = path_parent(path);
  struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
  return (int)syscall(SYS_openat2, AT_FDCWD, parent, &how, sizeof how);
}

static bool is_empty_folder(int parent, const char *name) {
  _cleanup_close_ int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  return fd >= 0 && folder_is_empty(fd);
}

static bool has_content(int parent, const char *name, const char *content) {
  _cleanup_free_ char *data = NULL;
  size_t length;
  return file_read_at(parent, name, 64 * 1024, &data, &length) == 0 && length == strlen(content) &&
         memcmp(data, content, length) == 0;
}

/* A sticky folder with such a name, and empty: nobody else makes those. Write permission stays, or
 * its owner could not move it. */
#define FOLDER_MODE (S_ISVTX | 0755)

static bool matches_at(int parent, const char *name, const char *content) {
  struct stat status;
  if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
    return false;
  if (content)
    return S_ISREG(status.st_mode) && has_content(parent, name, content);
  return S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) && is_empty_folder(parent, name);
}

bool placeholder_matches(const char *path, const char *content) {
  _cleanup_close_ int parent = open_parent(path);
  return parent >= 0 && matches_at(parent, path_base(path), content);
}

/* ---- one placeholder ---- */

/* For file systems without nameless files. */
static int make_named_file(int parent, const char *name, const char *content) {
  _cleanup_close_ int fd =
      openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
  if (fd < 0)
    return -errno;
  return file_write_all(fd, content, strlen(content));
}

/* Gets its name when it is complete: neither another session nor a crash sees half of it. */
static int make_file(int parent, const char *name, const char *content) {
  _cleanup_close_ int fd = openat(parent, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0444);
  if (fd < 0)
    return make_named_file(parent, name, content);
  int result = file_write_all(fd, content, strlen(content));
  return result < 0 ? result : file_name_nameless(fd, parent, name);
}

static int make_at(struct pool *pool, int parent, const char *name, const char *content) {
  int result = pool_take(pool, parent, name, content);
  if (result != -ENOENT)
    return result;
  if (content)
    return make_file(parent, name, content);
  return mkdirat(parent, name, FOLDER_MODE) < 0 ? -errno : 0;
}

/* What another session removed or moved to the pool is not ours any more. */
static bool still_named(int parent, const char *name, int fd) {
  struct stat held, named;
  return fstat(fd, &held) == 0 && fstatat(parent, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

#define FOREIGN_ATTEMPTS 5

/* Makes it or joins one that another session holds. The lock is taken after the name was opened,
 * so the other session may have removed it in between: then once more. */
static int make_and_hold(struct placeholder *placeholder, struct pool *pool, int parent) {
  const char *name = path_base(placeholder->path);
  for (int attempt = 0; attempt < 100; attempt++) {
    int result = make_at(pool, parent, name, placeholder->content);
    if (result < 0 && result != -EEXIST)
      return result;
    /* What does not match may be on its way out: only what stays is somebody else's. */
    if (result == -EEXIST && !matches_at(parent, name, placeholder->content)) {
      if (attempt >= FOREIGN_ATTEMPTS)
        return -EEXIST;
      usleep(1000);
      continue;
    }
    _cleanup_close_ int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT) {
      int saved = errno;
      if (result == 0)
        unlinkat(parent, name, placeholder->content ? 0 : AT_REMOVEDIR);
      return -saved;
    }
    /* Whoever removes one holds it for a moment. Never wait: anybody could lock it for good. */
    bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0;
    if (locked && still_named(parent, name, fd)) {
      placeholder->fd = steal_fd(&fd);
      return 0;
    }
    if (!locked && fd >= 0)
      usleep(10000);
  }
  return -EAGAIN;
}

/* Nearly all placeholders of a session lie in one folder: it is opened once. */
struct parent {
  const char *path; /* of a placeholder in it */
  int fd;
  bool opens; /* whatever its mode says now */
  bool opened;
  mode_t mode; /* that it is to have again, if it was opened */
};

static int set_mode(int fd, mode_t mode) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  return chmod(name, mode);
}

/* The command may have taken the right to write to its folder away (`chmod 500 .`): what we put
 * there would stay for good. Only where the command is gone, and the folder is the caller's. */
static void open_up(struct parent *parent) {
  struct stat status;
  if (parent->fd < 0 || faccessat(parent->fd, "", W_OK | X_OK, AT_EMPTY_PATH | AT_EACCESS) == 0 ||
      fstat(parent->fd, &status) < 0 || status.st_uid != geteuid())
    return;
  parent->mode = status.st_mode & 07777;
  parent->opened = set_mode(parent->fd, parent->mode | S_IWUSR | S_IXUSR) == 0;
}

static void close_parent(struct parent *parent) {
  if (parent->opened)
    (void)!set_mode(parent->fd, parent->mode);
  if (parent->fd >= 0)
    close(parent->fd);
  parent->opened = false;
  parent->fd = -1;
}
#define _cleanup_parent_ __attribute__((cleanup(close_parent)))

static int parent_of(struct parent *parent, const char *path) {
  size_t length = (size_t)(path_base(path) - path);
  if (parent->fd >= 0 && parent->path && strncmp(parent->path, path, length) == 0 &&
      !strchr(parent->path + length, '/'))
    return parent->fd;
  close_parent(parent);
  parent->path = path;
  parent->fd = open_parent(path);
  if (parent->opens)
    open_up(parent);
  return parent->fd;
}

/* Ours, held by nobody else and still as we made it: a folder that is not empty does not go. */
static void release(struct placeholder *placeholder, struct pool *pool, int parent,
                    const char *session_id) {
  const char *name = path_base(placeholder->path);
  bool last = flock(placeholder->fd, LOCK_EX | LOCK_NB) == 0;
  bool same = still_named(parent, name, placeholder->fd);
  bool unchanged = !placeholder->content || has_content(parent, name, placeholder->content);
  bool poolable = !placeholder->content || placeholder->content[0];
  if (last && same && unchanged &&
      (poolable ? pool_give(pool, parent, name, placeholder->content, placeholder->fd, session_id)
                : -1) < 0)
    unlinkat(parent, name, placeholder->content ? 0 : AT_REMOVEDIR);
}

static void remove_unless_held(const char *path, const char *content) {
  _cleanup_close_ int parent = open_parent(path);
  if (parent < 0)
    return;
  const char *name = path_base(path);
  _cleanup_close_ int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || !matches_at(parent, name, content))
    return;
  unlinkat(parent, name, content ? 0 : AT_REMOVEDIR);
}

/* ---- the journal: for each a kind ('d' or 'f'), the path and the content, NUL-terminated ---- */

static char *journal_folder(const struct host_context *host) {
  if (host->state_home) {
    char *folder = path_join(host->state_home, "sandbox/placeholders");
    if (file_make_folders(folder, 0700) == 0 && access(folder, W_OK) == 0)
      return folder;
    free(folder);
  }
  /* No home, or one that cannot be written: the runtime folder serves until the next boot. */
  if (file_private_folder(host->runtime_folder) < 0)
    return NULL;
  char *folder = path_join(host->runtime_folder, "placeholders");
  if (file_private_folder(folder) == 0)
    return folder;
  free(folder);
  return NULL;
}

static void journal_append(struct text *text, const struct placeholder *placeholder) {
  text_append_char(text, placeholder->content ? 'f' : 'd');
  text_append_bytes(text, placeholder->path, strlen(placeholder->path) + 1);
  const char *content = placeholder->content ? placeholder->content : "";
  text_append_bytes(text, content, strlen(content) + 1);
}

/* A journal is locked and complete before it has its name: recovery, which may run in another
 * session at any moment, sees all of it or nothing, and a crash leaves nothing unfinished. */
struct draft {
  int fd;
  char *name; /* NULL where the file system has nameless files */
};

static int open_draft(const char *folder, const char *session_id, struct draft *ret_draft) {
  int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  char *name = NULL;
  if (fd < 0) {
    name = xasprintf("%s/.%s", folder, session_id);
    fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  }
  *ret_draft = (struct draft){fd, name};
  return fd < 0 || flock(fd, LOCK_EX) < 0 ? -errno : 0;
}

static int publish_draft(const struct draft *draft, const char *path) {
  if (!draft->name)
    return file_name_nameless(draft->fd, AT_FDCWD, path);
  return rename(draft->name, path) < 0 ? -errno : 0;
}

static int write_entries(const struct placeholders *placeholders, int fd) {
  _cleanup_text_ struct text text = {0};
  for (size_t i = 0; i < placeholders->count; i++)
    journal_append(&text, &placeholders->items[i]);
  return file_write_all(fd, text_string(&text), text.length);
}

static int write_journal(struct placeholders *placeholders, const struct host_context *host,
                         const char *session_id, struct sb_error *error) {
  _cleanup_free_ char *folder = journal_folder(host);
  if (!folder) {
    sb_fail_errno(error, "no folder to keep the list of placeholders in");
    return sb_hint(error, "make $XDG_STATE_HOME or $XDG_RUNTIME_DIR a writable folder of yours");
  }
  placeholders->journal = path_join(folder, session_id);
  struct draft draft;
  int result = open_draft(folder, session_id, &draft);
  placeholders->journal_fd = draft.fd;
  if (result == 0)
    result = write_entries(placeholders, draft.fd);
  if (result == 0)
    result = publish_draft(&draft, placeholders->journal);
  if (result < 0 && draft.name)
    unlink(draft.name);
  free(draft.name);
  if (result == 0)
    return 0;
  _cleanup_free_ char *shown = escape_string(placeholders->journal);
  sb_fail(error, SB_CODE_SYSTEM, -result, "writing '%s'", shown);
  return sb_hint(error, "make room there, or let $XDG_STATE_HOME name another folder");
}

static void recover_entries(const char *data, size_t length) {
  const char *end = data + length;
  while (data < end) {
    const char *path = data + 1, *content = path + strlen(path) + 1;
    if (content >= end || path[0] != '/')
      return; /* cut off while it was written; what was made is matched by the next start */
    remove_unless_held(path, data[0] == 'f' ? content : NULL);
    data = content + strlen(content) + 1;
  }
}

static void recover_journal(int folder, const char *name) {
  _cleanup_close_ int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
    return; /* its session is alive */
  _cleanup_free_ char *data = NULL;
  size_t length;
  if (file_read_at(folder, name, JOURNAL_LIMIT, &data, &length) == 0)
    recover_entries(data, length);
  unlinkat(folder, name, 0);
}

void placeholders_recover(const struct host_context *host) {
  _cleanup_free_ char *folder = journal_folder(host);
  DIR *entries = folder ? opendir(folder) : NULL;
  if (!entries)
    return;
  for (struct dirent *entry; (entry = readdir(entries));) {
    if (entry->d_name[0] != '.')
      recover_journal(dirfd(entries), entry->d_name);
  }
  closedir(entries);
}

/* ---- all of them ---- */

static void collect(struct placeholders *placeholders, const struct plan *plan) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    bool file = operation->kind == OPERATION_PLACEHOLDER_FILE;
    if (!file && operation->kind != OPERATION_PLACEHOLDER_FOLDER)
      continue;
    ARRAY_GROW(placeholders->items, placeholders->count);
    placeholders->items[placeholders->count++] = (struct placeholder){
        .path = xstrdup(operation->path),
        .content = file ? xstrdup(operation->source ? operation->source : "") : NULL,
        .fd = -1,
    };
  }
}

static int make_all(struct placeholders *placeholders, size_t first, struct sb_error *error) {
  _cleanup_parent_ struct parent parent = {.fd = -1};
  for (size_t i = first; i < placeholders->count; i++) {
    struct placeholder *placeholder = &placeholders->items[i];
    int fd = parent_of(&parent, placeholder->path);
    int result = fd < 0 ? -errno : make_and_hold(placeholder, &placeholders->pool, fd);
    if (result == 0)
      continue;
    _cleanup_free_ char *path = escape_string(placeholder->path);
    sb_fail(error, SB_CODE_SYSTEM, -result, "reserving the protected name '%s'", path);
    return result == -EMFILE
               ? sb_hint(error, "allow more open files: ulimit -n 256")
               : sb_hint(error,
                         "if it appeared just now, run the command again; or --unprotect it");
  }
  return 0;
}

int placeholders_create(struct placeholders *ret_placeholders, const struct plan *plan,
                        const struct host_context *host, const char *session_id,
                        struct sb_error *error) {
  struct placeholders made = PLACEHOLDERS_NONE;
  collect(&made, plan);
  if (made.count > 0) {
    made.pool = pool_open(host->state_home);
    if (write_journal(&made, host, session_id, error) < 0 || make_all(&made, 0, error) < 0) {
      pool_close(&made.pool); /* removing needs descriptors, which may be what we lack */
      placeholders_remove(&made);
      return -1;
    }
  }
  *ret_placeholders = made;
  return 0;
}

static int hold_adopted(struct placeholder *placeholder) {
  _cleanup_close_ int parent = open_parent(placeholder->path);
  if (parent < 0)
    return -errno;
  const char *name = path_base(placeholder->path);
  _cleanup_close_ int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0)
    return -errno;
  if (!matches_at(parent, name, placeholder->content))
    return -ESTALE; /* the host has put something there by now */
  placeholder->fd = steal_fd(&fd);
  return 0;
}

static int journal_more(struct placeholders *placeholders, size_t first,
                        const struct host_context *host, const char *session_id,
                        struct sb_error *error) {
  _cleanup_text_ struct text text = {0};
  if (!placeholders->journal)
    return write_journal(placeholders, host, session_id, error);
  for (size_t i = first; i < placeholders->count; i++)
    journal_append(&text, &placeholders->items[i]);
  int result = file_write_all(placeholders->journal_fd, text_string(&text), text.length);
  return result < 0 ? sb_fail(error, SB_CODE_SYSTEM, -result, "writing the list of placeholders")
                    : 0;
}

int placeholders_extend(struct placeholders *placeholders, const struct plan *plan,
                        const struct host_context *host, const char *session_id,
                        struct sb_error *error) {
  size_t first = placeholders->count;
  collect(placeholders, plan);
  if (placeholders->count == first)
    return 0;
  return journal_more(placeholders, first, host, session_id, error) < 0 ||
                 make_all(placeholders, first, error) < 0
             ? -1
             : 0;
}

int placeholders_adopt(struct placeholders *placeholders, const struct host_context *host,
                       const char *session_id, const char *path, const char *content) {
  struct placeholder adopted = {.path = xstrdup(path), .fd = -1};
  adopted.content = content ? xstrdup(content) : NULL;
  int result = hold_adopted(&adopted);
  if (result < 0) {
    free(adopted.path);
    free(adopted.content);
    return result;
  }
  ARRAY_GROW(placeholders->items, placeholders->count);
  placeholders->items[placeholders->count++] = adopted;
  _cleanup_error_ struct sb_error error = {0};
  return journal_more(placeholders, placeholders->count - 1, host, session_id, &error) < 0 ? -EIO
                                                                                           : 0;
}

static void let_go(struct placeholders *placeholders, struct placeholder *placeholder,
                   struct parent *parent) {
  if (placeholder->fd >= 0) {
    release(placeholder, &placeholders->pool, parent_of(parent, placeholder->path),
            path_base(placeholders->journal));
    close(placeholder->fd);
  }
  placeholder->fd = -1;
}

void placeholders_drop(struct placeholders *placeholders, const char *path) {
  _cleanup_parent_ struct parent parent = {.fd = -1};
  for (size_t i = placeholders->count; i-- > 0;) {
    if (strcmp(placeholders->items[i].path, path) == 0)
      let_go(placeholders, &placeholders->items[i], &parent);
  }
}

void placeholders_remove(struct placeholders *placeholders) {
  _cleanup_parent_ struct parent parent = {.fd = -1, .opens = true};
  /* Backwards: what was made inside another placeholder's neighbour goes first. */
  for (size_t i = placeholders->count; i-- > 0;)
    let_go(placeholders, &placeholders->items[i], &parent);
  for (size_t i = 0; i < placeholders->count; i++) {
    free(placeholders->items[i].path);
    free(placeholders->items[i].content);
  }
  free(placeholders->items);
  if (placeholders->journal && placeholders->journal_fd >= 0)
    unlink(placeholders->journal);
  if (placeholders->journal_fd >= 0)
    close(placeholders->journal_fd);
  free(placeholders->journal);
  pool_close(&placeholders->pool);
  *placeholders = PLACEHOLDERS_NONE;
}
