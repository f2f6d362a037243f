/* A process that makes one call in a waiting caller's place, on the caller's own descriptor: to
 * connect a socket, to send to one, to watch a file. What was allowed once need not appear in the
 * session for that, where everybody would see it. It has no more rights than the caller, blocks
 * where the caller would block, and keeps nobody else waiting. */
#pragma once

#include "gate/call.h"

struct stand_in {
  pid_t pid;
  int result; /* readable when it is done; -1: there is none */
};
#define STAND_IN_NONE ((struct stand_in){.pid = -1, .result = -1})

/* Can it be made in the caller's place? */
bool stand_in_can(const struct call *call);

/* Takes the caller's descriptor and starts. The caller asks afterwards whether the call still
 * waits, and ends it if not. `process` is the caller's, by a pidfd. 0 or a negative errno. */
int stand_in_start(struct stand_in *stand_in, const struct call *call, int process, int object);

/* What the call returned: the value or a negative errno. Ends it. */
long stand_in_finish(struct stand_in *stand_in);
void stand_in_end(struct stand_in *stand_in);
