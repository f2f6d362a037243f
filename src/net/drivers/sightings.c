/* Packets that were told of; see sightings.h. */
#include "net/drivers/sightings.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "net/drivers/openings.h"
#include "net/netlink.h"

/* ---- the socket ---- */

static int configure(int fd) {
  struct netlink_buffer buffer = {0};
  const struct nfulnl_msg_config_cmd command = {.command = NFULNL_CFG_CMD_BIND};
  const struct nfulnl_msg_config_mode mode = {.copy_range = htonl(SIGHTING_HEAD),
                                              .copy_mode = NFULNL_COPY_PACKET};
  size_t message =
      netlink_begin(&buffer, NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG, NLM_F_REQUEST | NLM_F_ACK);
  struct nfgenmsg *head = netlink_append(&buffer, sizeof *head);
  *head = (struct nfgenmsg){.nfgen_family = AF_UNSPEC, .res_id = htons(SIGHTING_GROUP)};
  netlink_put(&buffer, NFULA_CFG_CMD, &command, sizeof command);
  netlink_put(&buffer, NFULA_CFG_MODE, &mode, sizeof mode);
  netlink_put_number(&buffer, NFULA_CFG_QTHRESH, 1); /* each at once */
  netlink_end(&buffer, message);
  return netlink_exchange(fd, &buffer);
}

int sightings_open(int net_ns) {
  _cleanup_close_ int fd = openings_socket(net_ns);
  int result = fd < 0 ? fd : configure(fd);
  return result < 0 ? result : steal_fd(&fd);
}

/* ---- heads ---- */

static uint16_t word_at(const uint8_t *bytes) {
  return (uint16_t)(bytes[0] << 8 | bytes[1]);
}

static void set_address(struct address *address, uint8_t family, const uint8_t *bytes) {
  *address = (struct address){.family = family};
  memcpy(address->bytes, bytes, family == 6 ? 16 : 4);
}

/* What lies between the head of IPv6 and that of the protocol is not read. */
bool sighting_parse(const uint8_t *head, size_t length, struct sighting *ret_sighting) {
  uint8_t family = length > 0 ? head[0] >> 4 : 0;
  size_t size = family == 6 ? 40 : family == 4 ? (size_t)(head[0] & 15) * 4 : 0;
  if (size < 20 || length < size + 4)
    return false;
  bool six = family == 6;
  struct sighting sighting = {.protocol = head[six ? 6 : 9],
                              .client_port = word_at(head + size),
                              .port = word_at(head + size + 2)};
  set_address(&sighting.client, family, head + (six ? 8 : 12));
  set_address(&sighting.address, family, head + (six ? 24 : 16));
  if ((sighting.protocol != IPPROTO_TCP && sighting.protocol != IPPROTO_UDP) || sighting.port == 0)
    return false;
  *ret_sighting = sighting;
  return true;
}

/* ---- messages ---- */

static bool read_message(const char *bytes, size_t length, struct sighting *ret_sighting) {
  const struct nlmsghdr *header = (const struct nlmsghdr *)bytes;
  size_t head = NLMSG_SPACE(sizeof(struct nfgenmsg));
  if (length < head || header->nlmsg_len < head || header->nlmsg_len > length ||
      header->nlmsg_type != (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET))
    return false;
  const char *attributes = bytes + head;
  length = header->nlmsg_len - head;
  const struct nlattr *payload = netlink_find(attributes, length, NFULA_PAYLOAD);
  const struct nlattr *prefix = netlink_find(attributes, length, NFULA_PREFIX);
  if (!payload || !sighting_parse((const uint8_t *)payload + NLA_HDRLEN,
                                  payload->nla_len - NLA_HDRLEN, ret_sighting))
    return false;
  ret_sighting->unknown =
      prefix && prefix->nla_len == NLA_HDRLEN + sizeof SIGHTING_UNKNOWN &&
      memcmp((const char *)prefix + NLA_HDRLEN, SIGHTING_UNKNOWN, sizeof SIGHTING_UNKNOWN) == 0;
  return true;
}

/* Whoever has rights over the session's network could write to the socket as well; the workload has
 * none, and the kernel says who writes. */
bool sightings_read(int fd, struct sighting *ret_sighting) {
  for (;;) {
    _Alignas(8) char bytes[4096];
    struct sockaddr_nl from = {0};
    socklen_t size = sizeof from;
    ssize_t length =
        recvfrom(fd, bytes, sizeof bytes, MSG_DONTWAIT, (struct sockaddr *)&from, &size);
    if (length < 0 && (errno == ENOBUFS || errno == EINTR)) /* some are lost: a flood */
      continue;
    if (length <= 0)
      return false;
    if (from.nl_pid == 0 && read_message(bytes, (size_t)length, ret_sighting))
      return true;
  }
}
