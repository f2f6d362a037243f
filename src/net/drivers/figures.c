/* Figures of a driver's network; see figures.h. */
#include "net/drivers/figures.h"

#include <endian.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "core/netlink-dump.h"
#include "net/netlink.h"

/* The kernel has the first part of the answer ready when the question has been sent, and makes the
 * next when one is read. True: all of it was read. */
static bool read_list(int fd, netlink_taker *take, void *context) {
  _Alignas(8) char answers[32768];
  return netlink_dump(fd, MSG_DONTWAIT, answers, sizeof answers, take, context) == 0;
}

/* ---- bytes of the interface ---- */

static void add_link(void *context, const struct nlmsghdr *header) {
  struct driver_figures *figures = context;
  const struct ifinfomsg *link = NLMSG_DATA(header);
  size_t length = IFLA_PAYLOAD(header);
  if (header->nlmsg_type != RTM_NEWLINK || link->ifi_flags & IFF_LOOPBACK)
    return;
  for (const struct rtattr *at = IFLA_RTA(link); RTA_OK(at, length); at = RTA_NEXT(at, length)) {
    struct rtnl_link_stats64 counted = {0};
    if (at->rta_type != IFLA_STATS64)
      continue;
    size_t size = RTA_PAYLOAD(at);
    memcpy(&counted, RTA_DATA(at), size < sizeof counted ? size : sizeof counted);
    figures->sent += (int64_t)counted.tx_bytes;
    figures->received += (int64_t)counted.rx_bytes;
  }
}

static void count_bytes(int fd, struct driver_figures *figures) {
  struct {
    struct nlmsghdr header;
    struct ifinfomsg link;
  } request = {
      .header = {.nlmsg_len = sizeof request,
                 .nlmsg_type = RTM_GETLINK,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
  };
  figures->sent = figures->received = 0;
  if (send(fd, &request, sizeof request, MSG_DONTWAIT) != sizeof request ||
      !read_list(fd, add_link, figures))
    figures->sent = figures->received = -1;
}

/* ---- counters ---- */

/* A name and zeros up to a length that is the same for all of them: the kernel takes that, and the
 * whole request is one constant structure. */
struct named {
  struct nlattr attribute;
  char text[TALLY_NAME_SIZE];
};
#define NAMED(type, name)                                                                          \
  { .attribute = {.nla_len = sizeof(struct named), .nla_type = (type)}, .text = name }

/* The first attribute of the type among what an attribute contains; NULL has nothing. */
static const struct nlattr *find_within(const struct nlattr *outer, uint16_t type) {
  return outer ? netlink_find((const char *)outer + NLA_HDRLEN, outer->nla_len - NLA_HDRLEN, type)
               : NULL;
}

/* A number of the data of a counter, whether that has a name or belongs to an element; or -1. */
static int64_t number_of(const struct nlattr *counter, uint16_t type) {
  const struct nlattr *number = find_within(counter, type);
  uint64_t value;
  if (!number || number->nla_len != NLA_HDRLEN + sizeof value)
    return -1;
  memcpy(&value, (const char *)number + NLA_HDRLEN, sizeof value);
  return (int64_t)be64toh(value);
}

static int64_t read_counter(int fd, const char *name) {
  struct {
    struct nlmsghdr header;
    struct nfgenmsg family;
    struct named table, name;
    struct nlattr type;
    uint32_t kind;
  } request = {
      .header = {.nlmsg_len = sizeof request,
                 .nlmsg_type = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETOBJ,
                 .nlmsg_flags = NLM_F_REQUEST},
      .family = {.nfgen_family = NFPROTO_INET},
      .table = NAMED(NFTA_OBJ_TABLE, EGRESS_TABLE),
      .name = NAMED(NFTA_OBJ_NAME, ""),
      .type = {.nla_len = NLA_HDRLEN + sizeof(uint32_t), .nla_type = NFTA_OBJ_TYPE},
      .kind = htobe32(NFT_OBJECT_COUNTER),
  };
  _Alignas(8) char answer[4096];
  strncpy(request.name.text, name, sizeof request.name.text - 1);
  if (send(fd, &request, sizeof request, MSG_DONTWAIT) != sizeof request)
    return -1;
  ssize_t length = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
  const struct nlmsghdr *header = (const struct nlmsghdr *)answer;
  if (length <= 0 || !NLMSG_OK(header, length) ||
      header->nlmsg_type != (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWOBJ))
    return -1;
  size_t head = NLMSG_SPACE(sizeof(struct nfgenmsg));
  if (header->nlmsg_len < head)
    return -1;
  return number_of(netlink_find(answer + head, header->nlmsg_len - head, NFTA_OBJ_DATA),
                   NFTA_COUNTER_PACKETS);
}

/* ---- elements of sets that count ---- */

struct counted {
  struct driver_line key;
  int64_t packets, bytes;
};

typedef void take_counted(struct driver_figures *figures, const struct tally_set *set,
                          const struct counted *counted);

/* A key is its parts, each filled up to whole words. */
static bool read_key(const struct tally_set *set, const struct nlattr *key,
                     struct driver_line *ret_line) {
  size_t address = set->family == 6 ? 16 : 4, length = address + (set->portless ? 4 : 8);
  const struct nlattr *value = find_within(key, NFTA_DATA_VALUE);
  if (!value || value->nla_len != NLA_HDRLEN + length)
    return false;
  const uint8_t *bytes = (const uint8_t *)value + NLA_HDRLEN;
  *ret_line = (struct driver_line){.address = {.family = set->family}, .protocol = bytes[address]};
  memcpy(ret_line->address.bytes, bytes, address);
  if (!set->portless)
    ret_line->port = (uint16_t)(bytes[address + 4] << 8 | bytes[address + 5]);
  return true;
}

/* Which set is read, and what becomes of its elements. */
struct counting {
  const struct tally_set *set;
  struct driver_figures *figures;
  take_counted *take;
};

static void read_element(const struct counting *counting, const struct nlattr *element) {
  const struct nlattr *expression = find_within(element, NFTA_SET_ELEM_EXPR);
  const struct nlattr *counter = find_within(expression, NFTA_EXPR_DATA);
  struct counted counted = {.packets = number_of(counter, NFTA_COUNTER_PACKETS),
                            .bytes = number_of(counter, NFTA_COUNTER_BYTES)};
  if (counted.packets >= 0 && counted.bytes >= 0 &&
      read_key(counting->set, find_within(element, NFTA_SET_ELEM_KEY), &counted.key))
    counting->take(counting->figures, counting->set, &counted);
}

static void read_elements(void *counting, const struct nlmsghdr *header) {
  size_t head = NLMSG_SPACE(sizeof(struct nfgenmsg));
  if (header->nlmsg_len < head)
    return;
  const struct nlattr *list = netlink_find((const char *)header + head, header->nlmsg_len - head,
                                           NFTA_SET_ELEM_LIST_ELEMENTS);
  const char *at = (const char *)list + NLA_HDRLEN;
  for (size_t left = list ? list->nla_len - NLA_HDRLEN : 0; left >= NLA_HDRLEN;) {
    const struct nlattr *element = (const struct nlattr *)at;
    size_t whole = NLA_ALIGN(element->nla_len);
    if (element->nla_len < NLA_HDRLEN || element->nla_len > left)
      return;
    read_element(counting, element);
    left -= whole < left ? whole : left;
    at += whole;
  }
}

static bool ask_for_elements(int fd, const struct tally_set *set) {
  struct {
    struct nlmsghdr header;
    struct nfgenmsg family;
    struct named table, name;
  } request = {
      .header = {.nlmsg_len = sizeof request,
                 .nlmsg_type = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETSETELEM,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
      .family = {.nfgen_family = NFPROTO_INET},
      .table = NAMED(NFTA_SET_ELEM_LIST_TABLE, EGRESS_TABLE),
      .name = NAMED(NFTA_SET_ELEM_LIST_SET, ""),
  };
  tally_set_name(set, request.name.text);
  return send(fd, &request, sizeof request, MSG_DONTWAIT) == sizeof request;
}

/* True: all of it was read. */
static bool read_set(int fd, const struct tally_set *set, struct driver_figures *figures,
                     take_counted *take) {
  struct counting counting = {set, figures, take};
  return ask_for_elements(fd, set) && read_list(fd, read_elements, &counting);
}

static bool read_tally(int fd, enum tally tally, struct driver_figures *figures,
                       take_counted *take) {
  bool whole = true;
  for (uint8_t family = 4; family <= 6; family += 2) {
    whole &= read_set(fd, &(struct tally_set){tally, family, false}, figures, take);
    whole &= read_set(fd, &(struct tally_set){tally, family, true}, figures, take);
  }
  return whole;
}

/* ---- what they mean ---- */

static struct driver_line *find_line(struct driver_line *lines, size_t count,
                                     const struct driver_line *key) {
  for (size_t i = 0; i < count; i++) {
    if (lines[i].port == key->port && lines[i].protocol == key->protocol &&
        address_equal(&lines[i].address, &key->address))
      return &lines[i];
  }
  return NULL;
}

/* A set that grows while it is read may tell of an element twice. */
static void take_line(struct driver_figures *figures, const struct tally_set *set,
                      const struct counted *counted) {
  bool refused = set->tally == TALLY_REFUSED;
  size_t *count = refused ? &figures->denied_count : &figures->allowed_count;
  struct driver_line *lines = refused ? figures->denied : figures->allowed;
  struct driver_line *line = find_line(lines, *count, &counted->key);
  if (!line && *count == TALLY_ALL)
    return;
  if (!line)
    line = &lines[(*count)++];
  *line = counted->key;
  line->count = counted->packets;
  line->sent = line->received = -1;
}

static int64_t *bytes_of(struct driver_line *line, enum tally tally) {
  return tally == TALLY_SENT ? &line->sent : &line->received;
}

static void take_bytes(struct driver_figures *figures, const struct tally_set *set,
                       const struct counted *counted) {
  struct driver_line *line = find_line(figures->allowed, figures->allowed_count, &counted->key);
  if (line)
    *bytes_of(line, set->tally) = counted->bytes;
}

/* Who is not in the set although all of it was read has none: it is as large as that of the
 * connections, so it was not for want of room. */
static void read_bytes(int fd, enum tally tally, struct driver_figures *figures) {
  bool whole = read_tally(fd, tally, figures, take_bytes);
  for (size_t i = 0; whole && i < figures->allowed_count; i++) {
    int64_t *bytes = bytes_of(&figures->allowed[i], tally);
    *bytes = *bytes < 0 ? 0 : *bytes;
  }
}

void driver_figures_read(int routes, int rules, struct driver_figures *ret_figures) {
  *ret_figures =
      (struct driver_figures){.sent = -1, .received = -1, .refused = -1, .connections = -1};
  if (routes >= 0)
    count_bytes(routes, ret_figures);
  if (rules < 0)
    return;
  ret_figures->refused = read_counter(rules, TALLY_REFUSED_ALL);
  ret_figures->connections = read_counter(rules, TALLY_OPENED_ALL);
  if (ret_figures->refused > 0)
    (void)read_tally(rules, TALLY_REFUSED, ret_figures, take_line);
  if (ret_figures->connections <= 0)
    return;
  (void)read_tally(rules, TALLY_OPENED, ret_figures, take_line);
  read_bytes(rules, TALLY_SENT, ret_figures);
  read_bytes(rules, TALLY_RECEIVED, ret_figures);
}
