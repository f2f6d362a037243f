/* One datagram of the workload, and whom it was for. */
#include <netinet/in.h>
#include <string.h>

#include "net/flow.h"

static bool find_destination(struct msghdr *message, struct endpoint *ret) {
  for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control;
       control = CMSG_NXTHDR(message, control)) {
    bool v4 = control->cmsg_level == SOL_IP && control->cmsg_type == IP_ORIGDSTADDR;
    bool v6 = control->cmsg_level == SOL_IPV6 && control->cmsg_type == IPV6_ORIGDSTADDR;
    if (!v4 && !v6)
      continue;
    struct sockaddr_storage storage = {0};
    memcpy(&storage, CMSG_DATA(control),
           v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
    ret->address = address_from_sockaddr(&storage, &ret->port);
    return true;
  }
  return false;
}

bool datagram_receive(int fd, void *bytes, size_t size, size_t *ret_length,
                      struct endpoint *ret_client, struct endpoint *ret_target) {
  struct sockaddr_storage from;
  union {
    char bytes[CMSG_SPACE(sizeof(struct sockaddr_in6))];
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
