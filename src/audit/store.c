/* Appending to audit logs; see store.h. A line is written whole or not at all: what a full disk cut
 * off is taken back, what a crash cut off is marked by the next writer. */
#include "audit/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/audit.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"

/* Of a line, without its fields. */
enum { FRAME_MAX = 512 };

char *audit_folder(const char *state_home) {
  return xasprintf("%s/sandbox/audit", state_home);
}

int audit_folder_open(const char *state_home, bool create) {
  _cleanup_free_ char *path = audit_folder(state_home);
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0 || errno != ENOENT || !create)
    return fd < 0 ? -errno : fd;
  int result = file_make_folders(path, 0700);
  if (result < 0)
    return result;
  fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return fd < 0 ? -errno : fd;
}

int audit_file_open(struct audit_file *file, unsigned segment, int flags) {
  char name[AUDIT_NAME_MAX + 32];
  audit_segment_name(file->name, segment, name);
  _cleanup_close_ int fd =
      openat(file->folder, name, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) < 0)
    return -errno;
  if (!S_ISREG(status.st_mode))
    return -EINVAL;
  /* Held while we live: who can take it knows that the writer is gone. Of a file that we may make
   * there is no other writer, but somebody may be finding that out this moment. */
  if (flags & O_CREAT ? file_lock(fd, LOCK_EX) < 0 : flock(fd, LOCK_EX | LOCK_NB) < 0)
    return -EBUSY;
  if (file->fd >= 0)
    close(file->fd);
  file->fd = steal_fd(&fd);
  file->segment = segment;
  file->size = (uint64_t)status.st_size;
  file->allocated = (uint64_t)status.st_blocks * 512;
  return 0;
}

/* What cannot be had is not needed yet: writing tells. */
static void reserve(struct audit_file *file) {
  if (file->size + AUDIT_RESERVE / 2 <= file->allocated)
    return;
  if (fallocate(file->fd, FALLOC_FL_KEEP_SIZE, (off_t)file->size, AUDIT_RESERVE) == 0)
    file->allocated = file->size + AUDIT_RESERVE;
  else if (errno == EOPNOTSUPP)
    file->allocated = UINT64_MAX;
}

void audit_file_trim(struct audit_file *file) {
  if (file->fd >= 0 && file->allocated > file->size)
    (void)!ftruncate(file->fd, (off_t)file->size);
}

static int append_bytes(struct audit_file *file, const char *bytes, size_t length) {
  ssize_t written;
  do
    written = write(file->fd, bytes, length);
  while (written < 0 && errno == EINTR);
  if (written == (ssize_t)length) {
    file->size += length;
    return 0;
  }
  /* A full disk takes a part of a line: take it back, so that the log stays whole. */
  int result = written < 0 ? -errno : -ENOSPC;
  if (written > 0)
    (void)!ftruncate(file->fd, (off_t)file->size);
  return result;
}

/* `end` ends the line before, if that was torn: in one go with the line that explains it. */
static int append_after(struct audit_file *file, const char *end, const char *session,
                        const char *event, json_t *fields) {
  reserve(file);
  struct audit_position next = file->position;
  size_t length;
  _cleanup_free_ char *line = audit_line_format(&next, session, event, fields, &length);
  _cleanup_free_ char *whole = xasprintf("%s%s", end, line);
  int result = append_bytes(file, whole, strlen(end) + length);
  if (result == 0)
    file->position = next;
  return result;
}

static int append_event(struct audit_file *file, const char *session, const char *event,
                        json_t *fields) {
  return append_after(file, "", session, event, fields);
}

/* Whoever calls us with a small `ulimit -f` gets small files. */
static bool is_full(const struct audit_file *file, json_t *fields) {
  struct rlimit limit;
  if (file->size >= file->segment_limit)
    return true;
  if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
    return false;
  size_t line = json_dumpb(fields, NULL, 0, JSON_COMPACT | JSON_ENSURE_ASCII) + FRAME_MAX;
  return file->size > 0 && file->size + line > limit.rlim_cur;
}

/* The first line of a further file names the one before; the hashes simply go on. */
static int begin_further(struct audit_file *file, const char *session) {
  char previous[AUDIT_NAME_MAX + 32];
  if (file->segment <= 1 || file->size > 0)
    return 0;
  audit_segment_name(file->name, file->segment - 1, previous);
  return append_event(file, session, "log.continue", json_pack("{s:s}", "after", previous));
}

int audit_file_append(struct audit_file *file, const char *session, const char *event,
                      json_t *fields) {
  int result = is_full(file, fields) ? audit_file_open_next(file, O_CREAT) : 0;
  if (result == 0)
    result = begin_further(file, session);
  if (result == 0)
    return append_event(file, session, event, fields);
  json_decref(fields);
  return result;
}

/* ---- after a crash ---- */

static int read_from(int fd, uint64_t from, char **ret_data, size_t *ret_length) {
  struct stat status;
  if (fstat(fd, &status) < 0)
    return -errno;
  size_t wanted = (uint64_t)status.st_size > from ? (size_t)((uint64_t)status.st_size - from) : 0;
  if (wanted > AUDIT_READ_MAX)
    return -EFBIG;
  _cleanup_free_ char *data = xmalloc(wanted + 1);
  size_t length = 0;
  while (length < wanted) {
    ssize_t got = pread(fd, data + length, wanted - length, (off_t)(from + length));
    if (got <= 0)
      break;
    length += (size_t)got;
  }
  *ret_data = steal_pointer(data);
  *ret_length = length;
  return 0;
}

/* Whole lines that follow the position move it on. Returns the bytes of them and of what does not
 * follow; what is left is a torn line. */
static size_t follow_lines(struct audit_file *file, const char *data, size_t length) {
  size_t done = 0;
  bool follows = true;
  for (const char *end; (end = memchr(data + done, '\n', length - done));
       done = (size_t)(end + 1 - data)) {
    json_t *json = NULL;
    char hash[SHA256_HEX_SIZE];
    struct audit_position next = file->position;
    follows = follows && !audit_line_parse(data + done, (size_t)(end - data) - done, &json, hash) &&
              !audit_line_follows(&next, json, hash);
    if (follows)
      file->position = next;
    json_decref(json);
  }
  return done;
}

static int mark_torn(struct audit_file *file, const char *bytes, size_t length) {
  char hash[SHA256_HEX_SIZE];
  sha256_hex(bytes, length, hash);
  return append_after(file, "\n", file->session, "log.torn",
                      json_pack("{s:I, s:s}", "bytes", (json_int_t)length, "sha256", hash));
}

int audit_file_catch_up(struct audit_file *file, uint64_t from, bool *ret_torn) {
  _cleanup_free_ char *data = NULL;
  size_t length = 0;
  int result = read_from(file->fd, from, &data, &length);
  if (result < 0)
    return result;
  size_t done = follow_lines(file, data, length);
  *ret_torn = done < length;
  return done < length ? mark_torn(file, data + done, length - done) : 0;
}

int audit_file_open_next(struct audit_file *file, int flags) {
  struct audit_file next = *file;
  bool torn;
  next.fd = -1;
  int result = audit_file_open(&next, file->segment + 1, flags);
  if (result < 0)
    return result;
  audit_file_trim(file);
  close(file->fd);
  *file = next;
  return audit_file_catch_up(file, 0, &torn);
}

int audit_file_reread(struct audit_file *file, unsigned last) {
  bool torn;
  int result = 0;
  for (unsigned segment = 1; result == 0 && segment <= last; segment++) {
    result = audit_file_open(file, segment, 0);
    if (result == 0)
      result = audit_file_catch_up(file, 0, &torn);
  }
  return result;
}

unsigned audit_last_segment(int folder, const char *name) {
  char file[AUDIT_NAME_MAX + 32];
  struct stat status;
  for (unsigned segment = 1;; segment++) {
    audit_segment_name(name, segment, file);
    if (fstatat(folder, file, &status, AT_SYMLINK_NOFOLLOW) < 0)
      return segment - 1;
  }
}

int audit_fail_write(struct sb_error *error, int errnum) {
  sb_fail(error, SB_CODE_SYSTEM, errnum, "writing the audit log");
  if (errnum == ENOSPC || errnum == EDQUOT)
    return sb_hint(error,
                   "make room on the disk of $XDG_STATE_HOME (~/.local/state), or remove old "
                   "logs: sandbox audit --prune 30d");
  if (errnum == EBUSY)
    return sb_hint(error, "another sandbox process is stopped while it writes: continue or end it");
  return sb_hint(error,
                 "the folder sandbox/audit in $XDG_STATE_HOME (~/.local/state) must be yours "
                 "and writable");
}
