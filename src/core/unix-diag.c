/* Asks the kernel for UNIX sockets; see unix-diag.h. */
#include "core/unix-diag.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "core/cleanup.h"

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

static void take_socket(const struct nlmsghdr *head, unix_diag_visitor *visit, void *context) {
  const struct unix_diag_msg *socket = NLMSG_DATA(head);
  const struct rtattr *attribute = (const struct rtattr *)(socket + 1);
  int left = (int)(head->nlmsg_len - NLMSG_LENGTH(sizeof *socket));
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left))
    visit(context, socket, attribute->rta_type, RTA_DATA(attribute), RTA_PAYLOAD(attribute));
}

/* NLMSG_OK compares numbers with and without sign, which clang does not accept. */
static bool is_whole(const struct nlmsghdr *head, int left) {
  return left >= (int)sizeof *head && head->nlmsg_len >= sizeof *head &&
         head->nlmsg_len <= (unsigned)left;
}

/* 1: there is more, 0: that was all. */
static int take_answer(const char *bytes, size_t length, unix_diag_visitor *visit, void *context) {
  int left = (int)length;
  for (const struct nlmsghdr *head = (const struct nlmsghdr *)bytes; is_whole(head, left);
       head = NLMSG_NEXT(head, left)) {
    if (head->nlmsg_type == NLMSG_DONE)
      return 0;
    if (head->nlmsg_type == NLMSG_ERROR)
      return -EOPNOTSUPP;
    if (head->nlmsg_len >= NLMSG_LENGTH(sizeof(struct unix_diag_msg)))
      take_socket(head, visit, context);
  }
  return 1;
}

int unix_diag_dump(int line, unsigned states, unsigned show, unix_diag_visitor *visit,
                   void *context) {
  union {
    char bytes[8192]; /* as much as the kernel gives at once by itself */
    struct nlmsghdr align;
  } answer;
  int result = send_request(line, states, show);
  if (result < 0)
    return result;
  do {
    ssize_t got = recv(line, &answer, sizeof answer, 0);
    if (got <= 0)
      return got < 0 ? -errno : -EPROTO;
    result = take_answer(answer.bytes, (size_t)got, visit, context);
  } while (result > 0);
  return result;
}
