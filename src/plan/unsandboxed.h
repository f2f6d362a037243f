/* Which commands are not to be sandboxed, and what a caller should do about them. Looks at the file
 * system, changes nothing. */
#pragma once

#include <jansson.h>

#include "core/strv.h"
#include "plan/project.h"
#include "policy/policy.h"

struct command_question {
  const struct host_context *host;
  const struct policy *policy;
  const char *script;     /* a shell string, or NULL */
  char *const *arguments; /* the words of a command if there is no script; NULL-terminated */
  bool bypass;            /* the caller asks to go without a sandbox */
};

/* One command and why it is excluded or not. */
struct command_program {
  char *name;     /* as written */
  char *resolved; /* its file; NULL if there is none */
  char *why_not;  /* NULL: it is excluded */
};

struct command_verdict {
  bool excluded;       /* every command of it is */
  bool sandboxed;      /* it runs in a sandbox */
  bool refused;        /* it must not run: only without a sandbox, which is not allowed */
  bool needs_approval; /* a person should be asked before it runs */
  struct strv reasons; /* one sentence each, escaped */
  struct command_program *programs;
  size_t program_count;
};

void command_decide(const struct command_question *question, struct command_verdict *ret);
json_t *command_verdict_to_json(const struct command_verdict *verdict);
void command_verdict_clear(struct command_verdict *verdict);
#define _cleanup_command_verdict_ __attribute__((cleanup(command_verdict_clear)))
