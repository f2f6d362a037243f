/* Keeps one session and runs several commands in it; prints what it would ask and decides itself.
 */
#include <sandbox.h>
#include <stdio.h>
#include <stdlib.h>

static int show(sb_session *session, const char *const argv[], sb_error *error) {
  sb_result *result = sb_session_exec(session, argv, NULL, error);
  if (!result)
    return -1;
  printf("%s -> %d: %s", argv[0], sb_result_exit_code(result), sb_result_stdout(result, NULL));
  sb_result_free(result);
  return 0;
}

int main(void) {
  sb_error *error = sb_error_new();
  sb_options *options = sb_options_new();
  sb_options_set_policy(options, "version: 1\nmode: static\nlimits: {max_processes: 64}\n");
  sb_session *session = sb_session_start(options, error);
  int result = session ? 0 : -1;
  if (result == 0)
    result = show(session, (const char *const[]){"echo", "one", NULL}, error);
  if (result == 0)
    result = show(session, (const char *const[]){"sh", "-c", "echo two; exit 2", NULL}, error);
  char *stats = session ? sb_session_stats(session, error) : NULL;
  printf("%s\n", stats ? "stats: yes" : "stats: no");
  free(stats);
  if (result < 0)
    printf("%s: %s\n", sb_error_code(error), sb_error_message(error));
  sb_session_free(session); /* and it is gone */
  sb_options_free(options);
  sb_error_free(error);
  return result < 0;
}
