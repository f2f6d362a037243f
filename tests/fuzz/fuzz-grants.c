/* libFuzzer target for what is read back from disk: grants and lines of the audit log. Any bytes
 * give grants or an error; what was read is written so that it reads the same again. A line is
 * never taken for whole unless its hash is.
 *
 *   see fuzz-policy.c; then build-fuzz/tests/fuzz/fuzz-grants -max_len=4096 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "audit/line.h"
#include "core/cleanup.h"
#include "core/error.h"
#include "policy/grants.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static void check_round_trip(const struct grant_list *list) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_grants_ struct grant_list again = {0};
  _cleanup_free_ char *text = grants_format(list, NULL);
  if (grants_parse("again.yaml", text, strlen(text), NULL, &again, &error) < 0 ||
      again.count != list->count)
    abort();
  _cleanup_free_ char *second = grants_format(&again, NULL);
  if (strcmp(text, second) != 0)
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_grants_ struct grant_list list = {0};
  if (grants_parse("fuzz.yaml", (const char *)data, length, NULL, &list, &error) == 0)
    check_round_trip(&list);
  else if (!error.message)
    abort();

  json_t *json = NULL;
  char hash[SHA256_HEX_SIZE] = "";
  const char *problem = audit_line_parse((const char *)data, length, &json, hash);
  if (!problem && memcmp(data + length - 2 - strlen(hash), hash, strlen(hash)) != 0)
    abort();
  struct audit_position position = audit_position_start("fuzz");
  (void)audit_line_follows(&position, json, hash);
  json_decref(json);
  return 0;
}
