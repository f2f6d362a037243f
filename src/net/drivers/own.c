/* The host's own addresses; see own.h. */
#include "net/drivers/own.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"

int own_addresses_watch(void) {
  _cleanup_close_ int fd =
      socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
  struct sockaddr_nl groups = {.nl_family = AF_NETLINK,
                               .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
  if (fd < 0 || bind(fd, (struct sockaddr *)&groups, sizeof groups) < 0)
    return -errno;
  return steal_fd(&fd);
}

void own_addresses_drain(int watch) {
  char dropped[8192];
  /* ENOBUFS: there was more than it could keep, so something has changed. */
  while (recv(watch, dropped, sizeof dropped, 0) > 0 || errno == ENOBUFS || errno == EINTR)
    ;
}

int own_addresses(struct address **ret_addresses, size_t *ret_count) {
  struct ifaddrs *all = NULL;
  struct address *own = NULL;
  size_t count = 0;
  if (getifaddrs(&all) < 0)
    return -errno;
  for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
    int family = at->ifa_addr ? at->ifa_addr->sa_family : AF_UNSPEC;
    if (family != AF_INET && family != AF_INET6)
      continue;
    struct sockaddr_storage storage = {0};
    memcpy(&storage, at->ifa_addr,
           family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
    uint16_t port;
    ARRAY_GROW(own, count);
    own[count++] = address_from_sockaddr(&storage, &port);
  }
  freeifaddrs(all);
  *ret_addresses = own;
  *ret_count = count;
  return 0;
}
