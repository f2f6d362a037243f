/* nf_tables in a user and network namespace: a table and a NAT chain, as the relay makes them. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "doctor/probe.h"

struct batch {
  _Alignas(struct nlmsghdr) char bytes[512];
  size_t length;
  struct nlmsghdr *last;
};

static void *batch_put(struct batch *batch, size_t size) {
  void *place = batch->bytes + batch->length;
  batch->length += NLMSG_ALIGN(size);
  return place;
}

static void batch_message(struct batch *batch, unsigned type, unsigned flags, unsigned sequence) {
  batch->last = batch_put(batch, NLMSG_HDRLEN);
  *batch->last = (struct nlmsghdr){.nlmsg_type = (__u16)type,
                                   .nlmsg_flags = (__u16)(NLM_F_REQUEST | flags),
                                   .nlmsg_seq = sequence};
  struct nfgenmsg *header = batch_put(batch, sizeof *header);
  bool is_frame = type == NFNL_MSG_BATCH_BEGIN || type == NFNL_MSG_BATCH_END;
  *header = (struct nfgenmsg){.nfgen_family = is_frame ? AF_UNSPEC : NFPROTO_IPV4,
                              .version = NFNETLINK_V0,
                              .res_id = is_frame ? htons(NFNL_SUBSYS_NFTABLES) : 0};
}

static struct nlattr *batch_attribute(struct batch *batch, unsigned type, const void *data,
                                      size_t size) {
  struct nlattr *attribute = batch_put(batch, NLA_HDRLEN + size);
  *attribute = (struct nlattr){.nla_len = (__u16)(NLA_HDRLEN + size), .nla_type = (__u16)type};
  if (size)
    memcpy((char *)attribute + NLA_HDRLEN, data, size);
  return attribute;
}

static void batch_finish_message(struct batch *batch) {
  batch->last->nlmsg_len = (__u32)(batch->bytes + batch->length - (char *)batch->last);
}

static void batch_hook(struct batch *batch) {
  uint32_t number = htonl(NF_INET_LOCAL_OUT), priority = htonl((uint32_t)-100);
  struct nlattr *hook = batch_attribute(batch, NLA_F_NESTED | NFTA_CHAIN_HOOK, NULL, 0);
  batch_attribute(batch, NFTA_HOOK_HOOKNUM, &number, sizeof number);
  batch_attribute(batch, NFTA_HOOK_PRIORITY, &priority, sizeof priority);
  hook->nla_len = (__u16)(batch->bytes + batch->length - (char *)hook);
}

enum { CHAIN_SEQUENCE = 3, NFTABLES = NFNL_SUBSYS_NFTABLES << 8 };

static void batch_build(struct batch *batch) {
  static const char name[] = "sandbox-doctor", type[] = "nat";
  batch_message(batch, NFNL_MSG_BATCH_BEGIN, 0, 1);
  batch_finish_message(batch);
  batch_message(batch, NFTABLES | NFT_MSG_NEWTABLE, NLM_F_CREATE, 2);
  batch_attribute(batch, NFTA_TABLE_NAME, name, sizeof name);
  batch_finish_message(batch);
  batch_message(batch, NFTABLES | NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_ACK, CHAIN_SEQUENCE);
  batch_attribute(batch, NFTA_CHAIN_TABLE, name, sizeof name);
  batch_attribute(batch, NFTA_CHAIN_NAME, name, sizeof name);
  batch_attribute(batch, NFTA_CHAIN_TYPE, type, sizeof type);
  batch_hook(batch);
  batch_finish_message(batch);
  batch_message(batch, NFNL_MSG_BATCH_END, 0, 4);
  batch_finish_message(batch);
}

/* The first error, or 0 at the acknowledgement of the chain. */
static int read_answer(int socket) {
  for (;;) {
    _Alignas(struct nlmsghdr) char buffer[4096];
    ssize_t length = recv(socket, buffer, sizeof buffer, 0);
    if (length < (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)))
      return length < 0 ? errno : EPROTO;
    const struct nlmsghdr *header = (const struct nlmsghdr *)buffer;
    const struct nlmsgerr *answer = NLMSG_DATA(header);
    if (header->nlmsg_type != NLMSG_ERROR)
      return EPROTO;
    if (answer->error || header->nlmsg_seq == CHAIN_SEQUENCE)
      return -answer->error;
  }
}

static int make_nat_chain(void) {
  _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
  struct timeval patience = {.tv_usec = 500000};
  struct batch batch = {.length = 0};
  batch_build(&batch);
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0 ||
      send(fd, batch.bytes, batch.length, 0) < 0)
    return errno;
  return read_answer(fd);
}

void probe_nftables(const struct check *check, struct finding *finding) {
  (void)check;
  if (probe_enter_userns(finding, CLONE_NEWNET))
    finding_of_call(finding, make_nat_chain());
}
