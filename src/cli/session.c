/* What the verbs about running sessions share; see session.h. */
#include "cli/session.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "session/placeholders.h"
#include "session/terminal-turn.h"

#define TURN_MS 50

int session_choose(struct session_choice *ret_choice, const char *prefix, struct sb_error *error) {
  struct session_choice choice = {0};
  if (host_context_load(&choice.host, error) < 0)
    return -1;
  int result = registry_load(&choice.host, &choice.registry, error);
  placeholders_recover(&choice.host); /* of monitors that were killed */
  if (result == 0 && prefix)
    result = registry_find(&choice.registry, prefix, &choice.entry, error);
  if (result < 0) {
    session_choice_clear(&choice);
    return -1;
  }
  *ret_choice = choice;
  return 0;
}

void session_choice_clear(struct session_choice *choice) {
  registry_clear(&choice->registry);
  host_context_clear(&choice->host);
}

/* The names in it are the command's choice: a question could be pushed off the screen by them. */
void session_say_last(const char *state_home, const char *text) {
  struct terminal_turn turn =
      isatty(STDERR_FILENO) ? terminal_turn_open(state_home) : TERMINAL_TURN_ALONE;
  while (!terminal_turn_share(&turn))
    poll(NULL, 0, TURN_MS);
  (void)file_write_all(STDERR_FILENO, text, strlen(text));
  terminal_turn_close(&turn);
}

char *show_age(double seconds) {
  static const struct {
    double size;
    char letter;
  } units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}};
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    if (seconds >= units[i].size)
      return xasprintf("%lld%c", (long long)(seconds / units[i].size), units[i].letter);
  }
  return xasprintf("%llds", (long long)seconds);
}

char *show_seconds(double seconds, int decimals) {
  return seconds < 0 ? xstrdup("-") : xasprintf("%.*fs", decimals, seconds);
}

char *show_bytes(double bytes) {
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
  if (bytes < 0)
    return xstrdup("-");
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < sizeof units / sizeof units[0]) {
    bytes /= 1000;
    unit++;
  }
  return xasprintf(bytes < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}
