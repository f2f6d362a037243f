/* Names and addresses as the relay sees them: one strict parser for every place where a workload
 * or a policy names a host. Pure. What is not plainly a name or an address is refused. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define HOST_NAME_SIZE 254 /* 253 characters and the NUL */
#define REASON_SIZE    400 /* a rule, or why something was refused */

struct address {
  uint8_t family; /* 4, 6 or 0: none */
  uint8_t bytes[16];
};

/* Letters, digits and hyphens, labels of 1 to 63, 253 in all; lower-cased, one dot at the end taken
 * away. A NUL, space, control character, "%00", underscore or non-ASCII byte is refused; so is a
 * last label that is a number, decimal or hexadecimal, which some take for an address. */
bool host_parse(const char *text, size_t length, char ret_name[HOST_NAME_SIZE]);

/* Dotted quad (four decimal numbers, no leading zeros) or IPv6, with or without brackets. */
bool address_parse(const char *text, size_t length, struct address *ret_address);

/* 1 to 65535, digits only. */
bool port_parse(const char *text, size_t length, uint16_t *ret_port);

/* Splits "host:port", "[v6]:port", "host" and "v6". Without a port *ret_port is untouched. The host
 * points into the text, brackets taken away. */
bool authority_split(const char *text, size_t length, const char **ret_host, size_t *ret_length,
                     uint16_t *ret_port);

bool address_equal(const struct address *a, const struct address *b);

/* True if the first `bits` bits are those of the network. */
bool address_within(const struct address *address, const struct address *network, unsigned bits);

/* An IPv4 address written as IPv6 (::ffff:a.b.c.d) becomes IPv4. */
struct address address_unmapped(const struct address *address);

/* True if it is an IPv6 address that carries an IPv4 address (mapped, NAT64, translated, 6to4):
 * whoever takes it may end up there. */
bool address_carried(const struct address *address, struct address *ret_carried);

/* All networks that carry this network of IPv4, one after the other; false beyond the last. */
bool address_carrier(size_t index, const struct address *network, unsigned bits,
                     struct address *ret_network, unsigned *ret_bits);

/* "host:port", with brackets around an IPv6 address: as a rule has it. */
#define AUTHORITY_SIZE (HOST_NAME_SIZE + 10)
void authority_to_text(const char *host, unsigned port, char ret_text[AUTHORITY_SIZE]);

void address_to_text(const struct address *address, char ret_text[64]);

struct address address_from_sockaddr(const struct sockaddr_storage *from, uint16_t *ret_port);
socklen_t address_to_sockaddr(const struct address *address, uint16_t port,
                              struct sockaddr_storage *ret);
