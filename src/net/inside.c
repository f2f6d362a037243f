/* The relay's end inside the session; see inside.h. Netlink by hand: through libnftables the rules
 * take ten times as long as the rest of the start. */
#include "net/inside.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/icmp.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "net/netlink.h"

#define LOOPBACK_INDEX   1 /* in every new network namespace */
#define TABLE            "sandbox"
#define CHAIN            "relay"
#define RELAY_MARK       1
#define TCP_FLAGS_OFFSET 13 /* in its header */
/* In here no packet is ever lost and nothing needs pacing: where the machine's default is BBR, its
 * timers would take a third of the throughput. Every kernel has this one, for everybody. */
#define CONGESTION "reno"

/* As much may wait for the workload in memory; more than a processor's cache holds would be copied
 * from main memory. */
#define WINDOW (384 * 1024)

static const uint8_t loopback_network[] = {127};
static const uint8_t resolver_address[] = {127, 0, 0, 53};
static const uint8_t relay_address[] = {127, 0, 0, 1};
static const uint8_t loopback6[16] = {[15] = 1};
/* The session's own, in the ranges of the synthetic ones (names.c), where no name comes to lie. */
static const uint8_t own_address[] = {198, 19, 255, 254};
static const uint8_t own_address6[16] = {0xfd, 's', 'a', 'n', 'd', 'b', 'o', 'x', 1, [15] = 1};

/* ---- messages ---- */

static int exchange(int protocol, const struct netlink_buffer *buffer) {
  _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
  return fd < 0 ? -errno : netlink_exchange(fd, buffer);
}

/* ---- routes: every address is here ---- */

static void add_route(struct netlink_buffer *buffer, uint8_t family) {
  size_t message = netlink_begin(buffer, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK);
  struct rtmsg *route = netlink_append(buffer, sizeof *route);
  *route = (struct rtmsg){.rtm_family = family,
                          .rtm_table = RT_TABLE_LOCAL,
                          .rtm_protocol = RTPROT_BOOT,
                          .rtm_scope = RT_SCOPE_HOST,
                          .rtm_type = RTN_LOCAL};
  uint32_t device = LOOPBACK_INDEX, window = WINDOW;
  netlink_put(buffer, RTA_OIF, &device, sizeof device);
  size_t metrics =
      netlink_begin_nest(buffer, RTA_METRICS); /* of the workload's end of a connection */
  netlink_put_text(buffer, RTAX_CC_ALGO, CONGESTION);
  netlink_put(buffer, RTAX_WINDOW, &window, sizeof window);
  netlink_end_nest(buffer, metrics);
  netlink_end(buffer, message);
}

/* With loopback addresses alone the C library takes the machine for one without a network, and
 * answers no question for one family (AI_ADDRCONFIG). */
static void add_address(struct netlink_buffer *buffer, uint8_t family, const void *address,
                        size_t size) {
  size_t message = netlink_begin(buffer, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK);
  struct ifaddrmsg *head = netlink_append(buffer, sizeof *head);
  *head = (struct ifaddrmsg){.ifa_family = family,
                             .ifa_prefixlen = (uint8_t)(size * 8),
                             .ifa_flags = family == AF_INET6 ? IFA_F_NODAD : 0,
                             .ifa_index = LOOPBACK_INDEX};
  netlink_put(buffer, IFA_LOCAL, address, size);
  netlink_put(buffer, IFA_ADDRESS, address, size);
  netlink_end(buffer, message);
}

static int add_routes(bool v6) {
  struct netlink_buffer buffer = {0};
  add_address(&buffer, AF_INET, own_address, sizeof own_address);
  add_route(&buffer, AF_INET);
  if (v6) {
    add_address(&buffer, AF_INET6, own_address6, sizeof own_address6);
    add_route(&buffer, AF_INET6);
  }
  return exchange(NETLINK_ROUTE, &buffer);
}

/* ---- rules ---- */

static void add_table_and_chain(struct netlink_buffer *buffer) {
  size_t message =
      netlink_begin_nft(buffer, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_ACK, NFPROTO_INET);
  netlink_put_text(buffer, NFTA_TABLE_NAME, TABLE);
  netlink_end(buffer, message);
  message = netlink_begin_nft(buffer, NFT_MSG_NEWCHAIN, NLM_F_CREATE, NFPROTO_INET);
  netlink_put_text(buffer, NFTA_CHAIN_TABLE, TABLE);
  netlink_put_text(buffer, NFTA_CHAIN_NAME, CHAIN);
  size_t hook = netlink_begin_nest(buffer, NFTA_CHAIN_HOOK);
  netlink_put_number(buffer, NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
  netlink_put_number(buffer, NFTA_HOOK_PRIORITY, (uint32_t)-150);
  netlink_end_nest(buffer, hook);
  netlink_put_text(buffer, NFTA_CHAIN_TYPE, "filter");
  netlink_end(buffer, message);
}

/* One expression of a rule: its name, then its own attributes, which the caller adds. */
struct expression {
  size_t element, data;
};

static struct expression begin_expression(struct netlink_buffer *buffer, const char *name) {
  struct expression expression = {.element = netlink_begin_nest(buffer, NFTA_LIST_ELEM)};
  netlink_put_text(buffer, NFTA_EXPR_NAME, name);
  expression.data = netlink_begin_nest(buffer, NFTA_EXPR_DATA);
  return expression;
}

static void end_expression(struct netlink_buffer *buffer, struct expression expression) {
  netlink_end_nest(buffer, expression.data);
  netlink_end_nest(buffer, expression.element);
}

static void put_value(struct netlink_buffer *buffer, uint16_t type, const void *value,
                      size_t size) {
  size_t data = netlink_begin_nest(buffer, type);
  netlink_put(buffer, NFTA_DATA_VALUE, value, size);
  netlink_end_nest(buffer, data);
}

static void add_compare(struct netlink_buffer *buffer, const void *value, size_t size) {
  struct expression expression = begin_expression(buffer, "cmp");
  netlink_put_number(buffer, NFTA_CMP_SREG, NFT_REG_1);
  netlink_put_number(buffer, NFTA_CMP_OP, NFT_CMP_EQ);
  put_value(buffer, NFTA_CMP_DATA, value, size);
  end_expression(buffer, expression);
}

static void match_meta(struct netlink_buffer *buffer, uint32_t key, const void *value,
                       size_t size) {
  struct expression expression = begin_expression(buffer, "meta");
  netlink_put_number(buffer, NFTA_META_DREG, NFT_REG_1);
  netlink_put_number(buffer, NFTA_META_KEY, key);
  end_expression(buffer, expression);
  add_compare(buffer, value, size);
}

static void load_payload(struct netlink_buffer *buffer, uint32_t base, uint32_t offset,
                         size_t size) {
  struct expression expression = begin_expression(buffer, "payload");
  netlink_put_number(buffer, NFTA_PAYLOAD_DREG, NFT_REG_1);
  netlink_put_number(buffer, NFTA_PAYLOAD_BASE, base);
  netlink_put_number(buffer, NFTA_PAYLOAD_OFFSET, offset);
  netlink_put_number(buffer, NFTA_PAYLOAD_LEN, (uint32_t)size);
  end_expression(buffer, expression);
}

static void match_payload(struct netlink_buffer *buffer, uint32_t base, uint32_t offset,
                          const void *value, size_t size) {
  load_payload(buffer, base, offset, size);
  add_compare(buffer, value, size);
}

static void match_tcp_flag(struct netlink_buffer *buffer, uint8_t flag) {
  static const uint8_t nothing = 0;
  load_payload(buffer, NFT_PAYLOAD_TRANSPORT_HEADER, TCP_FLAGS_OFFSET, sizeof flag);
  struct expression expression = begin_expression(buffer, "bitwise");
  netlink_put_number(buffer, NFTA_BITWISE_SREG, NFT_REG_1);
  netlink_put_number(buffer, NFTA_BITWISE_DREG, NFT_REG_1);
  netlink_put_number(buffer, NFTA_BITWISE_LEN, sizeof flag);
  put_value(buffer, NFTA_BITWISE_MASK, &flag, sizeof flag);
  put_value(buffer, NFTA_BITWISE_XOR, &nothing, sizeof nothing);
  end_expression(buffer, expression);
  add_compare(buffer, &flag, sizeof flag);
}

static void load(struct netlink_buffer *buffer, uint32_t into, const void *value, size_t size) {
  struct expression expression = begin_expression(buffer, "immediate");
  netlink_put_number(buffer, NFTA_IMMEDIATE_DREG, into);
  put_value(buffer, NFTA_IMMEDIATE_DATA, value, size);
  end_expression(buffer, expression);
}

static void return_verdict(struct netlink_buffer *buffer) {
  struct expression expression = begin_expression(buffer, "immediate");
  netlink_put_number(buffer, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
  size_t data = netlink_begin_nest(buffer, NFTA_IMMEDIATE_DATA);
  size_t verdict = netlink_begin_nest(buffer, NFTA_DATA_VERDICT);
  netlink_put_number(buffer, NFTA_VERDICT_CODE, (uint32_t)NFT_RETURN);
  netlink_end_nest(buffer, verdict);
  netlink_end_nest(buffer, data);
  end_expression(buffer, expression);
}

/* ---- the table of rules ---- */

enum { ONLY_FULL = 1 }; /* datagrams are carried in mode full alone */

static const struct rule {
  uint8_t family;             /* NFPROTO_INET: both */
  const uint8_t *destination; /* begins with this, or NULL */
  size_t destination_size;
  uint8_t protocol; /* 0: any */
  uint16_t port;    /* of the destination; 0: any */
  const uint8_t *to;
  uint16_t to_port; /* 0: left alone */
  unsigned when;
  uint32_t mark;       /* 0: any */
  uint8_t acknowledge; /* this bit of TCP's flags; 0: any */
} rules[] = {
    /* A connection that is under way has its socket; only who begins one must be led. First of all:
     * this is every packet but one. */
    {NFPROTO_INET, NULL, 0, IPPROTO_TCP, 0, NULL, 0, 0, 0, TH_ACK},
    /* what the relay sends itself */
    {NFPROTO_INET, NULL, 0, 0, 0, NULL, 0, ONLY_FULL, RELAY_MARK},
    /* whoever a question is for, we answer it; also without any resolv.conf: that means loopback */
    {NFPROTO_IPV4, NULL, 0, IPPROTO_UDP, RESOLVER_PORT, resolver_address, RESOLVER_PORT},
    {NFPROTO_IPV6, NULL, 0, IPPROTO_UDP, RESOLVER_PORT, loopback6, RESOLVER_PORT},
    {NFPROTO_IPV4, NULL, 0, IPPROTO_TCP, RESOLVER_PORT, relay_address, RELAY_PORT},
    {NFPROTO_IPV6, NULL, 0, IPPROTO_TCP, RESOLVER_PORT, loopback6, RELAY_PORT},
    {NFPROTO_IPV4, loopback_network, 1, 0, 0, NULL, 0},
    {NFPROTO_IPV6, loopback6, 16, 0, 0, NULL, 0},
    {NFPROTO_IPV4, own_address, 4, 0, 0, NULL, 0},
    {NFPROTO_IPV6, own_address6, 16, 0, 0, NULL, 0},
    {NFPROTO_IPV4, NULL, 0, IPPROTO_TCP, 0, relay_address, RELAY_PORT},
    {NFPROTO_IPV6, NULL, 0, IPPROTO_TCP, 0, loopback6, RELAY_PORT},
    {NFPROTO_IPV4, NULL, 0, IPPROTO_UDP, 0, relay_address, RELAY_PORT, ONLY_FULL},
    {NFPROTO_IPV6, NULL, 0, IPPROTO_UDP, 0, loopback6, RELAY_PORT, ONLY_FULL},
    /* any other datagram finds no socket: "port unreachable" */
};

static void lead_to(struct netlink_buffer *buffer, const struct rule *rule) {
  uint16_t port = htons(rule->to_port);
  load(buffer, NFT_REG_1, rule->to, rule->family == NFPROTO_IPV6 ? 16 : 4);
  load(buffer, NFT_REG_2, &port, sizeof port);
  struct expression expression = begin_expression(buffer, "tproxy");
  netlink_put_number(buffer, NFTA_TPROXY_FAMILY, rule->family);
  netlink_put_number(buffer, NFTA_TPROXY_REG_ADDR, NFT_REG_1);
  netlink_put_number(buffer, NFTA_TPROXY_REG_PORT, NFT_REG_2);
  end_expression(buffer, expression);
}

static void add_rule(struct netlink_buffer *buffer, const struct rule *rule) {
  size_t message =
      netlink_begin_nft(buffer, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, NFPROTO_INET);
  netlink_put_text(buffer, NFTA_RULE_TABLE, TABLE);
  netlink_put_text(buffer, NFTA_RULE_CHAIN, CHAIN);
  size_t expressions = netlink_begin_nest(buffer, NFTA_RULE_EXPRESSIONS);
  if (rule->mark)
    match_meta(buffer, NFT_META_MARK, &rule->mark, sizeof rule->mark);
  if (rule->family != NFPROTO_INET)
    match_meta(buffer, NFT_META_NFPROTO, &rule->family, sizeof rule->family);
  if (rule->destination)
    match_payload(buffer, NFT_PAYLOAD_NETWORK_HEADER, rule->family == NFPROTO_IPV6 ? 24 : 16,
                  rule->destination, rule->destination_size);
  if (rule->protocol)
    match_meta(buffer, NFT_META_L4PROTO, &rule->protocol, sizeof rule->protocol);
  if (rule->port) {
    uint16_t port = htons(rule->port);
    match_payload(buffer, NFT_PAYLOAD_TRANSPORT_HEADER, 2, &port, sizeof port);
  }
  if (rule->acknowledge)
    match_tcp_flag(buffer, rule->acknowledge);
  if (rule->to_port)
    lead_to(buffer, rule);
  else
    return_verdict(buffer);
  netlink_end_nest(buffer, expressions);
  netlink_end(buffer, message);
}

static int add_rules(bool v6, bool full) {
  struct netlink_buffer buffer = {0};
  netlink_add_edge(&buffer, NFNL_MSG_BATCH_BEGIN);
  add_table_and_chain(&buffer);
  for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
    if ((v6 || rules[i].family != NFPROTO_IPV6) && (full || rules[i].when != ONLY_FULL))
      add_rule(&buffer, &rules[i]);
  }
  netlink_add_edge(&buffer, NFNL_MSG_BATCH_END);
  return exchange(NETLINK_NETFILTER, &buffer);
}

/* ---- sockets ---- */

static const struct socket_kind {
  int family, type, protocol;
  const uint8_t *address; /* NULL: not bound */
  uint16_t port;
  bool only_full;
} kinds[INSIDE_SOCKETS] = {
    [INSIDE_TCP4] = {AF_INET, SOCK_STREAM, 0, relay_address, RELAY_PORT},
    [INSIDE_UDP4] = {AF_INET, SOCK_DGRAM, 0, resolver_address, RESOLVER_PORT},
    [INSIDE_TCP6] = {AF_INET6, SOCK_STREAM, 0, loopback6, RELAY_PORT},
    [INSIDE_UDP6] = {AF_INET6, SOCK_DGRAM, 0, loopback6, RESOLVER_PORT},
    [INSIDE_DATAGRAMS4] = {AF_INET, SOCK_DGRAM, 0, relay_address, RELAY_PORT, true},
    [INSIDE_RAW4] = {AF_INET, SOCK_RAW, IPPROTO_RAW, NULL, 0, true},
    [INSIDE_DATAGRAMS6] = {AF_INET6, SOCK_DGRAM, 0, loopback6, RELAY_PORT, true},
    [INSIDE_RAW6] = {AF_INET6, SOCK_RAW, IPPROTO_RAW, NULL, 0, true},
    [INSIDE_PING4] = {AF_INET, SOCK_RAW, IPPROTO_ICMP, NULL, 0, true},
    [INSIDE_PING6] = {AF_INET6, SOCK_RAW, IPPROTO_ICMPV6, NULL, 0, true},
};

static int set_option(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value) < 0 ? -errno : 0;
}

/* IP_TRANSPARENT is what the rules look for, and lets answers come from foreign addresses. */
static int make_transparent(int fd, const struct socket_kind *kind) {
  bool v6 = kind->family == AF_INET6;
  int level = v6 ? SOL_IPV6 : SOL_IP;
  int result = set_option(fd, level, v6 ? IPV6_TRANSPARENT : IP_TRANSPARENT, 1);
  if (result == 0 && v6)
    result = set_option(fd, SOL_IPV6, IPV6_V6ONLY, 1);
  if (result == 0 && kind->type == SOCK_DGRAM)
    result = set_option(fd, level, v6 ? IPV6_RECVORIGDSTADDR : IP_RECVORIGDSTADDR, 1);
  return result;
}

/* Sends whole packets, from whatever address; the mark keeps the rules from leading them back. */
static int make_raw(int fd, const struct socket_kind *kind) {
  int result = set_option(fd, SOL_SOCKET, SO_MARK, RELAY_MARK);
  if (result == 0)
    result = set_option(fd, SOL_SOCKET, SO_RCVBUF, 0); /* it only sends */
  if (result == 0 && kind->family == AF_INET6)
    result = set_option(fd, SOL_IPV6, IPV6_HDRINCL, 1);
  return result;
}

/* Hears the workload's echo requests, which the kernel itself would otherwise answer for every
 * address of the world. */
static int make_ping(int fd, const struct socket_kind *kind) {
  if (kind->family == AF_INET) {
    struct icmp_filter only_requests = {.data = ~(1u << ICMP_ECHO)};
    if (setsockopt(fd, SOL_RAW, ICMP_FILTER, &only_requests, sizeof only_requests) < 0)
      return -errno;
    return set_option(fd, SOL_IP, IP_PKTINFO, 1);
  }
  struct icmp6_filter filter;
  ICMP6_FILTER_SETBLOCKALL(&filter);
  ICMP6_FILTER_SETPASS(ICMP6_ECHO_REQUEST, &filter);
  if (setsockopt(fd, IPPROTO_ICMPV6, ICMP6_FILTER, &filter, sizeof filter) < 0)
    return -errno;
  return set_option(fd, SOL_IPV6, IPV6_RECVPKTINFO, 1);
}

static int make_special(int fd, const struct socket_kind *kind) {
  if (kind->type != SOCK_RAW)
    return make_transparent(fd, kind);
  return kind->protocol == IPPROTO_RAW ? make_raw(fd, kind) : make_ping(fd, kind);
}

static int bind_socket(int fd, const struct socket_kind *kind) {
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(kind->port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(kind->port)};
  bool is_v6 = kind->family == AF_INET6;
  if (is_v6)
    memcpy(&v6.sin6_addr, kind->address, 16);
  else
    memcpy(&v4.sin_addr, kind->address, 4);
  if (bind(fd, is_v6 ? (const struct sockaddr *)&v6 : (const struct sockaddr *)&v4,
           is_v6 ? sizeof v6 : sizeof v4) < 0)
    return -errno;
  if (kind->type != SOCK_STREAM)
    return 0;
  /* what is accepted inherits these */
  (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, CONGESTION, strlen(CONGESTION));
  return set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1) < 0 || listen(fd, 4096) < 0 ? -errno : 0;
}

static int open_socket(const struct socket_kind *kind) {
  _cleanup_close_ int fd =
      socket(kind->family, kind->type | SOCK_CLOEXEC | SOCK_NONBLOCK, kind->protocol);
  if (fd < 0)
    return -errno;
  int result = make_special(fd, kind);
  if (result == 0 && kind->address)
    result = bind_socket(fd, kind);
  return result < 0 ? result : steal_fd(&fd);
}

static int open_sockets(int ret_sockets[INSIDE_SOCKETS], bool full, bool *ret_v6) {
  *ret_v6 = true;
  for (int i = 0; i < INSIDE_SOCKETS; i++) {
    bool v6 = kinds[i].family == AF_INET6;
    if ((kinds[i].only_full && !full) || (v6 && !*ret_v6))
      continue;
    int fd = open_socket(&kinds[i]);
    if (v6 && (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)) {
      *ret_v6 = false; /* switched off on this machine */
      continue;
    }
    if (fd < 0)
      return fd;
    ret_sockets[i] = fd;
  }
  return 0;
}

static void write_setting(const char *path, const char *text) {
  _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
  ssize_t ignored = fd < 0 ? 0 : write(fd, text, strlen(text));
  (void)ignored; /* read-only in some containers: then `ping` is answered by the session itself,
                    and low ports stay root's */
}

void inside_allow_ping(unsigned group, bool answer) {
  char range[32];
  snprintf(range, sizeof range, "%u %u", group, group);
  write_setting("/proc/sys/net/ipv4/ping_group_range", range);
  if (answer)
    return;
  write_setting("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1");
  write_setting("/proc/sys/net/ipv6/icmp/echo_ignore_all", "1");
}

void inside_allow_ports(void) {
  write_setting("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
}

int inside_prepare_questions(int ret_sockets[INSIDE_SOCKETS]) {
  static const struct socket_kind stream = {AF_INET, SOCK_STREAM, 0, resolver_address,
                                            RESOLVER_PORT};
  for (int i = 0; i < INSIDE_SOCKETS; i++)
    ret_sockets[i] = -1;
  int fd = open_socket(&stream);
  if (fd < 0)
    return fd;
  ret_sockets[INSIDE_TCP4] = fd;
  fd = open_socket(&kinds[INSIDE_UDP4]);
  if (fd < 0)
    close(ret_sockets[INSIDE_TCP4]);
  else
    ret_sockets[INSIDE_UDP4] = fd;
  return fd < 0 ? fd : 0;
}

int inside_prepare(bool full, int ret_sockets[INSIDE_SOCKETS]) {
  bool v6;
  for (int i = 0; i < INSIDE_SOCKETS; i++)
    ret_sockets[i] = -1;
  int result = open_sockets(ret_sockets, full, &v6);
  if (result == 0)
    result = add_rules(v6, full);
  if (result == 0)
    result = add_routes(v6);
  for (int i = 0; result < 0 && i < INSIDE_SOCKETS; i++) {
    if (ret_sockets[i] >= 0)
      close(ret_sockets[i]);
    ret_sockets[i] = -1;
  }
  return result;
}
