/* Where the other end of a control socket is. A command that was allowed a folder in which another
 * session's socket happens to lie has the right user, but it is not the user who speaks. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

/* Is it a process of our own user namespace, as every session's command is not? Who has ended or
 * cannot be looked at is not; but root's processes are closed to other users, and root needs nobody
 * to let it in. `peer` is what SO_PEERCRED says. */
bool peer_is_outside(int socket, const struct ucred *peer);
