/* Addresses that no rule knows, with a network driver: the minder tells of them (knocks.h),
 * somebody is asked, and the minder is told the answer. */
#pragma once

#include "net/drivers/minder.h"

struct monitor;

/* Somebody knocks; nobody waits for that any more. */
void driven_ask(struct monitor *monitor, const struct sighting *sighting);
void driven_left(struct monitor *monitor, const struct sighting *sighting);

/* Has the packet filter tell of what no rule knows while somebody is there to be asked. */
void driven_note_supervisors(struct monitor *monitor, bool nobody);

/* True: somebody was asked about it, and said no. */
bool driven_was_denied(const struct monitor *monitor, const struct address *address, uint16_t port);

/* A name was approved; was it a short time ago? */
void driven_note_approved(struct monitor *monitor, const char *name);
bool driven_is_approved(const struct monitor *monitor, const char *name);

/* What was approved for this name or address (also with a port) is closed when this returns;
 * connections that were made go on. */
void driven_revoke(struct monitor *monitor, const char *name);

/* Nobody will answer any more. */
void driven_forget_questions(struct monitor *monitor);
