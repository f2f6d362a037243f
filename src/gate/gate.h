/* Makes an access to what is not yet allowed wait for a decision, and makes what was approved
 * visible. Two triggers behind one interface: FUSE and seccomp notify; one broker, one grant. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "gate/access.h"

struct gate;

/* Takes an approved tree away again: new opens meet the gate. What is open stays open. Returns
 * false if nothing of that name was granted in this session. */
bool gate_revoke(struct gate *gate, const char *path);
