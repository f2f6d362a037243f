/* Other programs' settings are read before anybody trusts them: no input may crash an importer, and
 * whatever comes out must be a policy that loads. TOML is not here: a helper program reads it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "policy/importers/importer.h"
#include "policy/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_loads(const struct import_result *result) {
  static char *const environment[] = {NULL};
  static const struct policy_context context = {.home = "/home/ann",
                                                .project = "/home/ann/shop",
                                                .org_folder = "/nonexistent",
                                                .environment = environment};
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_policy_ struct policy *policy = policy_new(&context);
  const struct policy_source source = {.file = "made.yaml",
                                       .store = STORE_USER,
                                       .data = result->policy,
                                       .length = strlen(result->policy)};
  if (policy_apply(policy, &context, &source, &error) < 0 && !strstr(error.message, "symbolic"))
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char *const formats[] = {"claude", "srt", "dive", "mycode"};
  for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
    _cleanup_import_ struct import_result result = {0};
    _cleanup_error_ struct sb_error error = {0};
    if (policy_import_foreign(formats[i], "f", (const char *)data, size, &result, &error) == 0)
      check_loads(&result);
  }
  return 0;
}
