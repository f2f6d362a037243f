/* What is allowed is written down before it happens: the monitor is asked to, and answers when the
 * line is with the kernel. Only the first connection to a host and port waits for that. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "net/flow.h"

struct recording {
  struct recording *next;
  uint32_t id;
  uint16_t port;
  char host[HOST_NAME_SIZE];
};

static struct recording *find(const struct relay *relay, const char *host, uint16_t port) {
  struct recording *at = relay->recordings;
  while (at && (at->port != port || strcmp(at->host, host) != 0))
    at = at->next;
  return at;
}

uint32_t record_ask(struct relay *relay, const char *host, uint16_t port, const char *allowed_by) {
  struct recording *recording = find(relay, host, port);
  if (recording)
    return recording->id;
  struct link_message message = {.kind = LINK_RECORD, .id = ++relay->last_question, .port = port};
  strcpy(message.host, host);
  strncpy(message.reason, allowed_by, sizeof message.reason - 1);
  if (send(relay->line.fd, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    return 0;
  recording = xcalloc(1, sizeof *recording);
  *recording =
      (struct recording){.next = relay->recordings, .id = message.id, .port = message.port};
  strcpy(recording->host, host);
  relay->recordings = recording;
  return message.id;
}

/* The next one may go without asking. Who asked has made the line, if there was one left. */
static void note_written(struct relay *relay, const struct recording *recording) {
  struct ledger_line *line =
      ledger_find(relay->input->ledger, recording->host, recording->port, true, "");
  if (line)
    line->recorded = true;
}

bool record_answered(struct relay *relay, const struct link_message *message) {
  struct recording **link = &relay->recordings;
  while (*link && (*link)->id != message->id)
    link = &(*link)->next;
  struct recording *recording = *link;
  if (!recording)
    return false;
  *link = recording->next;
  if (message->allowed)
    note_written(relay, recording);
  free(recording);
  return true;
}
