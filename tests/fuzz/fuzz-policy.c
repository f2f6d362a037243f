/* libFuzzer target for the policy loader: any bytes give a policy or an error, never a crash, a
 * hang or a leak. An untrusted store must not be able to open the network whatever it says.
 *
 *   CC=clang meson setup build-fuzz -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false \
 *     -Dc_args=-fsanitize=fuzzer-no-link
 *   ninja -C build-fuzz && build-fuzz/tests/fuzz/fuzz-policy -max_len=4096 */
#include <stdint.h>
#include <stdlib.h>

#include "core/error.h"
#include "policy/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  static char *const variables[] = {"SDK=/opt/sdk", NULL};
  static const struct policy_context context = {
      .home = "/nohome/u", .project = "/nohome/u/p", .environment = variables};
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_policy_ struct policy *policy = policy_new(&context);
  const struct policy_source source = {.file = "fuzz.yaml",
                                       .store = STORE_PROJECT,
                                       .untrusted = length % 2 == 0,
                                       .data = (const char *)data,
                                       .length = length};
  int result = policy_apply(policy, &context, &source, &error);
  if ((result < 0) != (error.message != NULL))
    abort();
  if (source.untrusted && (policy->network.mode != NETWORK_NONE || policy->network.allow.count > 0))
    abort();
  policy_decide(policy, "/nohome/u/p/.env", ACCESS_READ);
  free(policy_to_text(policy));
  return 0;
}
