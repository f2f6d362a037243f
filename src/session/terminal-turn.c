/* Whose turn it is at a terminal; see terminal-turn.h. The lock is in the folder that no session
 * can see, and not on the terminal itself: a workload may hold that, and could keep everybody
 * waiting. */
#include "session/terminal-turn.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/alloc.h"
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

struct terminal_turn terminal_turn_open(const char *state_home) {
  struct terminal_turn turn = TERMINAL_TURN_ALONE;
  if (!state_home || !find_terminal(&turn.place))
    return turn;
  _cleanup_free_ char *folder = path_join(state_home, "sandbox");
  _cleanup_free_ char *path = path_join(folder, "terminals.lock");
  turn.fd = open_lock(path);
  if (turn.fd < 0 && errno == ENOENT && file_make_folders(folder, 0700) == 0)
    turn.fd = open_lock(path);
  return turn;
}

void terminal_turn_close(struct terminal_turn *turn) {
  if (turn->fd >= 0)
    close(turn->fd);
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
