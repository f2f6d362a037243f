/* Whole IP packets with a UDP datagram in them: answers that must come from the address and port
 * that was asked. Pure. */
#pragma once

#include "net/address.h"

#define PACKET_OVERHEAD 48 /* of the longer one, IPv6 */
#define PACKET_PAYLOAD  65000

struct endpoint {
  struct address address;
  uint16_t port;
};

/* Returns the packet's length; both addresses are of one family. */
size_t packet_write(const struct endpoint *from, const struct endpoint *to, const void *payload,
                    size_t length, uint8_t *ret_packet);

/* The same for an ICMP message, whose checksum is filled in. */
size_t packet_write_echo(const struct address *from, const struct address *to, uint8_t *message,
                         size_t length, uint8_t *ret_packet);
