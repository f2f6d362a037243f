/* veth: a pair of interfaces, one end in the session, routed and translated by the host's kernel.
 * The host's settings stay as they are: the pair is gone with the session's namespace, and
 * the rules belong to an nft process that ends with us. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "net/drivers/egress.h"
#include "net/drivers/minder.h"
#include "net/drivers/own.h"
#include "net/drivers/six.h"

#define FORWARDING  "/proc/sys/net/ipv4/ip_forward"
#define FORWARDING6 "/proc/sys/net/ipv6/conf/all/forwarding"
#define READY       1
/* Blocks of four addresses in 198.18.0.0/15, which the guard keeps for us and nobody routes. The
 * relay's own lie elsewhere: a session has one or the other. */
#define BLOCKS 16384u

static bool is_on(const char *setting) {
  _cleanup_free_ char *text = NULL;
  return file_read_at(AT_FDCWD, setting, 16, &text, NULL) == 0 && text[0] == '1';
}

static int probe_six(struct sb_error *error) {
  if (is_on(FORWARDING6))
    return 0;
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "this machine forwards no IPv6 packets");
  return sb_hint(error, "sudo sysctl -w net.ipv6.conf.all.forwarding=1, or use network.driver: "
                        "pasta, slirp4netns or auto");
}

static int probe(struct sb_error *error) {
  if (is_on(FORWARDING))
    return 0;
  /* Answers come in by the host's own interface, so the switch cannot be set for ours alone; and
   * it would make a router of the host for everybody. That is the owner's decision. */
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "network.driver veth: this machine forwards no packets");
  return sb_hint(error, "sudo sysctl -w net.ipv4.ip_forward=1, or use network.driver: pasta, "
                        "slirp4netns or auto");
}

/* ---- addresses ---- */

struct block {
  char network[32], host[32], inside[32];    /* of 30 bits */
  char network6[48], host6[48], inside6[48]; /* of 64 bits, unique local */
  bool six;
};

static void block_write6(unsigned number, struct block *ret_block) {
  char *const texts[] = {ret_block->network6, ret_block->host6, ret_block->inside6};
  static const char *const ends[] = {"", "1", "2"};
  for (unsigned i = 0; i < 3; i++)
    snprintf(texts[i], sizeof ret_block->network6, "fd73:6264:%x:%x::%s", number >> 16,
             number & 0xffff, ends[i]);
}

static void block_write(unsigned number, struct block *ret_block) {
  unsigned first = (198u << 24 | 18u << 16) + number % BLOCKS * 4;
  block_write6(number, ret_block);
  const unsigned bytes[] = {first >> 24, first >> 16 & 255, first >> 8 & 255, first & 255};
  char *const texts[] = {ret_block->network, ret_block->host, ret_block->inside};
  for (unsigned i = 0; i < 3; i++)
    snprintf(texts[i], sizeof ret_block->network, "%u.%u.%u.%u", bytes[0], bytes[1], bytes[2],
             bytes[3] + i);
}

static bool overlap(const struct own_network *own, const struct address *ours, unsigned bits) {
  return address_within(&own->address, ours, bits) ||
         address_within(ours, &own->address, own->bits);
}

static bool is_taken(const struct block *block, const struct own_network *own, size_t count) {
  struct address ours, ours6;
  address_parse(block->host, strlen(block->host), &ours);
  address_parse(block->host6, strlen(block->host6), &ours6);
  for (size_t i = 0; i < count; i++) {
    if (overlap(&own[i], &ours, 30) || overlap(&own[i], &ours6, 64))
      return true;
  }
  return false;
}

/* By the session's id, which is random; the next if somebody has it. */
static bool choose_block(const char *session_id, struct block *ret_block) {
  unsigned number = 0;
  for (const char *at = session_id; *at; at++)
    number = number * 31 + (unsigned char)*at;
  size_t count;
  _cleanup_free_ struct own_network *own = NULL;
  if (own_networks(&own, &count) < 0)
    return false;
  for (unsigned i = 0; i < 64; i++) {
    block_write(number + i, ret_block);
    if (!is_taken(ret_block, own, count))
      return true;
  }
  return false;
}

/* ---- the pair ---- */

static void name_interface(const char *session_id, char ret_name[16]) {
  snprintf(ret_name, 16, "sb%.12s", session_id);
}

static int make_pair(struct driver_run *run, const char *name) {
  char *const argv[] = {run->tools[0],
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
  return driver_command(run, DRIVER_OUTSIDE, argv, NULL);
}

static int configure_pair(struct driver_run *run, const char *name, const struct block *block) {
  char *const batch[] = {run->tools[0], "-batch", "-", NULL};
  _cleanup_free_ char *six =
      block->six ? xasprintf("address add %s/64 dev %s nodad\n", block->host6, name) : xstrdup("");
  _cleanup_free_ char *outside =
      xasprintf("address add %s/30 dev %s\nlink set %s up\n%s", block->host, name, name, six);
  if (driver_command(run, DRIVER_OUTSIDE, batch, outside) < 0)
    return -1;
  const char *end = run->request->driver->interface;
  _cleanup_free_ char *inside =
      xasprintf("address add %s/30 dev %s\nlink set %s up\nroute add default via %s\n",
                block->inside, end, end, block->host);
  if (driver_command(run, DRIVER_INSIDE, batch, inside) < 0)
    return -1;
  return block->six ? six_configure(run, &(struct six_address){block->inside6, block->host6}) : 0;
}

/* nft takes each line it reads for a command, and answers the second when it has done the first. */
static int translate(struct driver_run *run, const char *table, const char *interface,
                     const struct block *block) {
  struct egress_host host = {table, interface, block->network, block->six ? block->network6 : NULL};
  _cleanup_free_ char *rules = egress_translation(run->request->egress.rules, &host);
  for (char *at = rules; (at = strchr(at, '\n'));)
    *at = ';';
  _cleanup_free_ char *input = xasprintf("%s\nlist table inet %s\n", rules, table);
  char *const argv[] = {run->nft, "-i", NULL};
  struct driver_service service = {.argv = argv, .input = input, .ready = READY};
  return driver_serve(run, &service);
}

static int start(struct driver_run *run) {
  struct block block;
  char name[16], table[40];
  if (!choose_block(run->request->session_id, &block)) {
    snprintf(run->problem, sizeof run->problem, "no free addresses below 198.18.0.0/15");
    return -1;
  }
  name_interface(run->request->session_id, name);
  snprintf(table, sizeof table, "sandbox_%.16s", run->request->session_id);
  /* The rules first: without them nothing of the session may pass. */
  block.six = six_is_there(run->request->driver);
  if (translate(run, table, name, &block) < 0)
    return -1;
  return make_pair(run, name) < 0 ? -1 : configure_pair(run, name, &block);
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
    .probe_six = probe_six,
    .start = start,
    .cut = cut,
};
