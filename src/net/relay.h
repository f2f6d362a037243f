/* The relay: a process of its own outside the sandbox that carries what policy allows. It accepts
 * on sockets that lie inside the session's network namespace, decides by name and port, resolves,
 * guards, connects and moves the bytes. It parses what a hostile workload sends, so it confines
 * itself first, and it never decides what policy leaves open: it asks the monitor. */
#pragma once

#include "net/inside.h"
#include "net/ledger.h"
#include "net/settings.h"

struct relay_input {
  int sockets[INSIDE_SOCKETS]; /* owned by the relay's process */
  int line;                    /* to the monitor */
  struct host_rules *rules;
  struct upstream upstream;
  struct ledger *ledger;
  const char *hostname; /* the session's own */
  bool may_ask;         /* dynamic mode */
  int openings;         /* with a driver: answers are real addresses, and its minder opens them when
                           it is asked here; else -1 */
};

/* Works until the monitor's end of the line is closed; then returns. */
void relay_main(const struct relay_input *input);
