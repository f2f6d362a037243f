/* sandbox __landlock FD -- COMMAND: what `sandbox wrap --backend landlock` prints. Confines itself
 * by the rules that it reads from a descriptor, and becomes the command. */
#include <errno.h>
#include <limits.h>
#include <linux/close_range.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/landlock.h"
#include "cli/cli.h"
#include "cli/values.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/text.h"

static int read_rules(const char *number, struct text *ret_rules, struct sb_error *error) {
  uint64_t fd;
  if (value_count("__landlock", number, &fd, error) < 0)
    return -1;
  for (;;) {
    char buffer[65536];
    ssize_t got = fd > INT_MAX ? (errno = EBADF, -1) : read((int)fd, buffer, sizeof buffer);
    if (got < 0)
      return sb_fail_errno(error, "reading the rules from descriptor %s", number);
    if (got == 0)
      return 0;
    text_append_bytes(ret_rules, buffer, (size_t)got);
  }
}

static int run(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_text_ struct text rules = {0};
  const char *doing = NULL;
  if (invocation->operand_count < 2) {
    sb_fail(&error, SB_CODE_USAGE, 0, "this is for the words of 'sandbox wrap' only");
    return cli_report(&error);
  }
  if (read_rules(invocation->operands[0], &rules, &error) < 0)
    return cli_report(&error);
  syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
  int result = landlock_confine(&(struct landlock_blob){rules.data, rules.length}, &doing);
  if (result < 0) {
    sb_fail(&error, SB_CODE_UNSUPPORTED, -result, "%s", doing);
    return cli_report(&error);
  }
  char **command = invocation->operands + 1;
  command += strcmp(command[0], "--") == 0 && command[1];
  execvp(command[0], command);
  int errnum = errno;
  _cleanup_free_ char *shown = escape_string(command[0]);
  sb_fail(&error, SB_CODE_NOT_FOUND, errnum, "cannot execute '%s'", shown);
  cli_report(&error);
  return exit_code_of_exec(errnum);
}

const struct verb landlock_verb = {
    .name = "__landlock",
    .synopsis = "FD -- COMMAND [ARGUMENT]...",
    .summary = "confine and run a command by packed rules",
    .stop_at_operand = true,
    .run = run,
    .hidden = true,
};
