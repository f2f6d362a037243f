/* Raw mode of a terminal that several sessions of a user may share, and the modes it had before.
 * What the first of them found is written down next to the lock of the turns, so that none takes
 * the raw mode of another one for the user's, in whichever order they end or are killed. */
#pragma once

#include <stdbool.h>
#include <termios.h>

#include "session/terminal-turn.h"

struct terminal_modes {
  bool raw;             /* by us */
  struct termios saved; /* the user's; known once it was raw */
};

/* Makes the terminal raw, if we have not done so yet. */
bool terminal_modes_take(struct terminal_modes *modes, const struct terminal_turn *turn, int fd);

/* Puts the user's modes back, if we made it raw. Who still wants it raw has to regain it. */
void terminal_modes_put_back(struct terminal_modes *modes, const struct terminal_turn *turn,
                             int fd);

/* True if somebody has put the user's modes back under us. */
bool terminal_modes_are_lost(const struct terminal_modes *modes, int fd);
bool terminal_modes_regain(const struct terminal_modes *modes, const struct terminal_turn *turn,
                           int fd);
