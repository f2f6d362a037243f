/* Revocations that are under way: whoever asked for one is answered when it has taken effect, so
 * that what is opened after the answer meets the gate. */
#pragma once

#include "session/control.h"

struct monitor;
struct revoking;

/* Sends the reply (takes the reference) now, or when what was granted is gone. */
void revoking_answer(struct monitor *monitor, const struct request *request, json_t *reply);

void revoking_step(struct monitor *monitor);
void revoking_client_gone(struct monitor *monitor, const struct client *client);
void revoking_clear(struct monitor *monitor);
