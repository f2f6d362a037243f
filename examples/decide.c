/* What a program that runs commands for others asks first. */
#include <sandbox.h>
#include <stdio.h>

static const char *const decisions[] = {
    [SB_ALLOW] = "allowed", [SB_ASK] = "asked about", [SB_DENY] = "denied", [SB_HIDE] = "hidden"};

int main(int count, char **words) {
  sb_error *error = sb_error_new();
  sb_policy *policy = sb_policy_load(NULL, error);
  if (!policy) {
    printf("%s\n", sb_error_message(error));
    sb_error_free(error);
    return 1;
  }
  sb_verdict *verdict = sb_decide_script(policy, count > 1 ? words[1] : "make test", error);
  printf("sandboxed: %d, ask a person: %d\n", sb_verdict_sandboxed(verdict),
         sb_verdict_needs_approval(verdict));
  for (size_t i = 0; sb_verdict_reason(verdict, i); i++)
    printf("  %s\n", sb_verdict_reason(verdict, i));
  printf("writing here is %s\n", decisions[sb_policy_decide(policy, "x", SB_WRITE)]);
  printf("reading .env is %s\n", decisions[sb_policy_decide(policy, ".env", SB_READ)]);
  sb_verdict_free(verdict);
  sb_policy_free(policy);
  sb_error_free(error);
  return 0;
}
