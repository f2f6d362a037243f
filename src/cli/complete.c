/* The hidden verb `__complete`: prints a completion script, or what a script asks for while the
 * user is typing. That runs at every press of Tab, so it must be quick and silent. */
#include <string.h>

#include "cli/completion.h"
#include "cli/session.h"
#include "core/cleanup.h"
#include "core/escape.h"

void completion_append_word(struct text *text, const char *word) {
  _cleanup_free_ char *quoted = escape_shell_word(word);
  text_append(text, quoted);
}

void completion_append_verbs(struct text *text) {
  const char *separator = "";
  for (const struct verb *const *verb = verbs; *verb; verb++) {
    if ((*verb)->hidden)
      continue;
    text_appendf(text, "%s%s", separator, (*verb)->name);
    separator = " ";
  }
}

static void append_sessions(struct text *text) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_choice_ struct session_choice choice = {0};
  if (session_choose(&choice, NULL, &error) < 0)
    return;
  for (size_t i = 0; i < choice.registry.count; i++)
    text_appendf(text, "%s\n", choice.registry.entries[i].id);
}

static const struct topic {
  const char *name;
  void (*append)(struct text *text);
} topics[] = {
    {"bash", completion_bash},
    {"zsh", completion_zsh},
    {"fish", completion_fish},
    {"sessions", append_sessions},
};

static int complete_main(const struct invocation *invocation) {
  const char *name = invocation->operand_count == 1 ? invocation->operands[0] : "";
  for (size_t i = 0; i < ARRAY_SIZE(topics); i++)
    if (strcmp(topics[i].name, name) == 0) {
      _cleanup_text_ struct text text = {0};
      topics[i].append(&text);
      return cli_print(text_string(&text));
    }
  _cleanup_error_ struct sb_error error = {0};
  sb_fail(&error, SB_CODE_USAGE, 0, "__complete needs one of: bash, zsh, fish, sessions");
  return cli_report(&error);
}

const struct verb complete_verb = {
    .name = "__complete",
    .synopsis = "bash|zsh|fish|sessions",
    .summary = "print a completion script",
    .run = complete_main,
    .hidden = true,
};
