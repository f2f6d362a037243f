/* What a command may be given as stdin, stdout and stderr. Its caller's descriptors come from
 * outside every wall that is built here, so that none may lead out by itself. */
#pragma once

#include <stdbool.h>

#include "core/error.h"

/* `number` is what the command will know it by. `datagrams`: policy wants UNIX datagram sockets. */
int descriptor_check(int fd, int number, bool datagrams, struct sb_error *error);
