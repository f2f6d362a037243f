/* From a packet of the workload to a way outside; see ways.h. Nothing leaves before its line is in
 * the audit log. */
#include "net/ways.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "net/guard.h"

struct kept {
  struct kept *next;
  size_t length;
  char bytes[];
};

/* ---- birth and death ---- */

static void link_first(struct way *way, struct ways *among) {
  way->next = among->first;
  way->link = &among->first;
  if (way->next)
    way->next->link = &way->next;
  among->first = way;
}

static void unlink_way(struct way *way) {
  *way->link = way->next;
  if (way->next)
    way->next->link = way->link;
}

static void keep(struct way *way, const void *bytes, size_t length) {
  if (way->kept_count >= way->kind->kept_limit)
    return; /* packets may be lost */
  struct kept *kept = xmalloc(sizeof *kept + length), **last = &way->kept;
  *kept = (struct kept){.length = length};
  memcpy(kept->bytes, bytes, length);
  while (*last)
    last = &(*last)->next;
  *last = kept;
  way->kept_count++;
}

static void drop_kept(struct way *way) {
  while (way->kept) {
    struct kept *first = way->kept;
    way->kept = first->next;
    free(first);
  }
  way->kept_count = 0;
}

static void forget_addresses(struct way *way) {
  free(way->resolved);
  way->resolved = NULL;
}

static void end_way(struct way *way) {
  struct relay *relay = way->relay;
  if (way->gone)
    return;
  way->gone = true;
  if (way->resolving)
    resolver_withdraw(relay->resolver, way);
  loop_close(&relay->loop, &way->watch);
  drop_kept(way);
  forget_addresses(way);
  ledger_closed(relay->input->ledger, way->line);
  unlink_way(way);
  relay->ways[way->kind->list].count--;
  way->next_dead = relay->dead_ways;
  relay->dead_ways = way;
}

static void end_oldest(struct ways *among) {
  struct way *oldest = among->first;
  while (oldest && oldest->next)
    oldest = oldest->next;
  if (oldest)
    end_way(oldest);
}

void ways_free_dead(struct relay *relay) {
  while (relay->dead_ways) {
    struct way *first = relay->dead_ways;
    relay->dead_ways = first->next_dead;
    free(first);
  }
}

void ways_tick(struct relay *relay, uint64_t now) {
  struct way *next;
  for (size_t i = 0; i < WAYS; i++) {
    for (struct way *at = relay->ways[i].first; at; at = next) {
      next = at->next;
      if (now - at->last_ms > at->kind->idle_ms)
        end_way(at);
    }
  }
}

bool ways_any(const struct relay *relay) {
  for (size_t i = 0; i < WAYS; i++) {
    if (relay->ways[i].first)
      return true;
  }
  return false;
}

/* ---- once it is known who is meant ---- */

/* It stays, without a way out, until it has been idle: each of its packets would be refused. */
static void refuse(struct way *way, const char *reason) {
  way->relay->input->ledger->denied++;
  relay_note_denied(
      way->relay, &(struct refusal){.host = way->host, .port = way->target.port, .reason = reason});
  drop_kept(way);
}

static bool open_to(struct way *way, const struct address *address) {
  struct sockaddr_storage target;
  socklen_t size = address_to_sockaddr(address, way->target.port, &target);
  way->is_v6 = address->family == 6;
  way->watch.fd = way->kind->open(address);
  if (way->watch.fd < 0)
    return false;
  if (connect(way->watch.fd, (struct sockaddr *)&target, size) == 0 &&
      loop_add_level(&way->relay->loop, &way->watch, EPOLLIN) == 0)
    return true;
  close(way->watch.fd);
  way->watch.fd = -1;
  return false;
}

static bool may_reach(const struct way *way, size_t index, char ret_reason[REASON_SIZE]) {
  return guard_allows(way->relay->input->rules, way->host, &way->resolved->addresses[index],
                      way->target.port, ret_reason);
}

static bool some_are_allowed(const struct way *way) {
  char ignored[REASON_SIZE];
  for (size_t i = 0; i < way->resolved->count; i++) {
    if (may_reach(way, i, ignored))
      return true;
  }
  return false;
}

static void send_kept(struct way *way, struct ledger_line *line) {
  way->line = line;
  ledger_opened(way->relay->input->ledger, line);
  for (struct kept *kept = way->kept; kept; kept = kept->next)
    way->kind->send(way, kept->bytes, kept->length);
}

/* To the first address that may be and can be reached. */
static void open_first(struct way *way, struct ledger_line *line) {
  char reason[REASON_SIZE] = "";
  for (size_t i = 0; way->watch.fd < 0 && i < way->resolved->count; i++) {
    if (may_reach(way, i, reason) && open_to(way, &way->resolved->addresses[i]))
      send_kept(way, line);
  }
  if (way->watch.fd < 0 && reason[0])
    refuse(way, reason);
  else if (way->watch.fd < 0 && way->kind->counts_failures)
    way->relay->input->ledger->failed++;
  drop_kept(way);
  forget_addresses(way);
}

/* ---- the audit log comes first ---- */

static struct ledger_line *find_line(const struct way *way) {
  return ledger_find(way->relay->input->ledger, way->host, way->target.port, true, way->allowed_by);
}

static void on_resolved(void *context, const struct resolved *resolved) {
  struct way *way = context;
  way->resolving = false;
  way->resolved = xmalloc(sizeof *resolved);
  *way->resolved = *resolved;
  bool allowed = some_are_allowed(way);
  struct ledger_line *line = allowed ? find_line(way) : NULL;
  if (!allowed || (line && line->recorded)) {
    open_first(way, line); /* or say why not */
    return;
  }
  way->recording = record_ask(way->relay, way->host, way->target.port, way->allowed_by);
  if (way->recording == 0)
    refuse(way, RECORD_FAILED);
}

static void on_recorded(struct way *way, const struct link_message *message) {
  way->recording = 0;
  if (message->allowed)
    open_first(way, find_line(way));
  else
    refuse(way, message->reason);
}

void ways_recorded(struct relay *relay, const struct link_message *message) {
  for (size_t i = 0; i < WAYS; i++) {
    for (struct way *at = relay->ways[i].first; at; at = at->next) {
      if (at->recording == message->id)
        on_recorded(at, message);
    }
  }
}

/* ---- a packet from inside ---- */

/* Who is meant, and may it be reached? */
static void start(struct way *way, const void *bytes, size_t length) {
  struct relay *relay = way->relay;
  const struct endpoint *target = &way->target;
  const char *name = names_find(relay->names, &target->address);
  char text[64];
  address_to_text(&target->address, text);
  strcpy(way->host, name ? name : text);
  struct host_decision decision =
      name ? host_rules_name(relay->input->rules, name, target->port)
           : host_rules_address(relay->input->rules, &target->address, target->port);
  if (decision.verdict != HOST_ALLOWED) {
    refuse(way, decision.rule ? decision.rule->written : "not in network.allow");
    return;
  }
  if (relay->input->upstream.kind != UPSTREAM_NONE) {
    refuse(way, way->kind->no_upstream);
    return;
  }
  way->allowed_by = decision.rule ? decision.rule->written : "network.mode: full";
  keep(way, bytes, length);
  way->resolving = name != NULL;
  if (name)
    resolver_ask(relay->resolver, name, on_resolved, way);
  else
    on_resolved(way, &(struct resolved){.addresses = {target->address}, .count = 1});
}

static bool same_endpoint(const struct endpoint *a, const struct endpoint *b) {
  return a->port == b->port && address_equal(&a->address, &b->address);
}

static struct way *find(const struct ways *among, const struct endpoint *client,
                        const struct endpoint *target) {
  struct way *way = among->first;
  while (way && !(same_endpoint(&way->client, client) && same_endpoint(&way->target, target)))
    way = way->next;
  return way;
}

static void begin(struct relay *relay, const struct way *described, const void *bytes,
                  size_t length) {
  struct ways *among = &relay->ways[described->kind->list];
  if (among->count >= among->limit && !described->kind->oldest_goes)
    return;
  if (among->count >= among->limit)
    end_oldest(among);
  struct way *way = xcalloc(1, sizeof *way);
  *way = *described;
  way->relay = relay;
  way->watch = (struct watch){.fd = -1, .ready = way->kind->ready};
  way->last_ms = loop_now_ms();
  among->count++;
  link_first(way, among);
  start(way, bytes, length);
}

void ways_take(struct relay *relay, const struct way *described, const void *bytes, size_t length) {
  struct ways *among = &relay->ways[described->kind->list];
  struct way *way = find(among, &described->client, &described->target);
  if (!way) {
    begin(relay, described, bytes, length);
    return;
  }
  unlink_way(way);
  link_first(way, among); /* the oldest are the last */
  way->last_ms = loop_now_ms();
  if (way->watch.fd >= 0)
    way->kind->send(way, bytes, length);
  else if (way->resolving || way->recording)
    keep(way, bytes, length);
}

void way_answer(const struct relay *relay, const struct address *client, const void *packet,
                size_t length) {
  struct sockaddr_storage to;
  socklen_t size = address_to_sockaddr(client, 0, &to);
  (void)sendto(relay->input->sockets[client->family == 6 ? INSIDE_RAW6 : INSIDE_RAW4], packet,
               length, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to, size);
}
