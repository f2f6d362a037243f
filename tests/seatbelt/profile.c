/* For the tests: the Seatbelt profile of a policy as a Mac would have it, and what the policy
 * itself decides. Nothing of this machine is looked at.
 *
 *   profile show POLICY PROJECT HOME TMP [PROTECTED]...     parameters, an empty line, the profile
 *   profile decide POLICY PROJECT HOME TMP <paths           "READ WRITE" for each line */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/sbpl.h"
#include "core/cleanup.h"

static int fail(const struct sb_error *error) {
  fprintf(stderr, "%s\n", error->message);
  return 1;
}

static int show(const struct policy *policy, char **words, int count) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_plan_ struct plan plan = {0};
  _cleanup_sbpl_ struct sbpl sbpl = {0};
  for (int i = 4; i < count; i++)
    plan_add(&plan, OPERATION_PROTECT, words[i], NULL, "test");
  struct sbpl_request request = {.policy = policy,
                                 .plan = &plan,
                                 .project = words[1],
                                 .home = words[2],
                                 .temporary = words[3],
                                 .own_folder = "/Users/ann/.run/sandbox"};
  if (sbpl_generate(&request, &sbpl, &error) < 0)
    return fail(&error);
  STRV_FOREACH (parameter, &sbpl.parameters)
    printf("%s\n", *parameter);
  printf("\n%s", text_string(&sbpl.profile));
  return 0;
}

static const char *verdict(const struct policy *policy, const char *path, enum access access) {
  return policy_decide(policy, path, access).verdict == VERDICT_ALLOW ? "allow" : "deny";
}

static int decide(const struct policy *policy) {
  _cleanup_free_ char *line = NULL;
  size_t capacity = 0;
  while (getline(&line, &capacity, stdin) > 0) {
    line[strcspn(line, "\n")] = '\0';
    printf("%s %s\n", verdict(policy, line, ACCESS_READ), verdict(policy, line, ACCESS_WRITE));
  }
  return 0;
}

int main(int count, char **words) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_policy_ struct policy *policy = NULL;
  char *environment[] = {NULL};
  if (count < 6)
    return 2;
  struct policy_context context = {.project = words[3],
                                   .home = words[4],
                                   .config_home = "/Users/ann/.config",
                                   .state_home = "/Users/ann/.local/state",
                                   .org_folder = "/etc/sandbox",
                                   .environment = environment};
  policy = policy_new(&context);
  policy->mode = MODE_STATIC; /* a profile cannot ask */
  if (policy_load_file(&context, words[2], STORE_USER, policy, &error) < 0)
    return fail(&error);
  return strcmp(words[1], "show") == 0 ? show(policy, words + 2, count - 2) : decide(policy);
}
