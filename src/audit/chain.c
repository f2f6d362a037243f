/* The user's chain: which logs there are, how each one ended, and what the user did outside of a
 * session. Many sessions append to it, one at a time. `chain.head` says where it ends, so that a
 * chain that was cut does not pass for a shorter one. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/audit.h"
#include "audit/store.h"
#include "core/cleanup.h"
#include "core/file.h"

#define HEAD_FILE "chain.head"
enum { HEAD_SIZE = 20 + 1 + 64 + 1 + 10 + 1 + 20 + 1 };

static void read_head(int fd, struct chain_head *ret_head) {
  char text[HEAD_SIZE + 1] = "";
  struct chain_head head = {0};
  unsigned long long count, size;
  *ret_head = (struct chain_head){0};
  if (pread(fd, text, HEAD_SIZE, 0) != HEAD_SIZE ||
      sscanf(text, "%20llu %64[0-9a-f] %10u %20llu", &count, head.position.head, &head.segment,
             &size) != 4)
    return;
  head.position.count = count;
  head.size = size;
  *ret_head = head;
}

static int write_head(int fd, const struct audit_file *file) {
  char text[HEAD_SIZE + 1];
  snprintf(text, sizeof text, "%020llu %s %010u %020llu\n",
           (unsigned long long)file->position.count, file->position.head, file->segment,
           (unsigned long long)file->size);
  ssize_t written = pwrite(fd, text, HEAD_SIZE, 0);
  return written < 0 ? -errno : written < HEAD_SIZE ? -ENOSPC : 0;
}

/* There are lines but nothing says where they should end: go on after the last one, and say so. */
static int adopt(struct audit_file *file) {
  file->position = audit_position_start(file->name);
  close(file->fd); /* it holds the lock that opening takes */
  file->fd = -1;
  int result = audit_file_reread(file, file->segment);
  if (result < 0)
    return result;
  if (file->position.count <= 1)
    return 0; /* the very first writer did not get to write it */
  return audit_file_append(file, file->session, "chain.adopted",
                           json_pack("{s:s}", "reason", HEAD_FILE " was missing"));
}

/* A chain that is shorter than it was is continued where it should have ended, so that the gap
 * shows. */
static int continue_after_cut(struct audit_file *file) {
  char last = '\n';
  if (file->size > 0 && pread(file->fd, &last, 1, (off_t)file->size - 1) == 1 && last != '\n') {
    if (write(file->fd, "\n", 1) != 1)
      return -errno;
    file->size++;
  }
  return 0;
}

/* Files that were begun since the head was written: that is the last thing a writer does. */
static int open_newer(struct audit_file *file) {
  int result;
  do
    result = audit_file_open_next(file, 0);
  while (result == 0);
  return result == -ENOENT ? 0 : result;
}

static int open_chain(struct audit_file *file, const struct chain_head *head) {
  unsigned segment = head->segment ? head->segment : audit_last_segment(file->folder, AUDIT_CHAIN);
  int result = audit_file_open(file, segment ? segment : 1, O_CREAT);
  if (result < 0)
    return result;
  if (head->segment == 0)
    return file->size > 0 ? adopt(file) : 0;
  bool torn;
  file->position = head->position;
  if (file->size > head->size)
    result = audit_file_catch_up(file, head->size, &torn);
  else if (file->size < head->size)
    result = continue_after_cut(file);
  return result < 0 ? result : open_newer(file);
}

int audit_chain_append(int folder, const char *session, const char *event, json_t *fields) {
  struct audit_file file = {.folder = folder,
                            .fd = -1,
                            .name = AUDIT_CHAIN,
                            .session = AUDIT_NO_SESSION,
                            .segment_limit = AUDIT_SEGMENT_BYTES,
                            .position = audit_position_start(AUDIT_CHAIN)};
  struct chain_head head;
  _cleanup_close_ int lock =
      openat(folder, HEAD_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  int result = lock < 0 ? -errno : file_lock(lock, LOCK_EX);
  if (result == 0) {
    read_head(lock, &head);
    result = open_chain(&file, &head);
  }
  /* What others died before saying is said first: the head is never behind by two of them. And the
   * very first has its room before the lines take it. */
  if (result == 0 && (head.segment == 0 || file.position.count > head.position.count))
    result = write_head(lock, &file);
  if (result == 0)
    result = audit_file_append(&file, session, event, fields);
  else
    json_decref(fields);
  if (result == 0)
    (void)write_head(lock, &file); /* if not, the next writer finds one line more, and follows it */
  if (file.fd >= 0)
    close(file.fd);
  return result;
}

void audit_chain_head(int folder, struct chain_head *ret_head) {
  _cleanup_close_ int lock = openat(folder, HEAD_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  *ret_head = (struct chain_head){0};
  if (lock < 0)
    return;
  (void)file_lock(lock, LOCK_SH); /* reading without it is better than not reading */
  read_head(lock, ret_head);
}

int audit_note(const char *state_home, const char *event, json_t *fields, struct sb_error *error) {
  _cleanup_close_ int folder = audit_folder_open(state_home, true);
  if (folder < 0) {
    json_decref(fields);
    return audit_fail_write(error, -folder);
  }
  int result = audit_chain_append(folder, AUDIT_NO_SESSION, event, fields);
  return result < 0 ? audit_fail_write(error, -result) : 0;
}
