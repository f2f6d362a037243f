/* One datagram of the workload, and whom it was for. */
#include <netinet/in.h>
#include <string.h>

#include "net/flow.h"

union destination {
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
  struct in_pktinfo info4;
  struct in6_pktinfo info6;
};

/* Datagrams that were led here carry the address and port they were for, echo requests their
 * address. */
static bool read_destination(const struct cmsghdr *control, struct endpoint *ret) {
  union destination raw = {0};
  struct sockaddr_storage storage = {0};
  memcpy(&raw, CMSG_DATA(control), control->cmsg_len - CMSG_LEN(0));
  bool v4 = control->cmsg_level == SOL_IP, v6 = control->cmsg_level == SOL_IPV6;
  if (v4 && control->cmsg_type == IP_ORIGDSTADDR)
    memcpy(&storage, &raw.v4, sizeof raw.v4);
  else if (v6 && control->cmsg_type == IPV6_ORIGDSTADDR)
    memcpy(&storage, &raw.v6, sizeof raw.v6);
  else if (v4 && control->cmsg_type == IP_PKTINFO)
    *(struct sockaddr_in *)&storage =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = raw.info4.ipi_addr};
  else if (v6 && control->cmsg_type == IPV6_PKTINFO)
    *(struct sockaddr_in6 *)&storage =
        (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = raw.info6.ipi6_addr};
  else
    return false;
  ret->address = address_from_sockaddr(&storage, &ret->port);
  return true;
}

static bool find_destination(struct msghdr *message, struct endpoint *ret) {
  for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control;
       control = CMSG_NXTHDR(message, control)) {
    if (control->cmsg_len <= CMSG_LEN(sizeof(union destination)) && read_destination(control, ret))
      return true;
  }
  return false;
}

bool datagram_receive(int fd, void *bytes, size_t size, size_t *ret_length,
                      struct endpoint *ret_client, struct endpoint *ret_target) {
  struct sockaddr_storage from;
  union {
    char bytes[CMSG_SPACE(sizeof(union destination))];
    struct cmsghdr align;
  } control;
  struct iovec part = {bytes, size};
  struct msghdr message = {.msg_name = &from,
                           .msg_namelen = sizeof from,
                           .msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof control};
  ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT);
  if (got < 0)
    return false;
  *ret_target = (struct endpoint){0};
  bool whole = !(message.msg_flags & MSG_TRUNC) && find_destination(&message, ret_target);
  *ret_length = whole ? (size_t)got : 0;
  ret_client->address = address_from_sockaddr(&from, &ret_client->port);
  return true;
}
