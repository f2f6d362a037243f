/* Keeps a driver's program away from the user's files where it cannot do that itself. */
#pragma once

/* From now on this process and what it becomes reads the system's programs and settings, uses the
 * TUN device, and writes nothing. It can mount nothing either. Needs no_new_privs. Kernels without
 * Landlock do without, which net_driver_lacks says. 0 or a negative errno. */
int driver_shut_in(void);
