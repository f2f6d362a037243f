/* Pages of memory that a fork left shared between parent and child. */
#pragma once

/* The first write to such a page costs a fault and a copy. Whoever must be fast later pays now: all
 * writable memory in use, up to a few megabytes, becomes this process's own. */
void pages_make_own(void);
