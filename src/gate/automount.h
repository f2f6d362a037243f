/* Folders in which the host mounts what somebody looks for (autofs). The workload must not make it
 * do that: nobody would be asked, the name may be that of a server, and whoever looks waits as long
 * as the host needs. So nothing is looked for there but what is mounted already. */
#pragma once

#include <stdbool.h>

/* Would it make the host mount something to look for this path? `folder` is the one it is in. */
bool automount_waits(int folder, const char *path);

/* Is there any such folder of the host's? If so, the kernel must not walk for us where the workload
 * says. */
bool automount_exists(void);
