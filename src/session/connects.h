/* The monitor's side of the connector (engine/connector.h): the listener that calls of connect(2)
 * wait for, and the process that does them, from the first one on. */
#pragma once

#include <poll.h>

#include "engine/connector.h"

struct monitor;

struct connects {
  int listener;      /* it is not needed yet; -1: the connector has it, or there is none */
  unsigned answered; /* calls that needed no connector */
  struct connector connector;
};
#define CONNECTS_NONE ((struct connects){.listener = -1, .connector = CONNECTOR_NONE})

/* In the monitor's loop. */
struct pollfd connects_watch(const struct connects *connects);
void connects_step(struct monitor *monitor, const struct pollfd *watched);

void connects_end(struct monitor *monitor);
