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

#include "core/cleanup.h"

/* ---- bytes of the interface ---- */

static void add_link(const struct nlmsghdr *header, struct driver_figures *figures) {
  const struct ifinfomsg *link = NLMSG_DATA(header);
  size_t length = IFLA_PAYLOAD(header);
  if (link->ifi_flags & IFF_LOOPBACK)
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

/* The kernel has the first part of the answer ready when the question has been sent, and makes the
 * next when one is read. */
static bool read_links(int fd, struct driver_figures *figures) {
  for (;;) {
    _Alignas(8) char answers[32768];
    ssize_t length = recv(fd, answers, sizeof answers, MSG_DONTWAIT);
    if (length <= 0)
      return false;
    for (const struct nlmsghdr *header = (struct nlmsghdr *)answers; NLMSG_OK(header, length);
         header = NLMSG_NEXT(header, length)) {
      if (header->nlmsg_type == NLMSG_DONE)
        return true;
      if (header->nlmsg_type == RTM_NEWLINK)
        add_link(header, figures);
    }
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
      !read_links(fd, figures))
    figures->sent = figures->received = -1;
}

/* ---- packets that were refused ---- */

/* A name and zeros up to a length that is the same for all of them: the kernel takes that, and the
 * whole request is one constant structure. */
struct named {
  struct nlattr attribute;
  char text[16];
};
#define NAMED(type, name)                                                                          \
  { .attribute = {.nla_len = sizeof(struct named), .nla_type = (type)}, .text = name }

/* The first attribute of the type among `length` bytes, or NULL. */
static const struct nlattr *find_attribute(const char *bytes, size_t length, uint16_t type) {
  while (length >= NLA_HDRLEN) {
    const struct nlattr *attribute = (const struct nlattr *)bytes;
    size_t whole = NLA_ALIGN(attribute->nla_len);
    if (attribute->nla_len < NLA_HDRLEN || attribute->nla_len > length)
      return NULL;
    if ((attribute->nla_type & NLA_TYPE_MASK) == type)
      return attribute;
    bytes += whole < length ? whole : length;
    length -= whole < length ? whole : length;
  }
  return NULL;
}

/* The same among what an attribute contains; NULL has nothing. */
static const struct nlattr *find_within(const struct nlattr *outer, uint16_t type) {
  return outer ? find_attribute((const char *)outer + NLA_HDRLEN, outer->nla_len - NLA_HDRLEN, type)
               : NULL;
}

/* Of the data of a counter, whether it has a name or belongs to an element. */
static int64_t packets_of(const struct nlattr *counter) {
  const struct nlattr *packets = find_within(counter, NFTA_COUNTER_PACKETS);
  uint64_t value;
  if (!packets || packets->nla_len != NLA_HDRLEN + sizeof value)
    return -1;
  memcpy(&value, (const char *)packets + NLA_HDRLEN, sizeof value);
  return (int64_t)be64toh(value);
}

static int64_t count_refused(int fd) {
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
      .name = NAMED(NFTA_OBJ_NAME, EGRESS_COUNTER),
      .type = {.nla_len = NLA_HDRLEN + sizeof(uint32_t), .nla_type = NFTA_OBJ_TYPE},
      .kind = htobe32(NFT_OBJECT_COUNTER),
  };
  _Alignas(8) char answer[4096];
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
  return packets_of(find_attribute(answer + head, header->nlmsg_len - head, NFTA_OBJ_DATA));
}

/* ---- where they were to go ---- */

struct refused_set {
  const char name[sizeof(((struct named *)NULL)->text)];
  uint8_t family;
  bool portless;
};

/* A key is its parts, each filled up to whole words. */
static bool read_key(const struct refused_set *set, const struct nlattr *key,
                     struct driver_refusal *ret_refusal) {
  size_t address = set->family == 6 ? 16 : 4, length = address + (set->portless ? 4 : 8);
  const struct nlattr *value = find_within(key, NFTA_DATA_VALUE);
  if (!value || value->nla_len != NLA_HDRLEN + length)
    return false;
  const uint8_t *bytes = (const uint8_t *)value + NLA_HDRLEN;
  *ret_refusal =
      (struct driver_refusal){.address = {.family = set->family}, .protocol = bytes[address]};
  memcpy(ret_refusal->address.bytes, bytes, address);
  if (!set->portless)
    ret_refusal->port = (uint16_t)(bytes[address + 4] << 8 | bytes[address + 5]);
  return true;
}

static void add_refusal(const struct refused_set *set, const struct nlattr *element,
                        struct driver_figures *figures) {
  const struct nlattr *counter = find_within(element, NFTA_SET_ELEM_EXPR);
  int64_t packets = packets_of(find_within(counter, NFTA_EXPR_DATA));
  struct driver_refusal refusal;
  if (figures->refusal_count == EGRESS_LISTED_ALL || packets < 0 ||
      !read_key(set, find_within(element, NFTA_SET_ELEM_KEY), &refusal))
    return;
  refusal.packets = (uint64_t)packets;
  figures->refusals[figures->refusal_count++] = refusal;
}

static void add_refusals(const struct refused_set *set, const struct nlmsghdr *header,
                         struct driver_figures *figures) {
  size_t head = NLMSG_SPACE(sizeof(struct nfgenmsg));
  if (header->nlmsg_len < head)
    return;
  const struct nlattr *list = find_attribute((const char *)header + head, header->nlmsg_len - head,
                                             NFTA_SET_ELEM_LIST_ELEMENTS);
  const char *at = (const char *)list + NLA_HDRLEN;
  for (size_t left = list ? list->nla_len - NLA_HDRLEN : 0; left >= NLA_HDRLEN;) {
    const struct nlattr *element = (const struct nlattr *)at;
    size_t whole = NLA_ALIGN(element->nla_len);
    if (element->nla_len < NLA_HDRLEN || element->nla_len > left)
      return;
    add_refusal(set, element, figures);
    left -= whole < left ? whole : left;
    at += whole;
  }
}

static bool ask_for_elements(int fd, const struct refused_set *set) {
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
  memcpy(request.name.text, set->name, sizeof request.name.text);
  return send(fd, &request, sizeof request, MSG_DONTWAIT) == sizeof request;
}

static void list_refused(int fd, const struct refused_set *set, struct driver_figures *figures) {
  bool asked = ask_for_elements(fd, set);
  while (asked) {
    _Alignas(8) char answers[32768];
    ssize_t length = recv(fd, answers, sizeof answers, MSG_DONTWAIT);
    if (length <= 0)
      return;
    for (const struct nlmsghdr *header = (struct nlmsghdr *)answers; NLMSG_OK(header, length);
         header = NLMSG_NEXT(header, length)) {
      if (header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR)
        return;
      add_refusals(set, header, figures);
    }
  }
}

static const struct refused_set refused_sets[] = {
    {EGRESS_REFUSED4, 4, false},
    {EGRESS_REFUSED6, 6, false},
    {EGRESS_PORTLESS4, 4, true},
    {EGRESS_PORTLESS6, 6, true},
};

void driver_figures_read(int routes, int rules, struct driver_figures *ret_figures) {
  *ret_figures = (struct driver_figures){.sent = -1, .received = -1, .refused = -1};
  if (routes >= 0)
    count_bytes(routes, ret_figures);
  if (rules < 0)
    return;
  ret_figures->refused = count_refused(rules);
  for (size_t i = 0; ret_figures->refused > 0 && i < ARRAY_SIZE(refused_sets); i++)
    list_refused(rules, &refused_sets[i], ret_figures);
}
