/* Runs a command in a sandbox and looks at the result.
 *
 *   cc run.c $(pkg-config --cflags --libs sandbox) -o run && ./run 'echo hello; exit 3' */
#include <sandbox.h>
#include <stdio.h>

int main(int count, char **words) {
  const char *script = count > 1 ? words[1] : "echo hello";
  sb_error *error = sb_error_new();
  sb_options *options = sb_options_new();
  sb_result *result = NULL;
  if (sb_options_add(options, "timeout", "60s", error) == 0 &&
      sb_options_add(options, "memory", "512M", error) == 0)
    result = sb_run_script(options, script, error);
  if (!result) {
    const char *hint = sb_error_hint(error);
    printf("%s: %s%s%s\n", sb_error_code(error), sb_error_message(error), hint ? "; " : "",
           hint ? hint : "");
  } else {
    printf("exit code %d after %.2f s, output: %s", sb_result_exit_code(result),
           sb_result_wall_time(result), sb_result_stdout(result, NULL));
    if (sb_result_limit_hit(result))
      printf("limit: %s\n", sb_result_limit_hit(result));
  }
  int failed = !result;
  sb_result_free(result);
  sb_options_free(options);
  sb_error_free(error);
  return failed;
}
