/* The kernel's answer to a request for a list; see netlink-dump.h. */
#include "core/netlink-dump.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>

/* NLMSG_OK compares numbers with and without sign, which clang does not accept. */
static bool is_whole(const struct nlmsghdr *message, int left) {
  return left >= (int)sizeof *message && message->nlmsg_len >= sizeof *message &&
         message->nlmsg_len <= (unsigned)left;
}

/* 1: there is more, 0: that was all. */
static int take_part(const char *bytes, int left, netlink_taker *take, void *context) {
  for (const struct nlmsghdr *message = (const struct nlmsghdr *)bytes; is_whole(message, left);
       message = NLMSG_NEXT(message, left)) {
    if (message->nlmsg_type == NLMSG_DONE)
      return 0;
    if (message->nlmsg_type == NLMSG_ERROR)
      return -EOPNOTSUPP;
    take(context, message);
  }
  return 1;
}

int netlink_dump(int line, int flags, char *buffer, size_t size, netlink_taker *take,
                 void *context) {
  for (;;) {
    ssize_t got = recv(line, buffer, size, flags);
    if (got <= 0)
      return got < 0 ? -errno : -EPROTO;
    int result = take_part(buffer, (int)got, take, context);
    if (result <= 0)
      return result;
  }
}
