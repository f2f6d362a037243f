/* The host's mounts as they are now, kept as long as we live: the kernel tells when the list is
 * another one. To look costs one call. */
#pragma once

#include <stdbool.h>

#include "plan/mounts.h"

struct host_mounts {
  struct mount_table table; /* empty unless there are any of these */
  bool automatic;           /* folders in which the host mounts what somebody looks for (autofs) */
  bool distant;             /* file systems that wait for a server */
};

const struct host_mounts *host_mounts(void);

/* Is it a mount of that kind? Pure. */
bool mount_is_automatic(const struct mount_entry *entry);
bool mount_is_distant(const struct mount_entry *entry);
