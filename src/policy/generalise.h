/* From what a command read to a policy that allows it: a few readable rules instead of a list of
 * files. Pure. Never proposes the root, a home folder or another place that holds everything, and
 * never a folder with a secret in it without saying so. */
#pragma once

#include "policy/policy.h"

/* True for "/" and what is directly below it, home folders, what is above them, and folders that
 * many programs keep their things in: nobody means all of that. */
bool policy_is_too_broad(const struct policy_context *context, const char *folder);

struct observed {
  const char *path; /* canonical */
  bool folder;      /* the folder itself was listed, so it is needed as a whole */
};

struct proposed {
  char *path;
  bool folder;        /* everything below it, too */
  size_t count;       /* observed paths it stands for */
  const char *secret; /* what is hidden below it and stays hidden, or NULL; owned by the policy */
};

struct proposal {
  struct proposed *items; /* sorted, none below another */
  size_t count;
  struct strv too_broad; /* folders that were listed and are not proposed */
  struct strv hidden; /* in what is proposed, to be hidden by the same file; for who looks there */
};

void policy_generalise(const struct policy *policy, const struct policy_context *context,
                       const struct observed *observed, size_t count,
                       struct proposal *ret_proposal);
void proposal_clear(struct proposal *proposal);
#define _cleanup_proposal_ __attribute__((cleanup(proposal_clear)))

/* How many entries of a folder make it the folder. */
enum { GENERALISE_FROM = 3 };

/* The proposal as a policy file with comments. `heading` is a comment of one or more lines without
 * '#', `remarks` follow at the end. New string. */
char *proposal_to_yaml(const struct proposal *proposal, const struct policy_context *context,
                       const char *heading, const struct strv *remarks);
