/* veth: a pair of interfaces, one end in the session, routed and translated by the host's kernel.
 * IPv4. The host's settings stay as they are: the pair is gone with the session's namespace, and
 * the rules belong to an nft process that ends with us. */
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "net/drivers/egress.h"
#include "net/drivers/minder.h"

#define FORWARDING "/proc/sys/net/ipv4/ip_forward"
#define READY      1
/* Blocks of four addresses in 198.18.0.0/15, which the guard keeps for us and nobody routes. The
 * relay's own lie elsewhere: a session has one or the other. */
#define BLOCKS 16384u

static int probe(struct sb_error *error) {
  _cleanup_free_ char *text = NULL;
  if (file_read_at(AT_FDCWD, FORWARDING, 16, &text, NULL) == 0 && text[0] == '1')
    return 0;
  /* Answers come in by the host's own interface, so the switch cannot be set for ours alone; and
   * it would make a router of the host for everybody. That is the owner's decision. */
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "network.driver veth: this machine forwards no packets");
  return sb_hint(error, "sudo sysctl -w net.ipv4.ip_forward=1, or use network.driver: pasta, "
                        "slirp4netns or auto");
}

/* ---- addresses ---- */

struct block {
  char network[32], host[32], inside[32];
};

static void block_write(unsigned number, struct block *ret_block) {
  unsigned first = (198u << 24 | 18u << 16) + number * 4;
  const unsigned bytes[] = {first >> 24, first >> 16 & 255, first >> 8 & 255, first & 255};
  char *const texts[] = {ret_block->network, ret_block->host, ret_block->inside};
  for (unsigned i = 0; i < 3; i++)
    snprintf(texts[i], sizeof ret_block->network, "%u.%u.%u.%u", bytes[0], bytes[1], bytes[2],
             bytes[3] + i);
}

static bool is_taken(const struct block *block, const struct ifaddrs *addresses) {
  struct address ours;
  address_parse(block->host, strlen(block->host), &ours);
  for (const struct ifaddrs *at = addresses; at; at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET)
      continue;
    struct sockaddr_storage storage = {0};
    memcpy(&storage, at->ifa_addr, sizeof(struct sockaddr_in));
    uint16_t port;
    struct address theirs = address_from_sockaddr(&storage, &port);
    if (address_within(&theirs, &ours, 30))
      return true;
  }
  return false;
}

/* By the session's id, which is random; the next if somebody has it. */
static bool choose_block(const char *session_id, struct block *ret_block) {
  unsigned number = 0;
  for (const char *at = session_id; *at; at++)
    number = number * 31 + (unsigned char)*at;
  struct ifaddrs *addresses = NULL;
  if (getifaddrs(&addresses) < 0)
    return false;
  bool found = false;
  for (unsigned i = 0; !found && i < 64; i++) {
    block_write((number + i) % BLOCKS, ret_block);
    found = !is_taken(ret_block, addresses);
  }
  freeifaddrs(addresses);
  return found;
}

/* ---- the pair ---- */

static void name_interface(const char *session_id, char ret_name[16]) {
  snprintf(ret_name, 16, "sb%.12s", session_id);
}

static int make_pair(struct driver_run *run, const char *name, const struct block *block) {
  char *ip = run->tools[0];
  char script[512];
  char *const make[] = {ip,
                        "link",
                        "add",
                        (char *)name,
                        "type",
                        "veth",
                        "peer",
                        "name",
                        (char *)run->request->driver->interface,
                        "netns",
                        "/proc/self/fd/0",
                        NULL};
  if (driver_command(run, DRIVER_OUTSIDE, make, NULL) < 0)
    return -1;
  char *const batch[] = {ip, "-batch", "-", NULL};
  snprintf(script, sizeof script, "address add %s/30 dev %s\nlink set %s up\n", block->host, name,
           name);
  if (driver_command(run, DRIVER_OUTSIDE, batch, script) < 0)
    return -1;
  const char *inside = run->request->driver->interface;
  snprintf(script, sizeof script,
           "address add %s/30 dev %s\nlink set %s up\nroute add default via %s\n", block->inside,
           inside, inside, block->host);
  return driver_command(run, DRIVER_INSIDE, batch, script);
}

/* nft takes each line it reads for a command, and answers the second when it has done the first. */
static int translate(struct driver_run *run, const char *table, const char *interface,
                     const char *network) {
  _cleanup_free_ char *rules =
      egress_translation(run->request->egress.rules, table, interface, network);
  for (char *at = rules; (at = strchr(at, '\n'));)
    *at = ';';
  _cleanup_free_ char *input = xasprintf("%s\nlist table inet %s\n", rules, table);
  char *const argv[] = {run->nft, "-i", NULL};
  struct driver_service service = {.argv = argv, .input = input, .ready = READY};
  return driver_serve(run, &service);
}

static int start(struct driver_run *run) {
  struct block block;
  char name[16], network[40], table[40];
  if (!choose_block(run->request->session_id, &block)) {
    snprintf(run->problem, sizeof run->problem, "no free addresses below 198.18.0.0/15");
    return -1;
  }
  name_interface(run->request->session_id, name);
  snprintf(network, sizeof network, "%s/30", block.network);
  snprintf(table, sizeof table, "sandbox_%.16s", run->request->session_id);
  /* The rules first: without them nothing of the session may pass. */
  if (translate(run, table, name, network) < 0)
    return -1;
  return make_pair(run, name, &block);
}

/* Without its rules the session's packets would leave with an address that nobody answers to; with
 * the pair gone they do not leave. */
static void cut(const char *session_id) {
  char name[16];
  name_interface(session_id, name);
  _cleanup_free_ char *ip = tool_find("ip"), *ignored = NULL;
  if (ip)
    (void)tool_ask((char *[]){ip, "link", "delete", name, NULL}, 5, &ignored);
}

const struct net_driver veth_driver = {
    .name = "veth",
    .interface = "eth0",
    .by_root = true,
    .tools = {{"ip", "iproute2"}},
    .probe = probe,
    .start = start,
    .cut = cut,
};
