/* The table of keys in docs/POLICY.md is the schema's: run without an argument, this prints it;
 * with the document's path, it fails where a row is missing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "policy/schema.h"

#include <fcntl.h>

static char *row_of(const struct policy *policy, const struct schema_key *key) {
  static const char *const narrowing[] = {[NARROWING_NEVER] = "no",
                                          [NARROWING_SMALLER] = "towards the stricter",
                                          [NARROWING_LIMIT] = "a lower one",
                                          [NARROWING_ALWAYS] = "yes"};
  _cleanup_free_ char *type = schema_describe(key);
  _cleanup_free_ char *value = schema_is_scalar(key) ? schema_show(policy, key) : NULL;
  return xasprintf("| `%s` | %s | %s | %s | %s |\n", key->name, type, value ? value : "", key->help,
                   narrowing[key->narrowing]);
}

int main(int count, char **arguments) {
  static const struct policy_context context = {.project = "/nohome/project"};
  _cleanup_policy_ struct policy *policy = policy_new(&context);
  _cleanup_free_ char *document = NULL;
  if (count > 1 && file_read_at(AT_FDCWD, arguments[1], 1 << 20, &document, NULL) < 0)
    return EXIT_FAILURE;
  int result = EXIT_SUCCESS;
  for (const struct schema_key *key = schema_table; key->name; key++) {
    _cleanup_free_ char *row = row_of(policy, key);
    if (document && strstr(document, row))
      continue;
    fputs(row, stdout);
    result = document ? EXIT_FAILURE : result;
  }
  return result;
}
