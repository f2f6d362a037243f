/* Raw mode of a shared terminal; see terminal-modes.h. The last one to put the modes back cannot be
 * left to do it: it may be stopped, or in the background, and the shell would go on with a raw
 * terminal. So everybody puts them back, and who still needs it raw makes it so again. */
#include "session/terminal-modes.h"

#include <string.h>

/* Compared as far as raw mode changes them. */
static bool is_same(const struct termios *first, const struct termios *second) {
  return first->c_iflag == second->c_iflag && first->c_oflag == second->c_oflag &&
         first->c_lflag == second->c_lflag &&
         memcmp(first->c_cc, second->c_cc, sizeof first->c_cc) == 0;
}

static struct termios raw_of(const struct termios *modes) {
  struct termios raw = *modes;
  cfmakeraw(&raw);
  return raw;
}

/* Raw as a session makes it, from what was written down: then that is the user's, whether that
 * session still runs or was killed. */
static bool find_saved(const struct terminal_turn *turn, int fd, struct termios *ret_saved) {
  struct termios current, written;
  if (tcgetattr(fd, &current) < 0)
    return false;
  *ret_saved = current;
  if (terminal_turn_read_note(turn, &written, sizeof written)) {
    struct termios raw = raw_of(&written);
    if (is_same(&current, &raw))
      *ret_saved = written;
  }
  return true;
}

static bool set_raw(const struct termios *saved, const struct terminal_turn *turn, int fd) {
  struct termios raw = raw_of(saved);
  terminal_turn_write_note(turn, saved, sizeof *saved);
  return tcsetattr(fd, TCSANOW, &raw) == 0;
}

/* What is still to be shown was written for the modes there are; and nobody waits for a screen that
 * stands still while others wait for the lock. */
bool terminal_modes_take(struct terminal_modes *modes, const struct terminal_turn *turn, int fd) {
  if (modes->raw)
    return true;
  tcdrain(fd);
  terminal_turn_lock_note(turn);
  modes->raw = find_saved(turn, fd, &modes->saved) && set_raw(&modes->saved, turn, fd);
  terminal_turn_unlock_note(turn);
  return modes->raw;
}

void terminal_modes_put_back(struct terminal_modes *modes, const struct terminal_turn *turn,
                             int fd) {
  if (!modes->raw)
    return;
  tcdrain(fd);
  terminal_turn_lock_note(turn);
  if (tcsetattr(fd, TCSANOW, &modes->saved) == 0)
    terminal_turn_write_note(turn, NULL, 0);
  terminal_turn_unlock_note(turn);
  modes->raw = false;
}

bool terminal_modes_are_lost(const struct terminal_modes *modes, int fd) {
  struct termios current;
  return modes->raw && tcgetattr(fd, &current) == 0 && is_same(&current, &modes->saved);
}

bool terminal_modes_regain(const struct terminal_modes *modes, const struct terminal_turn *turn,
                           int fd) {
  tcdrain(fd);
  terminal_turn_lock_note(turn);
  bool done = set_raw(&modes->saved, turn, fd);
  terminal_turn_unlock_note(turn);
  return done;
}
