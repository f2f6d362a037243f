/* The host's own addresses; see own.h. Most are on an interface, but a route makes others the
 * host's as well, and the kernel keeps one for each of the former. */
#include "net/drivers/own.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/netlink-dump.h"
#include "net/routes.h"

int own_networks_watch(void) {
  _cleanup_close_ int fd =
      socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  struct sockaddr_nl groups = {.nl_family = AF_NETLINK,
                               .nl_groups = RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE};
  if (fd < 0 || bind(fd, (struct sockaddr *)&groups, sizeof groups) < 0)
    return -errno;
  return steal_fd(&fd);
}

/* NULL: it is about something else. */
static const struct rtmsg *own_route(const struct nlmsghdr *message) {
  const struct rtmsg *route = NLMSG_DATA(message);
  bool is_route = (message->nlmsg_type == RTM_NEWROUTE || message->nlmsg_type == RTM_DELROUTE) &&
                  message->nlmsg_len >= NLMSG_LENGTH(sizeof *route);
  return is_route && routes_lead_here(route->rtm_type) &&
                 (route->rtm_family == AF_INET || route->rtm_family == AF_INET6)
             ? route
             : NULL;
}

bool own_networks_changed(int watch) {
  _Alignas(struct nlmsghdr) char bytes[8192]; /* a message comes alone */
  bool changed = false;
  for (;;) {
    ssize_t got = recv(watch, bytes, sizeof bytes, 0);
    const struct nlmsghdr *message = (const struct nlmsghdr *)bytes;
    /* ENOBUFS: there was more than it could keep. */
    bool lost = got < 0 && errno == ENOBUFS;
    if (got <= 0 && !lost && errno != EINTR)
      return changed;
    changed |= lost || (got >= (ssize_t)sizeof *message && own_route(message));
  }
}

struct list {
  struct own_network *items;
  size_t count;
};

static void take_route(void *context, const struct nlmsghdr *message) {
  struct list *list = context;
  const struct rtmsg *route = own_route(message);
  if (!route)
    return;
  struct own_network network = {.address = {.family = route->rtm_family == AF_INET6 ? 6 : 4},
                                .bits = route->rtm_dst_len};
  size_t size = network.address.family == 6 ? 16 : 4;
  int left = (int)RTM_PAYLOAD(message);
  for (const struct rtattr *at = RTM_RTA(route); RTA_OK(at, left); at = RTA_NEXT(at, left)) {
    if (at->rta_type == RTA_DST && RTA_PAYLOAD(at) == size)
      memcpy(network.address.bytes, RTA_DATA(at), size);
  }
  ARRAY_GROW(list->items, list->count);
  list->items[list->count++] = network;
}

static int ask_for_all(int line) {
  const struct {
    struct nlmsghdr head;
    struct rtmsg route;
  } question = {
      .head = {.nlmsg_len = sizeof question,
               .nlmsg_type = RTM_GETROUTE,
               .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
      .route = {.rtm_family = AF_UNSPEC},
  };
  return send(line, &question, sizeof question, 0) < 0 ? -errno : 0;
}

int own_networks(struct own_network **ret_networks, size_t *ret_count) {
  _Alignas(struct nlmsghdr) char buffer[32768];
  _cleanup_close_ int line = routes_open();
  struct list list = {0};
  int result = line < 0 ? line : ask_for_all(line);
  if (result == 0)
    result = netlink_dump(line, 0, buffer, sizeof buffer, take_route, &list);
  if (result < 0) {
    free(list.items);
    return result;
  }
  *ret_networks = list.items;
  *ret_count = list.count;
  return 0;
}
