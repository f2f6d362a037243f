/* What every verb sees of the command line, and how it talks to people. One table per verb lists
 * its options; parsing, --help, completions and man pages are all made from these tables. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "core/exit-code.h"

/* What a shell should offer after an option or as an operand. */
enum completion {
  COMPLETE_NONE,
  COMPLETE_PATH,
  COMPLETE_FOLDER,
  COMPLETE_WORDS,
  COMPLETE_COMMAND,
  COMPLETE_SESSION,
  COMPLETE_VERB
};

enum argument { ARGUMENT_NONE, ARGUMENT_REQUIRED, ARGUMENT_OPTIONAL /* only as --name=value */ };

/* Options that exist without being in a verb's table. A verb's own ids start at 0. */
enum common_option { OPTION_HELP = -1, OPTION_VERSION = -2 };

struct option_spec {
  int id;           /* the verb's own enum */
  const char *name; /* long name without dashes */
  char letter;      /* short form, or 0 */
  enum argument argument;
  const char *metavar; /* "PATH" in help; NULL without argument */
  const char *help;    /* one line */
  enum completion completion;
  const char *words; /* for COMPLETE_WORDS: "none filtered full"; any other value is refused */
};

struct given_option {
  const struct option_spec *spec;
  const char *value; /* NULL if none was given */
};

struct invocation {
  const struct verb *verb;
  struct given_option *options; /* in the order given */
  size_t option_count;
  char **operands; /* NULL-terminated; everything after -- or after the first operand of `run` */
  size_t operand_count;
};

struct verb {
  const char *name;
  const char *synopsis;              /* "[OPTION]... [--] COMMAND [ARGUMENT]..." */
  const char *summary;               /* one line, for the list of verbs */
  const char *description;           /* a few sentences, for --help and the man page; may be NULL */
  const struct option_spec *options; /* ends with a NULL name; NULL if there are none */
  bool stop_at_operand;              /* options end at the first operand (run, exec) */
  enum completion operand_completion;
  const char *operand_words;
  int (*run)(const struct invocation *invocation);
  bool hidden; /* for our own scripts and build: not in help, completions or man pages */
};

extern const struct verb *const verbs[]; /* NULL-terminated */

/* What may stand before the verb, as a verb without a name. */
extern const struct verb command_verb;

/* One file each defines these. */
extern const struct verb run_verb, exec_verb, attach_verb, ps_verb, stats_verb, kill_verb;
extern const struct verb watch_verb, approve_verb, deny_verb;
extern const struct verb diff_verb, apply_verb, discard_verb, report_verb;
extern const struct verb audit_verb, decide_verb, learn_verb;
extern const struct verb wrap_verb, backends_verb, landlock_verb;
extern const struct verb policy_verb, doctor_verb, help_verb, complete_verb, manual_verb;

/* The options of a verb one by one, --help as the last; NULL when there are no more. */
const struct option_spec *verb_option(const struct verb *verb, size_t index);

/* What was given. The value is that of the last one, NULL if it was not given or has none. */
bool invocation_has(const struct invocation *invocation, int id);
const char *invocation_value(const struct invocation *invocation, int id);

/* What runs the string of -c. In run-prepare.c. */
const char *cli_shell(void);

/* Prints "sandbox: message" and "  fix: hint" on stderr and returns 125. */
int cli_report(const struct sb_error *error);

/* Prints {"error":{"code","message","hint"}} as one line on stdout and returns 125. */
int cli_report_json(const struct sb_error *error);

/* Whichever of the two the invocation asked for: JSON if its verb has --json and it was given. */
int cli_report_for(const struct invocation *invocation, const struct sb_error *error);

/* One warning line on stderr. The caller has escaped what is hostile. */
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes to stdout, all of it; returns 0, or 125 after reporting why it could not. */
int cli_print(const char *text);
