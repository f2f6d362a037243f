/* UDP in mode full: one socket outside for each pair of client and target. Datagrams of the
 * workload arrive on one socket, with the address they were for; answers go back as whole packets
 * from that address. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/alloc.h"
#include "net/flow.h"
#include "net/guard.h"
#include "net/packet.h"

#define IDLE_MS     60000
#define KEPT_LIMIT  4 /* datagrams that wait for the name to be resolved */
#define ROUND_LIMIT 64

struct kept {
  struct kept *next;
  size_t length;
  char bytes[];
};

struct association {
  struct watch watch; /* outside */
  struct association *next, **link, *next_dead;
  struct relay *relay;
  struct endpoint client, target; /* as the workload sees them */
  char host[HOST_NAME_SIZE];
  struct ledger_line *line;
  const char *allowed_by;
  struct resolved *resolved; /* where to, while the audit log comes first */
  uint32_t recording;
  uint64_t last_ms;
  bool resolving, gone;
  struct kept *kept;
  unsigned kept_count;
};

/* ---- birth and death ---- */

static void unlink_association(struct association *association) {
  *association->link = association->next;
  if (association->next)
    association->next->link = association->link;
}

static void link_first(struct association *association) {
  struct relay *relay = association->relay;
  association->next = relay->associations;
  association->link = &relay->associations;
  if (association->next)
    association->next->link = &association->next;
  relay->associations = association;
}

static void drop_kept(struct association *association) {
  while (association->kept) {
    struct kept *first = association->kept;
    association->kept = first->next;
    free(first);
  }
  association->kept_count = 0;
}

static void end_association(struct association *association) {
  struct relay *relay = association->relay;
  if (association->gone)
    return;
  association->gone = true;
  if (association->resolving)
    resolver_withdraw(relay->resolver, association);
  loop_close(&relay->loop, &association->watch);
  drop_kept(association);
  free(association->resolved);
  association->resolved = NULL;
  ledger_closed(relay->input->ledger, association->line);
  unlink_association(association);
  relay->association_count--;
  association->next_dead = relay->dead_associations;
  relay->dead_associations = association;
}

void datagrams_free_dead(struct relay *relay) {
  while (relay->dead_associations) {
    struct association *first = relay->dead_associations;
    relay->dead_associations = first->next_dead;
    free(first);
  }
}

void datagrams_tick(struct relay *relay, uint64_t now) {
  struct association *next;
  for (struct association *at = relay->associations; at; at = next) {
    next = at->next;
    if (now - at->last_ms > IDLE_MS)
      end_association(at);
  }
}

static void end_oldest(struct relay *relay) {
  struct association *oldest = relay->associations;
  while (oldest && oldest->next)
    oldest = oldest->next;
  if (oldest)
    end_association(oldest);
}

/* ---- outside → inside ---- */

static void on_outside(struct watch *watch, uint32_t events) {
  struct association *association = (struct association *)watch;
  struct relay *relay = association->relay;
  bool v6 = association->client.address.family == 6;
  static uint8_t packet[PACKET_OVERHEAD + PACKET_PAYLOAD];
  struct sockaddr_storage to;
  (void)events;
  for (int round = 0; round < ROUND_LIMIT; round++) {
    ssize_t got = recv(watch->fd, shared_buffer, PACKET_PAYLOAD, MSG_DONTWAIT);
    if (got < 0)
      return; /* nothing more, or "port unreachable", which is the client's to find out */
    association->last_ms = loop_now_ms();
    size_t length = packet_write(&association->target, &association->client, shared_buffer,
                                 (size_t)got, packet);
    socklen_t size = address_to_sockaddr(&association->client.address, 0, &to);
    (void)sendto(relay->input->sockets[v6 ? INSIDE_RAW6 : INSIDE_RAW4], packet, length,
                 MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to, size);
    ledger_carried(relay->input->ledger, association->line, false, (size_t)got);
  }
}

/* ---- inside → outside ---- */

static void send_out(struct association *association, const void *bytes, size_t length) {
  if (send(association->watch.fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
    ledger_carried(association->relay->input->ledger, association->line, true, length);
}

static void refuse(struct association *association, const char *reason) {
  struct relay *relay = association->relay;
  relay->input->ledger->denied++;
  relay_note_denied(relay, &(struct refusal){.host = association->host,
                                             .port = association->target.port,
                                             .reason = reason});
  drop_kept(association); /* it stays, without a way out, until it has been idle */
}

static bool open_way(struct association *association, const struct address *address) {
  struct relay *relay = association->relay;
  struct sockaddr_storage target;
  socklen_t size = address_to_sockaddr(address, association->target.port, &target);
  association->watch.fd = socket(target.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (association->watch.fd < 0)
    return false;
  if (connect(association->watch.fd, (struct sockaddr *)&target, size) == 0 &&
      loop_add_level(&relay->loop, &association->watch, EPOLLIN) == 0)
    return true;
  close(association->watch.fd);
  association->watch.fd = -1;
  return false;
}

/* To the first address that may be and can be reached. */
static void open_first(struct association *association, struct ledger_line *line) {
  const struct host_rules *rules = association->relay->input->rules;
  const struct resolved *resolved = association->resolved;
  char reason[REASON_SIZE] = "";
  for (size_t i = 0; i < resolved->count; i++) {
    if (!guard_allows(rules, association->host, &resolved->addresses[i], association->target.port,
                      reason))
      continue;
    if (!open_way(association, &resolved->addresses[i]))
      continue;
    association->line = line;
    ledger_opened(association->relay->input->ledger, line);
    for (struct kept *kept = association->kept; kept; kept = kept->next)
      send_out(association, kept->bytes, kept->length);
    break;
  }
  if (association->watch.fd < 0 && reason[0])
    refuse(association, reason);
  drop_kept(association);
}

static bool some_are_allowed(const struct association *association) {
  const struct resolved *resolved = association->resolved;
  char ignored[REASON_SIZE];
  for (size_t i = 0; i < resolved->count; i++) {
    if (guard_allows(association->relay->input->rules, association->host, &resolved->addresses[i],
                     association->target.port, ignored))
      return true;
  }
  return false;
}

static struct ledger_line *find_line(const struct association *association) {
  return ledger_find(association->relay->input->ledger, association->host, association->target.port,
                     true, association->allowed_by);
}

static void on_resolved(void *context, const struct resolved *resolved) {
  struct association *association = context;
  association->resolving = false;
  association->resolved = xmalloc(sizeof *resolved);
  *association->resolved = *resolved;
  bool allowed = some_are_allowed(association);
  struct ledger_line *line = allowed ? find_line(association) : NULL;
  if (!allowed || (line && line->recorded)) {
    open_first(association, line); /* or say why not */
    return;
  }
  association->recording = record_ask(association->relay, association->host,
                                      association->target.port, association->allowed_by);
  if (association->recording == 0)
    refuse(association, RECORD_FAILED);
}

void datagrams_recorded(struct relay *relay, const struct link_message *message) {
  for (struct association *at = relay->associations; at; at = at->next) {
    if (at->recording != message->id)
      continue;
    at->recording = 0;
    if (message->allowed)
      open_first(at, find_line(at));
    else
      refuse(at, message->reason);
  }
}

static void keep(struct association *association, const void *bytes, size_t length) {
  if (association->kept_count >= KEPT_LIMIT)
    return; /* datagrams may be lost */
  struct kept *kept = xmalloc(sizeof *kept + length), **last = &association->kept;
  *kept = (struct kept){.length = length};
  memcpy(kept->bytes, bytes, length);
  while (*last)
    last = &(*last)->next;
  *last = kept;
  association->kept_count++;
}

/* Who is meant, and may it be reached? */
static void start(struct association *association, const void *bytes, size_t length) {
  struct relay *relay = association->relay;
  const struct address *target = &association->target.address;
  const char *name = names_find(relay->names, target);
  char text[64];
  address_to_text(target, text);
  strcpy(association->host, name ? name : text);
  struct host_decision decision =
      name ? host_rules_name(relay->input->rules, name, association->target.port)
           : host_rules_address(relay->input->rules, target, association->target.port);
  if (decision.verdict != HOST_ALLOWED) {
    refuse(association, decision.rule ? decision.rule->written : "not in network.allow");
    return;
  }
  if (relay->input->upstream.kind != UPSTREAM_NONE) {
    refuse(association, "UDP does not go through an upstream proxy");
    return;
  }
  association->allowed_by = decision.rule ? decision.rule->written : "network.mode: full";
  keep(association, bytes, length);
  association->resolving = name != NULL;
  if (name)
    resolver_ask(relay->resolver, name, on_resolved, association);
  else
    on_resolved(association, &(struct resolved){.addresses = {*target}, .count = 1});
}

static bool same_endpoint(const struct endpoint *a, const struct endpoint *b) {
  return a->port == b->port && address_equal(&a->address, &b->address);
}

static void pass_out(struct relay *relay, const struct endpoint *client,
                     const struct endpoint *target, const void *bytes, size_t length) {
  struct association *at = relay->associations;
  while (at && !(same_endpoint(&at->client, client) && same_endpoint(&at->target, target)))
    at = at->next;
  bool is_new = !at;
  if (is_new) {
    if (relay->association_count >= relay->association_limit)
      end_oldest(relay);
    at = xcalloc(1, sizeof *at);
    *at = (struct association){.watch = {.fd = -1, .ready = on_outside},
                               .relay = relay,
                               .client = *client,
                               .target = *target};
    relay->association_count++;
  } else {
    unlink_association(at);
  }
  link_first(at); /* the oldest are the last */
  at->last_ms = loop_now_ms();
  if (is_new)
    start(at, bytes, length);
  else if (at->watch.fd >= 0)
    send_out(at, bytes, length);
  else if (at->resolving || at->recording)
    keep(at, bytes, length);
}

void datagrams_read(struct relay *relay, int fd) {
  for (int round = 0; round < ROUND_LIMIT; round++) {
    struct endpoint client, target;
    size_t length;
    if (!datagram_receive(fd, shared_buffer, SHARED_SIZE, &length, &client, &target))
      return;
    if (target.port != 0)
      pass_out(relay, &client, &target, shared_buffer, length);
  }
}
