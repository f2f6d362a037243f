/* Shell strings of whoever wants a command run: none may crash the splitter, and what it takes for
 * understood has commands with words. */
#include <stdint.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/shell.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  _cleanup_free_ char *string = xstrndup((const char *)data, size);
  _cleanup_shell_script_ struct shell_script script = {0};
  shell_split(string, &script);
  if (!script.doubt && script.count == 0)
    abort();
  for (size_t i = 0; i < script.count; i++)
    if (script.commands[i].words.count == 0 || !*script.commands[i].words.items[0])
      abort();
  return 0;
}
