/* What a plan says about the network. */
#pragma once

#include "net/drivers/driver.h"
#include "net/match.h"
#include "policy/policy.h"

/* An upstream proxy through which everything goes. */
struct upstream {
  enum { UPSTREAM_NONE, UPSTREAM_HTTP, UPSTREAM_SOCKS } kind;
  char host[HOST_NAME_SIZE];
  uint16_t port;
};

#define NAME_SERVERS 3 /* so many does the C library ask */

struct network_settings {
  enum policy_network mode;
  struct host_rules *rules; /* NULL in mode none */
  struct upstream upstream;
  bool may_ask;                              /* what no rule names may be asked about */
  const struct net_driver *driver;           /* in place of the relay; NULL: the relay */
  bool resolves;                             /* with a driver: names are answered by us */
  struct address name_servers[NAME_SERVERS]; /* with a driver: else, whom programs ask */
  size_t name_server_count;
};

/* "host:port", "http://host:port", "socks5://host:port", or a port of this machine. What is wrong
 * with it, or NULL. */
const char *upstream_parse(const char *text, bool socks, struct upstream *ret_upstream);
