/* The monitor's side of published ports; see publishing.h. */
#include "session/publishing.h"

#include "core/cleanup.h"
#include "core/json.h"
#include "session/events.h"
#include "session/monitor.h"

/* The workload goes on; from the host it cannot be reached any more. */
static void note_ended(struct monitor *monitor, const char *problem) {
  _cleanup_error_ struct sb_error error = {0};
  json_t *fields = json_pack("{s:s}", "state", "ended");
  json_set_string(fields, "problem", problem);
  (void)events_write(monitor, "net.publish", fields, &error);
}

void publishing_start(struct monitor *monitor, const int *fds) {
  _cleanup_error_ struct sb_error error = {0};
  if (publisher_start(&monitor->publisher, fds[0], fds[1], &error) == 0)
    return;
  note_ended(monitor, error.message);
  monitor_warn(monitor, error.message); /* the ports stay closed */
}

struct pollfd publishing_watch(const struct monitor *monitor) {
  return (struct pollfd){.fd = monitor->publisher.line, .events = POLLIN};
}

/* It never says anything: this is its end. */
void publishing_step(struct monitor *monitor, const struct pollfd *watched) {
  if (!watched->revents || watched->fd != monitor->publisher.line)
    return;
  publisher_end(&monitor->publisher);
  note_ended(monitor, "its process is gone");
  monitor_warn(monitor, "the process that carries published ports has ended; nothing in this "
                        "session can be reached from outside any more");
}
