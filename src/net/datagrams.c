/* UDP in mode full: one socket outside for each pair of client and target. Datagrams of the
 * workload arrive on one socket, with the address they were for; answers go back as whole packets
 * from that address. */
#include <netinet/in.h>

#include "net/packet.h"
#include "net/ways.h"

#define ROUND_LIMIT 64

static int open_socket(const struct address *address) {
  return socket(address->family == 6 ? AF_INET6 : AF_INET,
                SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static void send_out(struct way *way, const void *bytes, size_t length) {
  if (send(way->watch.fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
    ledger_carried(way->relay->input->ledger, way->line, true, length);
}

static void on_outside(struct watch *watch, uint32_t events) {
  struct way *way = (struct way *)watch;
  static uint8_t packet[PACKET_OVERHEAD + PACKET_PAYLOAD];
  (void)events;
  for (int round = 0; round < ROUND_LIMIT; round++) {
    ssize_t got = recv(watch->fd, shared_buffer, PACKET_PAYLOAD, MSG_DONTWAIT);
    if (got < 0)
      return; /* nothing more, or "port unreachable", which is the client's to find out */
    way->last_ms = loop_now_ms();
    size_t length = packet_write(&way->target, &way->client, shared_buffer, (size_t)got, packet);
    way_answer(way->relay, &way->client.address, packet, length);
    ledger_carried(way->relay->input->ledger, way->line, false, (size_t)got);
  }
}

static const struct way_kind datagrams = {
    .list = WAYS_DATAGRAMS,
    .no_upstream = "UDP does not go through an upstream proxy",
    .idle_ms = 60000,
    .kept_limit = 4,
    .oldest_goes = true,
    .open = open_socket,
    .send = send_out,
    .ready = on_outside,
};

void datagrams_read(struct relay *relay, int fd) {
  for (int round = 0; round < ROUND_LIMIT; round++) {
    struct way way = {.kind = &datagrams};
    size_t length;
    if (!datagram_receive(fd, shared_buffer, SHARED_SIZE, &length, &way.client, &way.target))
      return;
    if (way.target.port != 0)
      ways_take(relay, &way, shared_buffer, length);
  }
}
