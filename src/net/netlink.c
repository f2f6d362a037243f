/* Netlink messages; see netlink.h. */
#include "net/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

void *netlink_append(struct netlink_buffer *buffer, size_t size) {
  void *at = buffer->bytes + buffer->length; /* the callers' batches are bounded; all fit */
  memset(at, 0, NLMSG_ALIGN(size));
  buffer->length += NLMSG_ALIGN(size);
  return at;
}

size_t netlink_begin(struct netlink_buffer *buffer, uint16_t type, uint16_t flags) {
  size_t start = buffer->length;
  struct nlmsghdr *header = netlink_append(buffer, sizeof *header);
  header->nlmsg_type = type;
  header->nlmsg_flags = NLM_F_REQUEST | flags;
  header->nlmsg_seq = ++buffer->sequence;
  return start;
}

void netlink_end(struct netlink_buffer *buffer, size_t start) {
  ((struct nlmsghdr *)(buffer->bytes + start))->nlmsg_len = (uint32_t)(buffer->length - start);
}

void netlink_put(struct netlink_buffer *buffer, uint16_t type, const void *data, size_t size) {
  struct nlattr *attribute = netlink_append(buffer, NLA_HDRLEN + size);
  attribute->nla_type = type;
  attribute->nla_len = (uint16_t)(NLA_HDRLEN + size);
  memcpy((char *)attribute + NLA_HDRLEN, data, size);
}

void netlink_put_text(struct netlink_buffer *buffer, uint16_t type, const char *text) {
  netlink_put(buffer, type, text, strlen(text) + 1);
}

void netlink_put_number(struct netlink_buffer *buffer, uint16_t type, uint32_t value) {
  uint32_t big_endian = htonl(value);
  netlink_put(buffer, type, &big_endian, sizeof big_endian);
}

size_t netlink_begin_nest(struct netlink_buffer *buffer, uint16_t type) {
  size_t start = buffer->length;
  struct nlattr *attribute = netlink_append(buffer, NLA_HDRLEN);
  attribute->nla_type = type | NLA_F_NESTED;
  return start;
}

void netlink_end_nest(struct netlink_buffer *buffer, size_t start) {
  ((struct nlattr *)(buffer->bytes + start))->nla_len = (uint16_t)(buffer->length - start);
}

size_t netlink_begin_nft(struct netlink_buffer *buffer, uint16_t type, uint16_t flags,
                         uint8_t family) {
  size_t start = netlink_begin(buffer, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags);
  struct nfgenmsg *head = netlink_append(buffer, sizeof *head);
  head->nfgen_family = family;
  return start;
}

void netlink_add_edge(struct netlink_buffer *buffer, uint16_t type) {
  size_t start = netlink_begin(buffer, type, 0);
  struct nfgenmsg *head = netlink_append(buffer, sizeof *head);
  head->res_id = htons(NFNL_SUBSYS_NFTABLES);
  netlink_end(buffer, start);
}

int netlink_exchange(int fd, const struct netlink_buffer *buffer) {
  if (send(fd, buffer->bytes, buffer->length, 0) < 0)
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
      if (header->nlmsg_type == NLMSG_ERROR && (result == -EPROTO || result == 0))
        result = answer->error;
    }
  }
}

const struct nlattr *netlink_find(const char *bytes, size_t length, uint16_t type) {
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
