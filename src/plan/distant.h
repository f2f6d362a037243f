/* File systems whose server may not answer (sshfs, NFS …). Whoever looks at one waits for the
 * server, for ever if need be, and often cannot even be killed. So before we look ourselves, a
 * process of its own does, one for each such mount, and is waited for only so long. Who does not
 * come back is not waited for again, nor is another one sent, until he does: a server that stops
 * costs us that time once. What he was told the kernel remembers, for us as well. */
#pragma once

#include <stdbool.h>

/* Is there any such file system? If not, all below is nothing. */
bool distant_exists(void);

/* May we look at what has this canonical path? 0, or -ETIMEDOUT: its server does not answer. */
int distant_answers(const char *path);

/* The same, to open and read it: only for what may be read. */
int distant_reads(const char *path);

/* The same, and for what is mounted in it. */
int distant_reads_tree(const char *path);

/* Is it the top of one, of a kind that the kernel can hold (O_PATH) without asking its server
 * (FUSE)? It may even remember the attributes (AT_STATX_DONT_SYNC). */
bool distant_is_top(const char *path);

/* Where a mount point is whose server has not answered, once for each time; NULL: nowhere. New
 * string. */
char *distant_take_news(void);
