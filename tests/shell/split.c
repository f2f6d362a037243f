/* For the tests: what shell_split makes of each NUL-terminated string on stdin, one JSON line each:
 * null if it is doubted, else the commands with their words. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/cleanup.h"
#include "core/json.h"
#include "core/shell.h"

static json_t *commands_json(const struct shell_script *script) {
  if (script->doubt)
    return json_null();
  json_t *commands = json_array();
  for (size_t i = 0; i < script->count; i++)
    json_array_append_new(commands, json_string_array(script->commands[i].words.items,
                                                      script->commands[i].words.count));
  return commands;
}

int main(void) {
  _cleanup_free_ char *string = NULL;
  size_t capacity = 0;
  while (getdelim(&string, &capacity, '\0', stdin) > 0) {
    _cleanup_shell_script_ struct shell_script script = {0};
    shell_split(string, &script);
    json_t *commands = commands_json(&script);
    char *line = json_dumps(commands, JSON_COMPACT | JSON_ENCODE_ANY);
    puts(line);
    free(line);
    json_decref(commands);
  }
  return 0;
}
