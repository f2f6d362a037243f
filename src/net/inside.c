/* The relay's end inside the session; see inside.h. Netlink by hand: through libnftables the rules
 * take ten times as long as the rest of the start. */
#include "net/inside.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/cleanup.h"

#define LOOPBACK_INDEX 1 /* in every new network namespace */
#define TABLE          "sandbox"
#define CHAIN          "relay"

static const uint8_t loopback_network[] = {127};
static const uint8_t resolver_address[] = {127, 0, 0, 53};
static const uint8_t relay_address[] = {127, 0, 0, 1};
static const uint8_t loopback6[16] = {[15] = 1};
/* The session's own, in the ranges of the synthetic ones (names.c), where no name comes to lie. */
static const uint8_t own_address[] = {198, 19, 255, 254};
static const uint8_t own_address6[16] = {0xfd, 's', 'a', 'n', 'd', 'b', 'o', 'x', 1, [15] = 1};

/* ---- messages ---- */

struct buffer {
  _Alignas(8) char bytes[8192];
  size_t length;
  uint32_t sequence;
};

static void *append(struct buffer *buffer, size_t size) {
  void *at = buffer->bytes + buffer->length; /* all sizes are constants; the sum is below 8 KiB */
  memset(at, 0, NLMSG_ALIGN(size));
  buffer->length += NLMSG_ALIGN(size);
  return at;
}

static size_t begin_message(struct buffer *buffer, uint16_t type, uint16_t flags) {
  size_t start = buffer->length;
  struct nlmsghdr *header = append(buffer, sizeof *header);
  header->nlmsg_type = type;
  header->nlmsg_flags = NLM_F_REQUEST | flags;
  header->nlmsg_seq = ++buffer->sequence;
  return start;
}

static void end_message(struct buffer *buffer, size_t start) {
  ((struct nlmsghdr *)(buffer->bytes + start))->nlmsg_len = (uint32_t)(buffer->length - start);
}

static void put(struct buffer *buffer, uint16_t type, const void *data, size_t size) {
  struct nlattr *attribute = append(buffer, NLA_HDRLEN + size);
  attribute->nla_type = type;
  attribute->nla_len = (uint16_t)(NLA_HDRLEN + size);
  memcpy((char *)attribute + NLA_HDRLEN, data, size);
}

static void put_text(struct buffer *buffer, uint16_t type, const char *text) {
  put(buffer, type, text, strlen(text) + 1);
}

static void put_number(struct buffer *buffer, uint16_t type, uint32_t value) {
  uint32_t big_endian = htonl(value);
  put(buffer, type, &big_endian, sizeof big_endian);
}

static size_t begin_nest(struct buffer *buffer, uint16_t type) {
  size_t start = buffer->length;
  struct nlattr *attribute = append(buffer, NLA_HDRLEN);
  attribute->nla_type = type | NLA_F_NESTED;
  return start;
}

static void end_nest(struct buffer *buffer, size_t start) {
  ((struct nlattr *)(buffer->bytes + start))->nla_len = (uint16_t)(buffer->length - start);
}

/* Sends all and reads every answer: the kernel has worked it off when send returns. */
static int exchange(int protocol, const struct buffer *buffer) {
  _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
  if (fd < 0 || send(fd, buffer->bytes, buffer->length, 0) < 0)
    return -errno;
  int result = -EPROTO; /* without a single answer nothing was done */
  for (;;) {
    _Alignas(8) char answers[8192];
    ssize_t length = recv(fd, answers, sizeof answers, MSG_DONTWAIT);
    if (length < 0)
      return result;
    for (struct nlmsghdr *header = (struct nlmsghdr *)answers; NLMSG_OK(header, length);
         header = NLMSG_NEXT(header, length)) {
      const struct nlmsgerr *answer = NLMSG_DATA(header);
      if (header->nlmsg_type != NLMSG_ERROR)
        continue;
      if (answer->error < 0)
        return answer->error;
      result = 0;
    }
  }
}

/* ---- routes: every address is here ---- */

static void add_route(struct buffer *buffer, uint8_t family) {
  size_t message = begin_message(buffer, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK);
  struct rtmsg *route = append(buffer, sizeof *route);
  *route = (struct rtmsg){.rtm_family = family,
                          .rtm_table = RT_TABLE_LOCAL,
                          .rtm_protocol = RTPROT_BOOT,
                          .rtm_scope = RT_SCOPE_HOST,
                          .rtm_type = RTN_LOCAL};
  uint32_t device = LOOPBACK_INDEX;
  put(buffer, RTA_OIF, &device, sizeof device);
  end_message(buffer, message);
}

/* With loopback addresses alone the C library takes the machine for one without a network, and
 * answers no question for one family (AI_ADDRCONFIG). */
static void add_address(struct buffer *buffer, uint8_t family, const void *address, size_t size) {
  size_t message = begin_message(buffer, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK);
  struct ifaddrmsg *head = append(buffer, sizeof *head);
  *head = (struct ifaddrmsg){.ifa_family = family,
                             .ifa_prefixlen = (uint8_t)(size * 8),
                             .ifa_flags = family == AF_INET6 ? IFA_F_NODAD : 0,
                             .ifa_index = LOOPBACK_INDEX};
  put(buffer, IFA_LOCAL, address, size);
  put(buffer, IFA_ADDRESS, address, size);
  end_message(buffer, message);
}

static int add_routes(bool v6) {
  struct buffer buffer = {0};
  add_address(&buffer, AF_INET, own_address, sizeof own_address);
  add_route(&buffer, AF_INET);
  if (v6) {
    add_address(&buffer, AF_INET6, own_address6, sizeof own_address6);
    add_route(&buffer, AF_INET6);
  }
  return exchange(NETLINK_ROUTE, &buffer);
}

/* ---- rules ---- */

static size_t begin_nft(struct buffer *buffer, uint16_t type, uint16_t flags, uint8_t family) {
  size_t start = begin_message(buffer, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags);
  struct nfgenmsg *head = append(buffer, sizeof *head);
  head->nfgen_family = family;
  return start;
}

static void add_batch_edge(struct buffer *buffer, uint16_t type) {
  size_t start = begin_message(buffer, type, 0);
  struct nfgenmsg *head = append(buffer, sizeof *head);
  head->res_id = htons(NFNL_SUBSYS_NFTABLES);
  end_message(buffer, start);
}

static void add_table_and_chain(struct buffer *buffer) {
  size_t message = begin_nft(buffer, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_ACK, NFPROTO_INET);
  put_text(buffer, NFTA_TABLE_NAME, TABLE);
  end_message(buffer, message);
  message = begin_nft(buffer, NFT_MSG_NEWCHAIN, NLM_F_CREATE, NFPROTO_INET);
  put_text(buffer, NFTA_CHAIN_TABLE, TABLE);
  put_text(buffer, NFTA_CHAIN_NAME, CHAIN);
  size_t hook = begin_nest(buffer, NFTA_CHAIN_HOOK);
  put_number(buffer, NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
  put_number(buffer, NFTA_HOOK_PRIORITY, (uint32_t)-150);
  end_nest(buffer, hook);
  put_text(buffer, NFTA_CHAIN_TYPE, "filter");
  end_message(buffer, message);
}

/* One expression of a rule: its name, then its own attributes, which the caller adds. */
struct expression {
  size_t element, data;
};

static struct expression begin_expression(struct buffer *buffer, const char *name) {
  struct expression expression = {.element = begin_nest(buffer, NFTA_LIST_ELEM)};
  put_text(buffer, NFTA_EXPR_NAME, name);
  expression.data = begin_nest(buffer, NFTA_EXPR_DATA);
  return expression;
}

static void end_expression(struct buffer *buffer, struct expression expression) {
  end_nest(buffer, expression.data);
  end_nest(buffer, expression.element);
}

static void put_value(struct buffer *buffer, uint16_t type, const void *value, size_t size) {
  size_t data = begin_nest(buffer, type);
  put(buffer, NFTA_DATA_VALUE, value, size);
  end_nest(buffer, data);
}

static void add_compare(struct buffer *buffer, const void *value, size_t size) {
  struct expression expression = begin_expression(buffer, "cmp");
  put_number(buffer, NFTA_CMP_SREG, NFT_REG_1);
  put_number(buffer, NFTA_CMP_OP, NFT_CMP_EQ);
  put_value(buffer, NFTA_CMP_DATA, value, size);
  end_expression(buffer, expression);
}

static void match_meta(struct buffer *buffer, uint32_t key, uint8_t value) {
  struct expression expression = begin_expression(buffer, "meta");
  put_number(buffer, NFTA_META_DREG, NFT_REG_1);
  put_number(buffer, NFTA_META_KEY, key);
  end_expression(buffer, expression);
  add_compare(buffer, &value, sizeof value);
}

static void match_payload(struct buffer *buffer, uint32_t base, uint32_t offset, const void *value,
                          size_t size) {
  struct expression expression = begin_expression(buffer, "payload");
  put_number(buffer, NFTA_PAYLOAD_DREG, NFT_REG_1);
  put_number(buffer, NFTA_PAYLOAD_BASE, base);
  put_number(buffer, NFTA_PAYLOAD_OFFSET, offset);
  put_number(buffer, NFTA_PAYLOAD_LEN, (uint32_t)size);
  end_expression(buffer, expression);
  add_compare(buffer, value, size);
}

static void load(struct buffer *buffer, uint32_t into, const void *value, size_t size) {
  struct expression expression = begin_expression(buffer, "immediate");
  put_number(buffer, NFTA_IMMEDIATE_DREG, into);
  put_value(buffer, NFTA_IMMEDIATE_DATA, value, size);
  end_expression(buffer, expression);
}

static void return_verdict(struct buffer *buffer) {
  struct expression expression = begin_expression(buffer, "immediate");
  put_number(buffer, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
  size_t data = begin_nest(buffer, NFTA_IMMEDIATE_DATA);
  size_t verdict = begin_nest(buffer, NFTA_DATA_VERDICT);
  put_number(buffer, NFTA_VERDICT_CODE, (uint32_t)NFT_RETURN);
  end_nest(buffer, verdict);
  end_nest(buffer, data);
  end_expression(buffer, expression);
}

/* ---- the table of rules ---- */

static const struct rule {
  uint8_t family;
  const uint8_t *destination; /* begins with this, or NULL */
  size_t destination_size;
  uint8_t protocol; /* 0: any */
  uint16_t port;    /* of the destination; 0: any */
  const uint8_t *to;
  uint16_t to_port; /* 0: left alone */
} rules[] = {
    /* whoever a question is for, we answer it; also without any resolv.conf, which means loopback
     */
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
    /* any other datagram finds no socket: "port unreachable" */
};

static void lead_to(struct buffer *buffer, const struct rule *rule) {
  uint16_t port = htons(rule->to_port);
  load(buffer, NFT_REG_1, rule->to, rule->family == NFPROTO_IPV6 ? 16 : 4);
  load(buffer, NFT_REG_2, &port, sizeof port);
  struct expression expression = begin_expression(buffer, "tproxy");
  put_number(buffer, NFTA_TPROXY_FAMILY, rule->family);
  put_number(buffer, NFTA_TPROXY_REG_ADDR, NFT_REG_1);
  put_number(buffer, NFTA_TPROXY_REG_PORT, NFT_REG_2);
  end_expression(buffer, expression);
}

static void add_rule(struct buffer *buffer, const struct rule *rule) {
  size_t message = begin_nft(buffer, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, NFPROTO_INET);
  put_text(buffer, NFTA_RULE_TABLE, TABLE);
  put_text(buffer, NFTA_RULE_CHAIN, CHAIN);
  size_t expressions = begin_nest(buffer, NFTA_RULE_EXPRESSIONS);
  match_meta(buffer, NFT_META_NFPROTO, rule->family);
  if (rule->destination)
    match_payload(buffer, NFT_PAYLOAD_NETWORK_HEADER, rule->family == NFPROTO_IPV6 ? 24 : 16,
                  rule->destination, rule->destination_size);
  if (rule->protocol)
    match_meta(buffer, NFT_META_L4PROTO, rule->protocol);
  if (rule->port) {
    uint16_t port = htons(rule->port);
    match_payload(buffer, NFT_PAYLOAD_TRANSPORT_HEADER, 2, &port, sizeof port);
  }
  if (rule->to_port)
    lead_to(buffer, rule);
  else
    return_verdict(buffer);
  end_nest(buffer, expressions);
  end_message(buffer, message);
}

static int add_rules(bool v6) {
  struct buffer buffer = {0};
  add_batch_edge(&buffer, NFNL_MSG_BATCH_BEGIN);
  add_table_and_chain(&buffer);
  for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
    if (v6 || rules[i].family != NFPROTO_IPV6)
      add_rule(&buffer, &rules[i]);
  }
  add_batch_edge(&buffer, NFNL_MSG_BATCH_END);
  return exchange(NETLINK_NETFILTER, &buffer);
}

/* ---- sockets ---- */

/* IP_TRANSPARENT is what the rules look for, and lets answers come from foreign addresses. */
static int make_transparent(int fd, bool v6, bool datagrams) {
  static const int on = 1;
  int level = v6 ? SOL_IPV6 : SOL_IP;
  if (setsockopt(fd, level, v6 ? IPV6_TRANSPARENT : IP_TRANSPARENT, &on, sizeof on) < 0)
    return -errno;
  if (v6 && setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &on, sizeof on) < 0)
    return -errno;
  if (datagrams &&
      setsockopt(fd, level, v6 ? IPV6_RECVORIGDSTADDR : IP_RECVORIGDSTADDR, &on, sizeof on) < 0)
    return -errno;
  return 0;
}

static int bind_socket(int fd, bool v6, bool datagrams) {
  struct sockaddr_in v4_address = {.sin_family = AF_INET,
                                   .sin_port = htons(datagrams ? RESOLVER_PORT : RELAY_PORT)};
  memcpy(&v4_address.sin_addr, datagrams ? resolver_address : relay_address, 4);
  struct sockaddr_in6 v6_address = {.sin6_family = AF_INET6, .sin6_port = v4_address.sin_port};
  memcpy(&v6_address.sin6_addr, loopback6, 16);
  const void *address = v6 ? (const void *)&v6_address : &v4_address;
  if (bind(fd, address, v6 ? sizeof v6_address : sizeof v4_address) < 0)
    return -errno;
  return !datagrams && listen(fd, 4096) < 0 ? -errno : 0;
}

static int open_socket(bool v6, bool datagrams) {
  _cleanup_close_ int fd =
      socket(v6 ? AF_INET6 : AF_INET,
             (datagrams ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -errno;
  int result = make_transparent(fd, v6, datagrams);
  if (result == 0)
    result = bind_socket(fd, v6, datagrams);
  return result < 0 ? result : steal_fd(&fd);
}

static int open_sockets(int ret_sockets[INSIDE_SOCKETS], bool *ret_v6) {
  for (int i = 0; i < INSIDE_SOCKETS; i++) {
    bool v6 = i == INSIDE_TCP6 || i == INSIDE_UDP6;
    int fd = open_socket(v6, i == INSIDE_UDP4 || i == INSIDE_UDP6);
    if (v6 && (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)) {
      *ret_v6 = false; /* switched off on this machine */
      return 0;
    }
    if (fd < 0)
      return fd;
    ret_sockets[i] = fd;
  }
  *ret_v6 = true;
  return 0;
}

int inside_prepare(int ret_sockets[INSIDE_SOCKETS]) {
  bool v6 = false;
  for (int i = 0; i < INSIDE_SOCKETS; i++)
    ret_sockets[i] = -1;
  int result = open_sockets(ret_sockets, &v6);
  if (result == 0)
    result = add_rules(v6);
  if (result == 0)
    result = add_routes(v6);
  for (int i = 0; result < 0 && i < INSIDE_SOCKETS; i++) {
    if (ret_sockets[i] >= 0)
      close(ret_sockets[i]);
    ret_sockets[i] = -1;
  }
  return result;
}
