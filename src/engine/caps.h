/* Capabilities: the workload has none and can never get any. */
#pragma once

#include <stdint.h>

/* Empties the bounding set alone, which takes no right away until the next exec. */
int caps_drop_bounding_set(void);

/* Empties bounding, ambient, permitted, effective and inheritable sets and locks securebits, so
 * that not even an exec by uid 0 gives one back. Needs CAP_SETPCAP in the current user namespace.
 * Raw system calls only. Returns 0 or a negative errno. */
int caps_drop_all(void);

/* The same, where the bounding set is empty already. */
int caps_drop_rest(void);

/* Gives up all but these (bits by number) of the capabilities that this process has in its user
 * namespace. Returns 0 or a negative errno. */
int caps_keep(uint64_t kept);

/* Lays all of them down until caps_take_up(), which is told what this returned: what is done
 * meanwhile is done with the user's rights alone. */
uint64_t caps_lay_down(void);
void caps_take_up(uint64_t effective);

/* As caps_keep, and a program that is started next has them, too, whoever we are, and no others.
 * Needs CAP_SETPCAP. */
int caps_pass(uint64_t passed);
