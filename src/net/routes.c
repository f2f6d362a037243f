/* The kernel's routes; see routes.h. */
#include "net/routes.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

int routes_open(void) {
  int line = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  return line < 0 ? -errno : line;
}

bool routes_lead_here(uint8_t type) {
  return type == RTN_LOCAL || type == RTN_ANYCAST || type == RTN_BROADCAST;
}

static int send_question(int line, const struct address *address, uint32_t sequence) {
  unsigned size = address->family == 6 ? 16 : 4;
  struct {
    struct nlmsghdr head;
    struct rtmsg route;
    struct rtattr to;
    uint8_t address[16];
  } question = {
      .head = {.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof question.route) + RTA_LENGTH(size)),
               .nlmsg_type = RTM_GETROUTE,
               .nlmsg_flags = NLM_F_REQUEST,
               .nlmsg_seq = sequence},
      .route = {.rtm_family = address->family == 6 ? AF_INET6 : AF_INET,
                .rtm_dst_len = (uint8_t)(size * 8)},
      .to = {.rta_len = (unsigned short)RTA_LENGTH(size), .rta_type = RTA_DST},
  };
  memcpy(question.address, address->bytes, size);
  return send(line, &question, question.head.nlmsg_len, 0) < 0 ? -errno : 0;
}

static int read_answer(const struct nlmsghdr *head, size_t length) {
  const struct rtmsg *route = NLMSG_DATA(head);
  const struct nlmsgerr *failure = NLMSG_DATA(head);
  if (head->nlmsg_type == RTM_NEWROUTE && length >= NLMSG_LENGTH(sizeof *route))
    return routes_lead_here(route->rtm_type);
  if (head->nlmsg_type != NLMSG_ERROR || length < NLMSG_LENGTH(sizeof *failure))
    return -EPROTO;
  bool nowhere = failure->error == -ENETUNREACH || failure->error == -EHOSTUNREACH ||
                 failure->error == -EACCES; /* the connection itself will say so */
  return nowhere ? 0 : failure->error < 0 ? failure->error : -EPROTO;
}

int routes_ask(int line, const struct address *address) {
  static uint32_t sequence;
  _Alignas(struct nlmsghdr) char bytes[1024]; /* the beginning is enough */
  const struct nlmsghdr *head = (const struct nlmsghdr *)bytes;
  int result = send_question(line, address, ++sequence);
  /* The answer is there when send returns; so may be that of an earlier question. */
  while (result == 0) {
    ssize_t got = recv(line, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0)
      return -errno;
    if ((size_t)got >= sizeof *head && head->nlmsg_seq == sequence)
      return read_answer(head, (size_t)got);
  }
  return result;
}
