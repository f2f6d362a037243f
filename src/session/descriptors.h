/* What a command may be given as stdin, stdout and stderr. Its caller's descriptors come from
 * outside every wall that is built here, so that none may lead out by itself. */
#pragma once

#include <stdbool.h>

#include "core/error.h"
#include "plan/plan.h"

/* `number` is what the command will know it by. `datagrams`: policy wants UNIX datagram sockets. */
int descriptor_check(int fd, int number, bool datagrams, struct sb_error *error);

/* A file that the plan protects or hides within a writable place. By its descriptor it is on the
 * host's own mount, which is writable, and Landlock holds only what is outside of such places. */
int descriptor_check_file(int fd, int number, const struct plan *plan, struct sb_error *error);
