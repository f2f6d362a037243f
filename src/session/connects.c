/* Starts and watches the connector; see connects.h. */
#include "session/connects.h"

#include <unistd.h>

#include "core/cleanup.h"
#include "session/monitor.h"
#include "session/upkeep.h"

/* Who asks that often should not have to wait for what else the monitor has to do. */
#define ANSWERED_LIMIT 16

struct pollfd connects_watch(const struct connects *connects) {
  int fd = connects->listener >= 0 ? connects->listener : connects->connector.channel;
  return (struct pollfd){.fd = fd, .events = POLLIN};
}

static void let_go_of_listener(struct connects *connects) {
  close(connects->listener);
  connects->listener = -1;
}

/* A copy of the listener would let calls wait for ever when the connector is gone. */
static void start(struct monitor *monitor) {
  _cleanup_error_ struct sb_error error = {0};
  struct connects *connects = &monitor->connects;
  struct caller first = {.socket = -1};
  bool needed = connector_is_needed(connects->listener, &first);
  if (!needed && ++connects->answered < ANSWERED_LIMIT)
    return;
  const struct connector_input input = {.listener = connects->listener,
                                        .user_ns = monitor->engine.user_ns,
                                        .mount_ns = monitor->engine.mount_ns,
                                        .plan = monitor->request->plan,
                                        .first = needed ? &first : NULL};
  if (connector_start(&connects->connector, &input, &error) < 0)
    upkeep_give_up(monitor, NULL, error.message);
  let_go_of_listener(connects);
}

void connects_step(struct monitor *monitor, const struct pollfd *watched) {
  struct connects *connects = &monitor->connects;
  if (!watched->revents || monitor->over)
    return;
  if (watched->fd == connects->listener) {
    if (watched->revents & POLLIN)
      start(monitor);
    else
      let_go_of_listener(connects); /* nobody is left who could call */
  } else if (watched->fd == connects->connector.channel) {
    connector_end(&connects->connector);
    upkeep_give_up(monitor, NULL,
                   "the process that connects the command's sockets is gone: the session was "
                   "ended");
  }
}

void connects_end(struct monitor *monitor) {
  if (monitor->connects.listener >= 0)
    let_go_of_listener(&monitor->connects);
  connector_end(&monitor->connects.connector);
}
