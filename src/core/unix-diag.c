/* Asks the kernel for UNIX sockets; see unix-diag.h. */
#include "core/unix-diag.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>

#include "core/netlink-dump.h"

int unix_diag_open(void) {
  int line = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  return line < 0 ? -errno : line;
}

static int send_request(int line, unsigned states, unsigned show) {
  struct {
    struct nlmsghdr head;
    struct unix_diag_req request;
  } message = {
      .head = {.nlmsg_len = sizeof message,
               .nlmsg_type = SOCK_DIAG_BY_FAMILY,
               .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
      .request = {.sdiag_family = AF_UNIX, .udiag_states = states, .udiag_show = show},
  };
  struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
  return sendto(line, &message, sizeof message, 0, (struct sockaddr *)&kernel, sizeof kernel) < 0
             ? -errno
             : 0;
}

struct visit {
  unix_diag_visitor *visit;
  void *context;
};

static void take_socket(void *context, const struct nlmsghdr *message) {
  const struct visit *visit = context;
  const struct unix_diag_msg *socket = NLMSG_DATA(message);
  if (message->nlmsg_len < NLMSG_LENGTH(sizeof *socket))
    return;
  const struct rtattr *attribute = (const struct rtattr *)(socket + 1);
  int left = (int)(message->nlmsg_len - NLMSG_LENGTH(sizeof *socket));
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left))
    visit->visit(visit->context, socket, attribute->rta_type, RTA_DATA(attribute),
                 RTA_PAYLOAD(attribute));
}

int unix_diag_dump(int line, unsigned states, unsigned show, unix_diag_visitor *visit,
                   void *context) {
  /* As much as the kernel gives at once by itself. */
  _Alignas(struct nlmsghdr) char buffer[8192];
  struct visit each = {visit, context};
  int result = send_request(line, states, show);
  return result < 0 ? result : netlink_dump(line, 0, buffer, sizeof buffer, take_socket, &each);
}
