/* The guard on addresses; see guard.h. */
#include "net/guard.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/cleanup.h"
#include "net/routes.h"

#define V4(a, b, c, d)                                                                             \
  {                                                                                                \
    .family = 4, .bytes = { a, b, c, d }                                                           \
  }

static const struct {
  struct address network;
  unsigned bits;
  const char *reason;
} guarded[] = {
    {V4(0, 0, 0, 0), 8, "an address of this machine"},
    {V4(127, 0, 0, 0), 8, "loopback"},
    {V4(169, 254, 0, 0), 16, "link-local, where cloud metadata lives"},
    {V4(10, 0, 0, 0), 8, "a private network"},
    {V4(172, 16, 0, 0), 12, "a private network"},
    {V4(192, 168, 0, 0), 16, "a private network"},
    {V4(100, 64, 0, 0), 10, "a carrier's or cloud's private network"},
    {V4(168, 63, 129, 16), 32, "cloud metadata"},
    {V4(192, 0, 0, 0), 24, "reserved"},
    {V4(192, 88, 99, 0), 24, "a 6to4 relay"},
    {V4(198, 18, 0, 0), 15, "reserved for benchmarks, and for our own answers"},
    {V4(224, 0, 0, 0), 4, "multicast"},
    {V4(240, 0, 0, 0), 4, "reserved, or broadcast"},
    {{.family = 6}, 127, "loopback"}, /* :: and ::1 */
    {{.family = 6}, 96, "reserved"},  /* IPv4-compatible, which nobody uses any more */
    {{.family = 6, .bytes = {0xfe, 0x80}}, 10, "link-local"},
    {{.family = 6, .bytes = {0xfe, 0xc0}}, 10, "a private network"},
    {{.family = 6, .bytes = {0xfc}}, 7, "a private network"},
    {{.family = 6, .bytes = {0xff}}, 8, "multicast"},
    {{.family = 6, .bytes = {0x20, 0x01, 0, 0}}, 32, "a Teredo tunnel"},
    {{.family = 6, .bytes = {[0] = 0x5f}}, 16, "reserved"},
    {{.family = 6, .bytes = {0x01}}, 64, "reserved, and discarded"},
    /* Local-use NAT64: any /96 below it may lead to any IPv4 address. */
    {{.family = 6, .bytes = {0, 0x64, 0xff, 0x9b, 0, 1}}, 48, "a local NAT64 prefix"},
};

static const char *look_up(const struct address *address) {
  for (size_t i = 0; i < ARRAY_SIZE(guarded); i++) {
    if (address_within(address, &guarded[i].network, guarded[i].bits))
      return guarded[i].reason;
  }
  return NULL;
}

const char *guard_reason(const struct address *address) {
  struct address carried;
  const char *reason = look_up(address);
  return !reason && address_carried(address, &carried) ? look_up(&carried) : reason;
}

bool guard_network(size_t index, struct address *ret_network, unsigned *ret_bits) {
  size_t place = index % ARRAY_SIZE(guarded), round = index / ARRAY_SIZE(guarded);
  const struct address *network = &guarded[place].network;
  *ret_network = *network;
  *ret_bits = guarded[place].bits;
  if (round == 0)
    return true;
  bool found = address_carrier(round - 1, network, guarded[place].bits, ret_network, ret_bits);
  if (network->family != 4)
    ret_network->family = 0; /* nothing carries these */
  return found;
}

static int prepared = -1; /* a line to the kernel */

int guard_prepare(void) {
  prepared = routes_open();
  return prepared < 0 ? prepared : 0;
}

static bool ask_kernel(const struct address *address) {
  _cleanup_close_ int own = prepared < 0 ? routes_open() : -1;
  struct address carried;
  int line = prepared < 0 ? own : prepared;
  /* 0 alone is a clear no */
  return line < 0 || routes_ask(line, address) != 0 ||
         (address_carried(address, &carried) && routes_ask(line, &carried) != 0);
}

/* True if the address, or an IPv4 address that it carries, leads to this machine, or if that cannot
 * be told. Addresses come and go with networks and tunnels, but not so often that many connections
 * to one host would each have to ask. */
static bool is_own(const struct address *address) {
  static struct address last;
  static time_t last_second;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  if (now.tv_sec == last_second && address_equal(address, &last))
    return false;
  if (ask_kernel(address))
    return true;
  last = *address;
  last_second = now.tv_sec;
  return false;
}

bool guard_allows(const struct host_rules *rules, const char *host, const struct address *address,
                  uint16_t port, char ret_reason[REASON_SIZE]) {
  char text[64];
  address_to_text(address, text);
  struct host_decision decision = host_rules_address(rules, address, port);
  if (decision.verdict == HOST_DENIED) {
    snprintf(ret_reason, REASON_SIZE, "%.100s is %s: %.200s", host, text, decision.rule->written);
    return false;
  }
  if (host_rules_list_address(rules, address, port))
    return true;
  const char *problem = guard_reason(address);
  if (!problem && is_own(address))
    problem = "an address of this machine";
  char authority[AUTHORITY_SIZE];
  authority_to_text(text, port, authority);
  if (problem)
    snprintf(ret_reason, REASON_SIZE, "leads to %.63s: %s; to allow it, list %s itself", text,
             problem, port ? authority : text);
  return !problem;
}
