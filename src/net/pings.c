/* Echo requests in mode full: heard inside by a raw socket, sent outside by the kernel's ping
 * sockets where the machine allows them, and answered inside as whole packets. The identifier of a
 * request is its client's port; outside the kernel has its own. */
#include <netinet/in.h>
#include <string.h>

#include "core/cleanup.h"
#include "net/packet.h"
#include "net/ways.h"

#define ROUND_LIMIT 32
#define PING_SIZE   4096

enum { ECHO_HEAD = 8, V4_REQUEST = 8, V4_REPLY = 0, V6_REQUEST = 128, V6_REPLY = 129 };

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

/* See net.ipv4.ping_group_range of the machine. */
static int open_socket(const struct address *address) {
  bool v6 = address->family == 6;
  return socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
}

static void send_out(struct way *way, const void *request, size_t length) {
  uint8_t message[PING_SIZE];
  memcpy(message, request, length);
  message[0] = way->is_v6 ? V6_REQUEST : V4_REQUEST;
  if (send(way->watch.fd, message, length, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
    ledger_carried(way->relay->input->ledger, way->line, true, length);
}

static void reply(const struct relay *relay, const struct way *way, uint8_t *message,
                  size_t length) {
  static uint8_t packet[PACKET_OVERHEAD + PING_SIZE];
  const struct address *client = &way->client.address;
  message[0] = client->family == 6 ? V6_REPLY : V4_REPLY;
  memcpy(message + 4, &way->client.port, 2);
  size_t size = packet_write_echo(&way->target.address, client, message, length, packet);
  way_answer(relay, client, packet, size);
}

static void on_outside(struct watch *watch, uint32_t events) {
  struct way *way = (struct way *)watch;
  (void)events;
  for (int round = 0; round < ROUND_LIMIT; round++) {
    uint8_t message[PING_SIZE];
    ssize_t got = recv(watch->fd, message, sizeof message, MSG_DONTWAIT);
    if (got < 0)
      return;
    if (got < ECHO_HEAD || (message[0] != V4_REPLY && message[0] != V6_REPLY))
      continue;
    ledger_carried(way->relay->input->ledger, way->line, false, (size_t)got);
    reply(way->relay, way, message, (size_t)got);
  }
}

static const struct way_kind echoes = {
    .list = WAYS_PINGS,
    .no_upstream = "an echo request does not go through an upstream proxy",
    .idle_ms = 30000,
    .kept_limit = 1,
    .counts_failures = true,
    .open = open_socket,
    .send = send_out,
    .ready = on_outside,
};

/* With IPv4 the packet's own head comes along. */
static size_t skip_head(const uint8_t *bytes, size_t length) {
  size_t head = length > 0 ? (size_t)(bytes[0] & 15) * 4 : 0;
  return head < length ? head : length;
}

void pings_read(struct relay *relay, int fd, bool v6) {
  for (int round = 0; round < ROUND_LIMIT; round++) {
    uint8_t bytes[PING_SIZE];
    size_t length;
    struct way way = {.kind = &echoes};
    if (!datagram_receive(fd, bytes, sizeof bytes, &length, &way.client, &way.target))
      return;
    size_t head = v6 ? 0 : skip_head(bytes, length);
    if (length < head + ECHO_HEAD || bytes[head] != (v6 ? V6_REQUEST : V4_REQUEST))
      continue;
    memcpy(&way.client.port, bytes + head + 4, 2);
    if (is_local(&way.target.address)) /* the kernel was told not to answer */
      reply(relay, &way, bytes + head, length - head);
    else
      ways_take(relay, &way, bytes + head, length - head);
  }
}
