/* Answers to revocations; see revoking.h. */
#include "session/revoking.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "session/monitor.h"

struct revoking {
  struct revoking *next;
  struct client *client;
  json_t *reply, *tag;
};

static void answer(struct revoking *revoking, bool held) {
  if (held)
    json_object_set_new(revoking->reply, "held", json_true());
  control_send(revoking->client, revoking->reply, revoking->tag, NULL, 0);
  revoking->reply = NULL;
}

static void revoking_free(struct revoking *revoking) {
  json_decref(revoking->reply);
  json_decref(revoking->tag);
  free(revoking);
}

void revoking_answer(struct monitor *monitor, const struct request *request, json_t *reply) {
  struct revoking *revoking = xcalloc(1, sizeof *revoking);
  *revoking = (struct revoking){.next = monitor->supervision.revoking,
                                .client = request->client,
                                .reply = reply,
                                .tag = json_deep_copy(json_object_get(request->body, "tag"))};
  monitor->supervision.revoking = revoking;
  revoking_step(monitor);
}

void revoking_step(struct monitor *monitor) {
  if (monitor->gate && gate_is_revoking(monitor->gate))
    return;
  for (struct revoking *revoking = monitor->supervision.revoking; revoking;
       revoking = revoking->next)
    answer(revoking, monitor->upkeep.held);
  if (monitor->supervision.revoking)
    monitor->upkeep.held = false;
  revoking_clear(monitor);
}

void revoking_client_gone(struct monitor *monitor, const struct client *client) {
  for (struct revoking **place = &monitor->supervision.revoking; *place;) {
    struct revoking *revoking = *place;
    if (revoking->client != client) {
      place = &revoking->next;
      continue;
    }
    *place = revoking->next;
    revoking_free(revoking);
  }
}

void revoking_clear(struct monitor *monitor) {
  for (struct revoking *revoking = monitor->supervision.revoking, *next; revoking;
       revoking = next) {
    next = revoking->next;
    revoking_free(revoking);
  }
  monitor->supervision.revoking = NULL;
}
