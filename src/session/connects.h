/* The monitor's side of the connector (engine/connector.h): the listener that calls of connect(2)
 * wait for, the process that does them, from the first one on, and what it asks in dynamic mode. */
#pragma once

#include <poll.h>

#include "engine/connector.h"

struct monitor;

struct connects {
  int listener;      /* it is not needed yet; -1: the connector has it, or there is none */
  unsigned answered; /* calls that needed no connector */
  struct connector connector;
  struct connect_asked *asked;
  struct held_socket *held; /* allowed by what they are and not by their names: for the session, or
                               by policy */
  size_t held_count;
};
#define CONNECTS_NONE ((struct connects){.listener = -1, .connector = CONNECTOR_NONE})

/* In the monitor's loop. */
struct pollfd connects_watch(const struct connects *connects);
void connects_step(struct monitor *monitor, const struct pollfd *watched);

/* As soon as the plan is complete. */
void connects_begin(struct monitor *monitor);

/* Takes over a call that another has received from his listener. False: there is no connector in
 * this session, and there will be none. */
bool connects_take(void *monitor, int listener, const struct connect_call *call);

void connects_end(struct monitor *monitor);
