/* Names and addresses; see address.h. */
#include "net/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "core/cleanup.h"

static bool is_digits(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (!isdigit((unsigned char)text[i]))
      return false;
  }
  return length > 0;
}

/* "80", "0x50", "0x": inet_aton takes a name that ends in one for an address, and so do programs
 * that use it (https://url.spec.whatwg.org/#ends-in-a-number-checker). */
static bool is_number(const char *label, size_t length) {
  if (length < 2 || label[0] != '0' || label[1] != 'x')
    return is_digits(label, length);
  for (size_t i = 2; i < length; i++) {
    if (!isxdigit((unsigned char)label[i]))
      return false;
  }
  return true;
}

/* One label, lower-cased into `ret`. */
static bool take_label(const char *text, size_t length, char *ret) {
  if (length < 1 || length > 63 || text[0] == '-' || text[length - 1] == '-')
    return false;
  for (size_t i = 0; i < length; i++) {
    char c = text[i];
    if (c >= 'A' && c <= 'Z')
      c = (char)(c + ('a' - 'A'));
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'))
      return false;
    ret[i] = c;
  }
  return true;
}

bool host_parse(const char *text, size_t length, char ret_name[HOST_NAME_SIZE]) {
  char name[HOST_NAME_SIZE];
  if (length > 0 && text[length - 1] == '.')
    length--;
  if (length < 1 || length >= HOST_NAME_SIZE)
    return false;
  size_t start = 0;
  for (size_t end = 0; end <= length; end++) {
    if (end < length && text[end] != '.')
      continue;
    if (!take_label(text + start, end - start, name + start))
      return false;
    if (end == length)
      break;
    name[end] = '.';
    start = end + 1;
  }
  if (is_number(name + start, length - start))
    return false;
  name[length] = '\0';
  memcpy(ret_name, name, length + 1);
  return true;
}

bool address_parse(const char *text, size_t length, struct address *ret_address) {
  char copy[INET6_ADDRSTRLEN];
  if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
    text++;
    length -= 2;
    if (!memchr(text, ':', length))
      return false;
  }
  if (length == 0 || length >= sizeof copy || memchr(text, '\0', length))
    return false;
  memcpy(copy, text, length);
  copy[length] = '\0';
  struct address address = {.family = strchr(copy, ':') ? 6 : 4};
  if (inet_pton(address.family == 6 ? AF_INET6 : AF_INET, copy, address.bytes) != 1)
    return false;
  *ret_address = address;
  return true;
}

bool port_parse(const char *text, size_t length, uint16_t *ret_port) {
  if (length > 5 || !is_digits(text, length))
    return false;
  unsigned port = 0;
  for (size_t i = 0; i < length; i++)
    port = port * 10 + (unsigned)(text[i] - '0');
  if (port < 1 || port > 65535)
    return false;
  *ret_port = (uint16_t)port;
  return true;
}

bool authority_split(const char *text, size_t length, const char **ret_host, size_t *ret_length,
                     uint16_t *ret_port) {
  const char *end = text + length, *port = NULL;
  const char *host_end = end;
  if (length > 0 && text[0] == '[') {
    const char *close = memchr(text, ']', length);
    if (!close || (close + 1 < end && close[1] != ':'))
      return false;
    port = close + 1 < end ? close + 2 : NULL;
    host_end = close;
    text++;
  } else {
    const char *colon = memchr(text, ':', length);
    if (colon && !memchr(colon + 1, ':', (size_t)(end - colon) - 1)) {
      port = colon + 1;
      host_end = colon;
    } /* more than one colon: an IPv6 address without a port */
  }
  if (host_end == text || (port && !port_parse(port, (size_t)(end - port), ret_port)))
    return false;
  *ret_host = text;
  *ret_length = (size_t)(host_end - text);
  return true;
}

static size_t size_of(const struct address *address) {
  return address->family == 6 ? 16 : address->family == 4 ? 4 : 0;
}

bool address_equal(const struct address *a, const struct address *b) {
  return a->family == b->family && memcmp(a->bytes, b->bytes, size_of(a)) == 0;
}

bool address_within(const struct address *address, const struct address *network, unsigned bits) {
  if (address->family != network->family || bits > size_of(address) * 8)
    return false;
  unsigned whole = bits / 8, rest = bits % 8;
  if (memcmp(address->bytes, network->bytes, whole) != 0)
    return false;
  uint8_t mask = (uint8_t)(0xff00u >> rest);
  return rest == 0 || ((address->bytes[whole] ^ network->bytes[whole]) & mask) == 0;
}

/* Networks that carry an IPv4 address, and where. The first is IPv4 itself, written as IPv6. */
static const struct {
  struct address network;
  unsigned bits, offset;
} carriers[] = {
    {{.family = 6, .bytes = {[10] = 0xff, [11] = 0xff}}, 96, 12}, /* mapped */
    {{.family = 6, .bytes = {0, 0x64, 0xff, 0x9b}}, 96, 12},      /* NAT64 */
    {{.family = 6, .bytes = {[8] = 0xff, [9] = 0xff}}, 96, 12},   /* translated (SIIT) */
    {{.family = 6, .bytes = {0x20, 0x02}}, 16, 2},                /* 6to4 */
};

bool address_carried(const struct address *address, struct address *ret_carried) {
  for (size_t i = 0; i < ARRAY_SIZE(carriers); i++) {
    if (!address_within(address, &carriers[i].network, carriers[i].bits))
      continue;
    struct address carried = {.family = 4};
    memcpy(carried.bytes, address->bytes + carriers[i].offset, 4);
    *ret_carried = carried;
    return true;
  }
  return false;
}

bool address_carrier(size_t index, const struct address *network, unsigned bits,
                     struct address *ret_network, unsigned *ret_bits) {
  if (index >= ARRAY_SIZE(carriers))
    return false;
  *ret_network = carriers[index].network;
  memcpy(ret_network->bytes + carriers[index].offset, network->bytes, 4);
  *ret_bits = carriers[index].offset * 8 + bits;
  return true;
}

struct address address_unmapped(const struct address *address) {
  struct address plain = *address;
  if (address_within(address, &carriers[0].network, carriers[0].bits))
    (void)address_carried(address, &plain);
  return plain;
}

void address_to_text(const struct address *address, char ret_text[64]) {
  if (!inet_ntop(address->family == 6 ? AF_INET6 : AF_INET, address->bytes, ret_text, 64))
    strcpy(ret_text, "?");
}

void authority_to_text(const char *host, unsigned port, char ret_text[AUTHORITY_SIZE]) {
  bool v6 = strchr(host, ':') != NULL;
  snprintf(ret_text, AUTHORITY_SIZE, "%s%.*s%s:%u", v6 ? "[" : "", HOST_NAME_SIZE - 1, host,
           v6 ? "]" : "", port & 0xffff);
}

struct address address_from_sockaddr(const struct sockaddr_storage *from, uint16_t *ret_port) {
  struct address address = {0};
  if (from->ss_family == AF_INET6) {
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;
    address.family = 6;
    memcpy(address.bytes, &v6->sin6_addr, 16);
    *ret_port = ntohs(v6->sin6_port);
  } else if (from->ss_family == AF_INET) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
    address.family = 4;
    memcpy(address.bytes, &v4->sin_addr, 4);
    *ret_port = ntohs(v4->sin_port);
  }
  return address_unmapped(&address);
}

socklen_t address_to_sockaddr(const struct address *address, uint16_t port,
                              struct sockaddr_storage *ret) {
  memset(ret, 0, sizeof *ret);
  if (address->family == 6) {
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    memcpy(&v6->sin6_addr, address->bytes, 16);
    return sizeof *v6;
  }
  struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
  v4->sin_family = AF_INET;
  v4->sin_port = htons(port);
  memcpy(&v4->sin_addr, address->bytes, 4);
  return sizeof *v4;
}
