/* Whole IP packets; see packet.h. RFC 791, 8200, 768. */
#include "net/packet.h"

#include <netinet/in.h>
#include <string.h>

enum { V4_SIZE = 20, V6_SIZE = 40, UDP_SIZE = 8, TTL = 64 };

static void put16(uint8_t *at, size_t value) {
  at[0] = (uint8_t)(value >> 8);
  at[1] = (uint8_t)value;
}

static uint32_t sum_up(uint32_t sum, const uint8_t *bytes, size_t length) {
  for (size_t i = 0; i + 1 < length; i += 2)
    sum += (uint32_t)(bytes[i] << 8 | bytes[i + 1]);
  if (length % 2)
    sum += (uint32_t)bytes[length - 1] << 8;
  while (sum >> 16)
    sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

/* The kernel fills in the checksum of this header. */
static void write_v4(const struct address *from, const struct address *to, uint8_t protocol,
                     size_t size, uint8_t *at) {
  at[0] = 0x45;
  put16(at + 2, V4_SIZE + size);
  at[8] = TTL;
  at[9] = protocol;
  memcpy(at + 12, from->bytes, 4);
  memcpy(at + 16, to->bytes, 4);
}

static void write_v6(const struct address *from, const struct address *to, uint8_t protocol,
                     size_t size, uint8_t *at) {
  at[0] = 0x60;
  put16(at + 4, size);
  at[6] = protocol;
  at[7] = TTL;
  memcpy(at + 8, from->bytes, 16);
  memcpy(at + 24, to->bytes, 16);
}

size_t packet_write(const struct endpoint *from, const struct endpoint *to, const void *payload,
                    size_t length, uint8_t *ret_packet) {
  bool v6 = to->address.family == 6;
  size_t head = v6 ? V6_SIZE : V4_SIZE, size = UDP_SIZE + length;
  uint8_t *udp = ret_packet + head;
  memset(ret_packet, 0, head + UDP_SIZE);
  (v6 ? write_v6 : write_v4)(&from->address, &to->address, IPPROTO_UDP, size, ret_packet);
  put16(udp, from->port);
  put16(udp + 2, to->port);
  put16(udp + 4, size);
  memcpy(udp + UDP_SIZE, payload, length);
  /* Over the addresses, the protocol, the length and the datagram. */
  size_t addresses = v6 ? 16 : 4;
  uint32_t sum = sum_up(IPPROTO_UDP + (uint32_t)size, from->address.bytes, addresses);
  sum = sum_up(sum, to->address.bytes, addresses);
  sum = ~sum_up(sum, udp, size) & 0xffff;
  put16(udp + 6, sum ? sum : 0xffff);
  return head + size;
}

size_t packet_write_echo(const struct address *from, const struct address *to, uint8_t *message,
                         size_t length, uint8_t *ret_packet) {
  bool v6 = to->family == 6;
  size_t head = v6 ? V6_SIZE : V4_SIZE;
  uint8_t protocol = v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
  memset(ret_packet, 0, head);
  (v6 ? write_v6 : write_v4)(from, to, protocol, length, ret_packet);
  put16(message + 2, 0);
  uint32_t sum = 0;
  if (v6) { /* there it covers the addresses, too */
    sum = sum_up(protocol + (uint32_t)length, from->bytes, 16);
    sum = sum_up(sum, to->bytes, 16);
  }
  put16(message + 2, ~sum_up(sum, message, length) & 0xffff);
  memcpy(ret_packet + head, message, length);
  return head + length;
}
