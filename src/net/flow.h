/* Private to the relay: one connection of the workload, from accept to close. */
#pragma once

#include "net/drivers/classes.h"
#include "net/link.h"
#include "net/loop.h"
#include "net/names.h"
#include "net/packet.h"
#include "net/relay.h"
#include "net/resolve.h"

#define HEAD_LIMIT 65536 /* of a proxy request */
#define READ_MS    30000 /* for a proxy request, an answer's head or a DNS message to be complete */

enum flow_kind {
  FLOW_LED,     /* led here by the rules; it knows nothing of us */
  FLOW_SOCKS,   /* SOCKS5 */
  FLOW_CONNECT, /* HTTP CONNECT */
  FLOW_HTTP,    /* HTTP requests with absolute addresses */
};

enum flow_state {
  FLOW_READING, /* what the client wants */
  FLOW_ASKING,
  FLOW_RESOLVING,
  FLOW_RECORDING, /* the audit log comes first */
  FLOW_CONNECTING,
  FLOW_UPSTREAM, /* talking to a proxy of ours */
  FLOW_RELAYING,
  FLOW_HTTP_RELAYING,
  FLOW_QUESTIONS, /* DNS by TCP */
  FLOW_CLOSED,
};

/* One end, and what was read from it and not yet written to the other. */
struct end {
  struct watch watch;
  struct flow *flow;
  bool readable, writable, ended, passed_end;
  bool hung_up; /* nothing will come but what is there already */
  bool unsure;  /* an end or urgent data is among what is there: read until nothing comes */
  bool urgent;  /* there was some: splice never gets past it */
  bool bulk;    /* much comes from here: splice */
  bool bounded; /* it has been seen to that not too much waits for us */
  int pipe[2];
  size_t piped;
  char *pending;
  size_t pending_length, pending_done;
};

struct flow {
  struct flow *next, **link; /* of all that are not closed */
  struct flow *next_dead, *next_turn;
  struct relay *relay;
  enum flow_kind kind;
  enum flow_state state;
  bool inspect;    /* the next bytes may be a TLS hello: look before they pass */
  bool hello_seen; /* there was one; now it may be a second */
  bool early_data; /* that came with it may lie before that */
  bool greeted;    /* SOCKS: past the first message */
  bool answering;  /* DNS by TCP: its questions are being read */
  bool queued;     /* had its turn and wants another */
  bool is_address; /* `host` is a literal address */
  bool asked_for;  /* somebody was asked and has said no */
  bool guarded;    /* refused because of the address it leads to */
  size_t judged;   /* bytes that have been looked at and may pass */
  struct end client, server;
  char host[HOST_NAME_SIZE];
  struct address address;
  uint16_t port;
  char reason[REASON_SIZE];
  uint64_t until_ms;      /* the state must have changed by then; 0: it may stay */
  const char *allowed_by; /* a rule as written, or constant text */
  bool recorded;          /* for this connection alone: there was no line left */
  bool opened;            /* and counted */
  struct ledger_line *line;
  struct resolved *targets;
  size_t next_target;
  struct http_exchange *http;
  uint32_t question;
  struct asked *asked;   /* DNS by TCP: the question that is being looked into */
  struct stream *stream; /* and what has come of the next ones */
};

/* Packets that are carried in mode full; the latest used first. */
enum way_list { WAYS_DATAGRAMS, WAYS_PINGS, WAYS };
struct ways {
  struct way *first;
  size_t count, limit;
};

struct relay {
  const struct relay_input *input;
  struct loop loop;
  struct names *names;
  struct resolver *resolver;
  struct flow *flows, *dead, *turns;
  size_t flow_count, flow_limit;
  struct watch annex;      /* the line to it; -1: there is none */
  _Atomic size_t *annexed; /* how many connections it has, shared with it */
  bool is_annex;
  struct watch line, listeners[INSIDE_SOCKETS];
  bool listening;
  uint64_t full_since_ms; /* nobody has been let in since; 0: it is not full */
  int reserve;            /* a descriptor to be given up for refusing somebody */
  uint32_t last_question;
  uint64_t denial_window_ms;
  unsigned denials_told;
  struct link_message denied; /* the last refusal; count: how many have not been told */
  struct ways ways[WAYS];
  struct way *dead_ways;
  struct withdrawal *withdrawals; /* that the line had no room for */
  struct recording *recordings;   /* that the monitor has not answered yet */
  struct missing *missing;        /* names that were just answered with "no such name" */
  unsigned asked_count;           /* questions that are being looked into */
  struct asked *waiting;          /* those of them that wait for the monitor's word */
  struct watch openings;          /* to a driver's minder */
  struct asked *opening;          /* those that wait for it; the oldest first */
  unsigned openings_sent;         /* that it has not answered yet */
  struct port_classes classes;
};

/* flow.c: the course of a connection */
void flow_accepted(struct relay *relay, int fd);
void flow_moved_in(struct relay *relay, int client, int server, struct ledger_line *line);
void flow_tick(struct relay *relay, uint64_t now);
bool flow_set_host(struct flow *flow, const char *text, size_t length);
void flow_close(struct flow *flow, bool reset);
void reset_on_close(int fd);

/* flow-decide.c: whether it may be made */
void flow_wanted(struct flow *flow); /* host and port are known */
void flow_answered(struct relay *relay, const struct link_message *message);
void flow_refuse(struct flow *flow, const char *format, ...) __attribute__((format(printf, 2, 3)));
void flow_fail(struct flow *flow, const char *format, ...) __attribute__((format(printf, 2, 3)));
void flow_withdraw(struct flow *flow); /* it waits for nothing outside any more */
void relay_withdraw(struct relay *relay, uint32_t question); /* nobody waits for its answer */
void flow_send_withdrawals(struct relay *relay);

/* Counts a refusal and tells the monitor, as often as it may be told. */
struct refusal {
  const char *host, *reason;
  uint16_t port;
  bool asked; /* the monitor itself said no: it knows */
};
void relay_note_denied(struct relay *relay, const struct refusal *refusal);
void relay_tell_denials(struct relay *relay); /* of those that had to wait */

/* flow-connect.c: the way there, once it is allowed, and by what */
void flow_connect(struct flow *flow, const char *allowed_by);
void flow_recorded(struct relay *relay, const struct link_message *message);
void flow_connect_event(struct flow *flow, uint32_t events);
bool flow_connect_late(struct flow *flow); /* true: it tries another address */
void flow_connected(struct flow *flow);    /* the way to the host is open */

/* relay.c: after each round */
void relay_give_turns(struct relay *relay);
void relay_free_dead(struct relay *relay);

/* annex.c: a second process, for more connections than one may have descriptors for */
void annex_start(struct relay *relay);
bool annex_relieve(struct relay *relay); /* true: there is room again */

/* pump.c: moving bytes */

/* As many descriptors as we can have, and the connections that there is room for beside pipes, what
 * every process of ours needs, and so many others. */
size_t pump_raise_files(void);
size_t pump_most_flows(size_t others);

void pump(struct flow *flow);
void want_turn(struct flow *flow); /* there is more to move; others come first */
void end_clear(struct end *end);

/* Writes at once what fits and keeps the rest for later, behind what was read from `from`. */
void end_write(struct end *to, struct end *from, const void *bytes, size_t length);

/* Takes what was only looked at. */
void end_skip(struct end *end, size_t length);

/* Sends what was kept; true if nothing is left. */
bool end_flush(struct end *to, struct end *from);

/* Writes a last message to the client and closes. */
void end_say_last(struct flow *flow, const void *bytes, size_t length);

/* A buffer for one call at a time. */
#define SHARED_SIZE 65536
extern char shared_buffer[SHARED_SIZE];

/* proxy-socks.c */
void socks_read(struct flow *flow);
void socks_say(struct flow *flow, unsigned code);

/* record.c: the audit log has a line about a host and port before the first connection there is
 * made. Asks for one, or joins who has asked already; the answer comes with the id. 0: cannot ask.
 */
uint32_t record_ask(struct relay *relay, const char *host, uint16_t port, const char *allowed_by);
bool record_answered(struct relay *relay, const struct link_message *message); /* was it for one? */

/* receive.c: the next datagram; false: there is none. Without a whole one the length is 0. */
bool datagram_receive(int fd, void *bytes, size_t size, size_t *ret_length,
                      struct endpoint *ret_client, struct endpoint *ret_target);

/* ways.c: what UDP and echo requests in mode full have in common */
void ways_recorded(struct relay *relay, const struct link_message *message);
void ways_tick(struct relay *relay, uint64_t now);
void ways_free_dead(struct relay *relay);
bool ways_any(const struct relay *relay);

/* datagrams.c: UDP in mode full */
void datagrams_read(struct relay *relay, int fd);

/* pings.c: echo requests in mode full */
void pings_read(struct relay *relay, int fd, bool v6);

/* questions.c: DNS */
void questions_forget(struct flow *flow);
bool questions_wait(const struct flow *flow); /* somebody is asked about its question */
void questions_answered(struct relay *relay, const struct link_message *message);
void questions_opened(struct relay *relay, uint32_t id, bool done);
void questions_tick(struct relay *relay, uint64_t now);
void questions_read_datagrams(struct relay *relay, int fd);
void questions_read_stream(struct flow *flow);
