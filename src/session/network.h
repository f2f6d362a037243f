/* The monitor's side of the relay: starts it, answers its questions, writes down what it refused,
 * and ends it. Never waits for it. */
#pragma once

#include <poll.h>
#include <stdbool.h>

#include "core/error.h"
#include "core/file.h"
#include "engine/channel.h"
#include "net/inside.h"
#include "net/ledger.h"
#include "net/link.h"
#include "net/name-files.h"
#include "session/bucket.h"
#include "session/drivers.h"
#include "session/strays.h"

struct monitor;

/* A workload that goes from port to port must not fill the disk with lines about it. */
#define RECORD_BURST      1024
#define RECORD_PER_SECOND 100

/* Nor must it keep the monitor busy with finding out who asks: rather more than the audit log lists
 * of what is denied without a question. */
#define OWNER_BURST      200
#define OWNER_PER_SECOND 20

struct network {
  pid_t relay;                 /* 0: there is none */
  int idle;                    /* an epoll of the sockets while there is none yet, or -1 */
  int line;                    /* to it, or -1 */
  int sockets[INSIDE_SOCKETS]; /* until it is started */
  struct ledger *ledger;
  struct network_question *questions; /* that wait for an answer */
  struct network_answer *unsent;      /* answers that the line had no room for */
  struct bucket recording;            /* lines about new hosts in the audit log */
  struct bucket owning;               /* searches for who asks */
  struct name_files name_files;       /* as the relay got them last */
  struct strays strays;               /* datagrams that mode filtered refuses */
  bool ready;                         /* it has said so */
  bool failed;                        /* there can be none */
  struct driven driven;               /* a driver in place of the relay */
};
#define NETWORK_NONE_YET                                                                           \
  ((struct network){.line = -1,                                                                    \
                    .idle = -1,                                                                    \
                    .driven = DRIVEN_NONE,                                                         \
                    .strays = STRAYS_NONE,                                                         \
                    .name_files = NAME_FILES_NONE,                                                 \
                    .owning = bucket_new(OWNER_BURST, OWNER_PER_SECOND),                           \
                    .sockets = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1}})

/* The session's init has sent sockets of the relay, which is started when one of them is used for
 * the first time. Takes the descriptors. */
void network_sockets(struct monitor *monitor, const struct message *message,
                     int fds[FD_PASS_LIMIT]);

/* Tells the relay whether unknown hosts may still be allowed: a name that would be denied is better
 * not found at all. */
void network_note_supervisors(struct monitor *monitor);

/* What to poll for, and what to do then. */
struct pollfd network_watch(const struct network *network);
void network_read(struct monitor *monitor);

/* The process that a socket of the session belongs to, for whoever is asked or told; 0: not known,
 * or too many were looked for of late. */
pid_t network_owner(struct monitor *monitor, bool datagrams, const struct address *address,
                    uint16_t port);

/* What kept answers about a host allowed at the start is unknown again; false if there is none. */
bool network_revoke(struct monitor *monitor, const char *host);

/* Tells it to end, without waiting. */
void network_stop(struct monitor *monitor);

/* Ends the relay and keeps its figures in the result. */
void network_finish(struct monitor *monitor);

/* The figures so far, or null. */
json_t *network_to_json(const struct monitor *monitor);
