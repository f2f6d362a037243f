/* Files with the names of secrets (".env") in a folder outside the project that is to be allowed as
 * a whole. Looks at the file system, changes nothing. */
#pragma once

#include "policy/policy.h"

/* Adds what has to stay covered in the folder: every file or folder called like a secret that the
 * policy does not allow by a written rule, and what a link of such a name leads to within it. No
 * more than `limit` entries are looked at; false: it is too large, or holds too many, to know. */
bool named_secrets_find(const struct policy *policy, const char *folder, size_t limit,
                        struct strv *ret_paths);
