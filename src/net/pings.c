/* Echo requests in mode full: heard inside by a raw socket, sent outside by the kernel's ping
 * sockets where the machine allows them, and answered inside as whole packets. */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "net/flow.h"
#include "net/guard.h"

#define PING_LIMIT  64 /* targets at the same time */
#define IDLE_MS     30000
#define ROUND_LIMIT 32
#define PING_SIZE   4096

enum { ECHO_HEAD = 8, V4_REQUEST = 8, V4_REPLY = 0, V6_REQUEST = 128, V6_REPLY = 129 };

struct ping {
  struct watch watch; /* outside, or without a socket while it is resolved or refused */
  struct ping *next;
  struct relay *relay;
  struct address client, target; /* as the workload sees them */
  char host[HOST_NAME_SIZE];     /* the target's name, or its address */
  uint8_t identifier[2];         /* the workload's; outside the kernel has its own */
  uint64_t last_ms;
  bool resolving, is_v6;
  uint32_t recording;     /* the audit log comes first; 0: nothing to wait for */
  const char *allowed_by; /* a rule as written, or constant text */
  struct ledger_line *line;
  struct resolved *resolved;  /* while it is written down */
  uint8_t waiting[PING_SIZE]; /* the request that waits for the name and the log */
  size_t waiting_length;
};

/* The session's own; see inside.c. */
static bool is_local(const struct address *address) {
  static const struct address loopback = {.family = 4, .bytes = {127}};
  static const struct address own[] = {
      {.family = 4, .bytes = {198, 19, 255, 254}},
      {.family = 6, .bytes = {[15] = 1}},
      {.family = 6, .bytes = {0xfd, 's', 'a', 'n', 'd', 'b', 'o', 'x', 1, [15] = 1}},
  };
  for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
    if (address_equal(address, &own[i]))
      return true;
  }
  return address_within(address, &loopback, 8);
}

static void reply(struct ping *ping, uint8_t *message, size_t length) {
  static uint8_t packet[PACKET_OVERHEAD + PING_SIZE];
  bool v6 = ping->client.family == 6;
  message[0] = v6 ? V6_REPLY : V4_REPLY;
  memcpy(message + 4, ping->identifier, 2);
  size_t size = packet_write_echo(&ping->target, &ping->client, message, length, packet);
  struct sockaddr_storage to;
  socklen_t to_size = address_to_sockaddr(&ping->client, 0, &to);
  (void)sendto(ping->relay->input->sockets[v6 ? INSIDE_RAW6 : INSIDE_RAW4], packet, size,
               MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to, to_size);
}

static void on_outside(struct watch *watch, uint32_t events) {
  struct ping *ping = (struct ping *)watch;
  (void)events;
  for (int round = 0; round < ROUND_LIMIT; round++) {
    uint8_t message[PING_SIZE];
    ssize_t got = recv(watch->fd, message, sizeof message, MSG_DONTWAIT);
    if (got < 0)
      return;
    if (got < ECHO_HEAD || (message[0] != V4_REPLY && message[0] != V6_REPLY))
      continue;
    ledger_carried(ping->relay->input->ledger, ping->line, false, (size_t)got);
    reply(ping, message, (size_t)got);
  }
}

static void send_out(struct ping *ping, const uint8_t *request, size_t length, bool v6) {
  uint8_t message[PING_SIZE];
  memcpy(message, request, length);
  message[0] = v6 ? V6_REQUEST : V4_REQUEST; /* a name may lead to the other family */
  if (send(ping->watch.fd, message, length, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
    ledger_carried(ping->relay->input->ledger, ping->line, true, length);
}

static bool open_way(struct ping *ping, const struct address *address) {
  struct sockaddr_storage target;
  socklen_t size = address_to_sockaddr(address, 0, &target);
  bool v6 = address->family == 6;
  int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                  v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
  if (fd < 0)
    return false; /* see net.ipv4.ping_group_range of the machine */
  ping->watch.fd = fd;
  ping->is_v6 = v6;
  if (connect(fd, (struct sockaddr *)&target, size) == 0 &&
      loop_add_level(&ping->relay->loop, &ping->watch, EPOLLIN) == 0)
    return true;
  close(fd);
  ping->watch.fd = -1;
  return false;
}

/* It stays, without a way out, until it has been idle: each of its requests would be refused. */
static void refuse(struct ping *ping, const char *reason) {
  struct relay *relay = ping->relay;
  relay->input->ledger->denied++;
  relay_note_denied(relay, &(struct refusal){.host = ping->host, .reason = reason});
}

static bool may_reach(const struct ping *ping, size_t index, char ret_reason[REASON_SIZE]) {
  return guard_allows(ping->relay->input->rules, ping->host, &ping->resolved->addresses[index], 0,
                      ret_reason);
}

/* To the first address that may be and can be reached. */
static void open_first(struct ping *ping, struct ledger_line *line) {
  struct ledger *ledger = ping->relay->input->ledger;
  char reason[REASON_SIZE] = "";
  for (size_t i = 0; ping->watch.fd < 0 && i < ping->resolved->count; i++) {
    if (!may_reach(ping, i, reason) || !open_way(ping, &ping->resolved->addresses[i]))
      continue;
    ping->line = line;
    ledger_opened(ledger, line);
    send_out(ping, ping->waiting, ping->waiting_length, ping->is_v6);
  }
  if (ping->watch.fd < 0 && reason[0])
    refuse(ping, reason);
  else if (ping->watch.fd < 0)
    ledger->failed++;
  free(ping->resolved);
  ping->resolved = NULL;
}

static bool some_are_allowed(const struct ping *ping) {
  char ignored[REASON_SIZE];
  for (size_t i = 0; i < ping->resolved->count; i++) {
    if (may_reach(ping, i, ignored))
      return true;
  }
  return false;
}

static struct ledger_line *find_line(const struct ping *ping) {
  return ledger_find(ping->relay->input->ledger, ping->host, 0, true, ping->allowed_by);
}

static void on_resolved(void *context, const struct resolved *resolved) {
  struct ping *ping = context;
  ping->resolving = false;
  ping->resolved = xmalloc(sizeof *resolved);
  *ping->resolved = *resolved;
  bool allowed = some_are_allowed(ping);
  struct ledger_line *line = allowed ? find_line(ping) : NULL;
  if (!allowed || (line && line->recorded)) {
    open_first(ping, line); /* or say why not */
    return;
  }
  ping->recording = record_ask(ping->relay, ping->host, 0, ping->allowed_by);
  if (ping->recording == 0)
    refuse(ping, RECORD_FAILED);
}

void pings_recorded(struct relay *relay, const struct link_message *message) {
  for (struct ping *at = relay->pings; at; at = at->next) {
    if (at->recording != message->id)
      continue;
    at->recording = 0;
    if (message->allowed)
      open_first(at, find_line(at));
    else
      refuse(at, message->reason);
  }
}

/* Who is meant, and may it be reached? */
static void start(struct ping *ping) {
  struct relay *relay = ping->relay;
  const char *name = names_find(relay->names, &ping->target);
  char text[64];
  address_to_text(&ping->target, text);
  strcpy(ping->host, name ? name : text);
  struct host_decision decision = name ? host_rules_name(relay->input->rules, name, 0)
                                       : host_rules_address(relay->input->rules, &ping->target, 0);
  if (decision.verdict != HOST_ALLOWED) {
    refuse(ping, decision.rule ? decision.rule->written : "not in network.allow");
    return;
  }
  if (relay->input->upstream.kind != UPSTREAM_NONE) {
    refuse(ping, "an echo request does not go through an upstream proxy");
    return;
  }
  ping->allowed_by = decision.rule ? decision.rule->written : "network.mode: full";
  ping->resolving = name != NULL;
  if (name)
    resolver_ask(relay->resolver, name, on_resolved, ping);
  else
    on_resolved(ping, &(struct resolved){.addresses = {ping->target}, .count = 1});
}

static struct ping *find(struct relay *relay, const struct address *client,
                         const struct address *target, const uint8_t *identifier) {
  struct ping *ping = relay->pings;
  while (ping && !(address_equal(&ping->client, client) && address_equal(&ping->target, target) &&
                   memcmp(ping->identifier, identifier, 2) == 0))
    ping = ping->next;
  return ping;
}

static void pass_out(struct relay *relay, const struct address *client,
                     const struct address *target, uint8_t *request, size_t length) {
  struct ping local = {.relay = relay, .client = *client, .target = *target};
  memcpy(local.identifier, request + 4, 2);
  if (is_local(target)) { /* the kernel was told not to answer */
    reply(&local, request, length);
    return;
  }
  struct ping *ping = find(relay, client, target, request + 4);
  if (!ping && relay->ping_count >= PING_LIMIT)
    return;
  if (ping) {
    ping->last_ms = loop_now_ms();
    if (ping->watch.fd >= 0)
      send_out(ping, request, length, ping->is_v6);
    return;
  }
  ping = xcalloc(1, sizeof *ping);
  *ping = local;
  ping->watch = (struct watch){.fd = -1, .ready = on_outside};
  ping->last_ms = loop_now_ms();
  memcpy(ping->waiting, request, length);
  ping->waiting_length = length;
  ping->next = relay->pings;
  relay->pings = ping;
  relay->ping_count++;
  start(ping);
}

void pings_tick(struct relay *relay, uint64_t now) {
  for (struct ping **link = &relay->pings; *link;) {
    struct ping *ping = *link;
    if (ping->resolving || ping->recording || now - ping->last_ms < IDLE_MS) {
      link = &ping->next;
      continue;
    }
    *link = ping->next;
    relay->ping_count--;
    loop_close(&relay->loop, &ping->watch);
    ledger_closed(relay->input->ledger, ping->line);
    free(ping->resolved);
    free(ping); /* between two rounds: no event points here */
  }
}

/* With IPv4 the packet's own head comes along. */
static size_t skip_head(const uint8_t *bytes, size_t length) {
  size_t head = length > 0 ? (size_t)(bytes[0] & 15) * 4 : 0;
  return head < length ? head : length;
}

void pings_read(struct relay *relay, int fd, bool v6) {
  for (int round = 0; round < ROUND_LIMIT; round++) {
    uint8_t bytes[PING_SIZE];
    size_t length;
    struct endpoint client, target;
    if (!datagram_receive(fd, bytes, sizeof bytes, &length, &client, &target))
      return;
    size_t head = v6 ? 0 : skip_head(bytes, length);
    if (length >= head + ECHO_HEAD && bytes[head] == (v6 ? V6_REQUEST : V4_REQUEST))
      pass_out(relay, &client.address, &target.address, bytes + head, length - head);
  }
}
