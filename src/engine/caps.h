/* Capabilities: the workload has none and can never get any. */
#pragma once

/* Empties bounding, ambient, permitted, effective and inheritable sets and locks securebits, so
 * that not even an exec by uid 0 gives one back. Needs CAP_SETPCAP in the current user namespace.
 * Raw system calls only. Returns 0 or a negative errno. */
int caps_drop_all(void);
