/* Whose turn it is at a terminal; see terminal-turn.h. The lock is in the folder that no session
 * can see, and not on the terminal itself: a workload may hold that, and could keep everybody
 * waiting. */
#include "session/terminal-turn.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"

/* The terminal's own number, also where it was opened as /dev/tty. */
static bool find_terminal(off_t *ret_place) {
  for (int fd = 0; fd < 3; fd++) {
    unsigned device;
    if (ioctl(fd, TIOCGDEV, &device) == 0) {
      *ret_place = (off_t)device;
      return true;
    }
  }
  return false;
}

static int open_lock(const char *path) {
  return open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static int watch_lock(const char *path) {
  int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (fd >= 0)
    inotify_add_watch(fd, path, IN_MODIFY);
  return fd;
}

struct terminal_turn terminal_turn_open(const char *state_home) {
  struct terminal_turn turn = TERMINAL_TURN_ALONE;
  if (!state_home || !find_terminal(&turn.place))
    return turn;
  _cleanup_free_ char *folder = path_join(state_home, "sandbox");
  _cleanup_free_ char *path = path_join(folder, "terminals.lock");
  turn.fd = open_lock(path);
  if (turn.fd < 0 && errno == ENOENT && file_make_folders(folder, 0700) == 0)
    turn.fd = open_lock(path);
  turn.news = turn.fd < 0 ? -1 : watch_lock(path);
  return turn;
}

void terminal_turn_close(struct terminal_turn *turn) {
  if (turn->fd >= 0)
    close(turn->fd);
  if (turn->news >= 0)
    close(turn->news);
  *turn = TERMINAL_TURN_ALONE;
}

/* Locks that belong to the open file: they end with us, however we end. */
static bool lock(const struct terminal_turn *turn, short kind) {
  struct flock place = {.l_type = kind, .l_whence = SEEK_SET, .l_start = turn->place, .l_len = 1};
  if (turn->fd < 0 || fcntl(turn->fd, F_OFD_SETLK, &place) == 0)
    return true;
  return errno != EAGAIN && errno != EACCES; /* where nothing can be locked, nobody waits */
}

bool terminal_turn_take(const struct terminal_turn *turn) {
  return lock(turn, F_WRLCK);
}

bool terminal_turn_share(const struct terminal_turn *turn) {
  return lock(turn, F_RDLCK);
}

void terminal_turn_leave(const struct terminal_turn *turn) {
  lock(turn, F_UNLCK);
}

/* ---- the note ---- */

/* Behind the bytes of all terminals: their numbers have 32 bits. */
#define NOTE_LOCK_PLACE ((off_t)1 << 32)

/* Sparse: each terminal has its place. The size tells whether there is a note. */
struct note {
  size_t size;
  char bytes[TERMINAL_NOTE_SIZE];
};

static void lock_note(const struct terminal_turn *turn, short kind) {
  struct flock place = {
      .l_type = kind, .l_whence = SEEK_SET, .l_start = NOTE_LOCK_PLACE + turn->place, .l_len = 1};
  while (turn->fd >= 0 && fcntl(turn->fd, F_OFD_SETLKW, &place) < 0 && errno == EINTR)
    ;
}

void terminal_turn_lock_note(const struct terminal_turn *turn) {
  lock_note(turn, F_WRLCK);
}

void terminal_turn_unlock_note(const struct terminal_turn *turn) {
  lock_note(turn, F_UNLCK);
}

static off_t note_offset(const struct terminal_turn *turn) {
  return turn->place * (off_t)sizeof(struct note);
}

bool terminal_turn_read_note(const struct terminal_turn *turn, void *ret_note, size_t size) {
  struct note note;
  if (turn->fd < 0 || pread(turn->fd, &note, sizeof note, note_offset(turn)) != sizeof note ||
      note.size != size)
    return false;
  memcpy(ret_note, note.bytes, size);
  return true;
}

void terminal_turn_write_note(const struct terminal_turn *turn, const void *note, size_t size) {
  struct note written = {.size = size};
  if (size > 0)
    memcpy(written.bytes, note, size);
  if (turn->fd >= 0 && pwrite(turn->fd, &written, sizeof written, note_offset(turn)) < 0)
    return; /* then it is as if nobody else could be told */
}

/* That there is any is all there is to know. */
void terminal_turn_read_news(const struct terminal_turn *turn) {
  char events[1024];
  while (turn->news >= 0 && read(turn->news, events, sizeof events) > 0)
    ;
}
