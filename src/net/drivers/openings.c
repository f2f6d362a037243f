/* Addresses of permitted names; see openings.h. */
#include "net/drivers/openings.h"

#include <endian.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/child.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "net/drivers/classes.h"
#include "net/drivers/egress.h"
#include "net/netlink.h"

/* ---- the socket ---- */

static _Noreturn void send_socket(int net_ns, int to) {
  int fd = -1;
  if (setns(net_ns, CLONE_NEWNET) == 0)
    fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
  _exit(fd < 0 || fd_send(to, &fd, 1, "", 1) < 0);
}

/* By a child: there is no way back from a network namespace that is not ours. */
int openings_socket(int net_ns) {
  int ends[2], fds[FD_PASS_LIMIT] = {-1, -1, -1, -1};
  char ignored;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return -errno;
  pid_t pid = fork();
  if (pid == 0)
    send_socket(net_ns, ends[1]);
  close(ends[1]);
  ssize_t got = pid < 0 ? -errno : fd_receive(ends[0], fds, &ignored, sizeof ignored);
  close(ends[0]);
  (void)child_wait(pid);
  return fds[0] >= 0 ? fds[0] : got < 0 ? (int)got : -EPROTO;
}

/* ---- elements ---- */

static void add_message(struct netlink_buffer *buffer, uint16_t type, uint16_t flags,
                        const struct filter_element *element) {
  uint64_t timeout = htobe64(element->milliseconds);
  size_t message = netlink_begin_nft(buffer, type, flags | NLM_F_ACK, NFPROTO_INET);
  netlink_put_text(buffer, NFTA_SET_ELEM_LIST_TABLE, EGRESS_TABLE);
  netlink_put_text(buffer, NFTA_SET_ELEM_LIST_SET, element->set);
  size_t list = netlink_begin_nest(buffer, NFTA_SET_ELEM_LIST_ELEMENTS);
  size_t item = netlink_begin_nest(buffer, NFTA_LIST_ELEM);
  size_t key = netlink_begin_nest(buffer, NFTA_SET_ELEM_KEY);
  netlink_put(buffer, NFTA_DATA_VALUE, element->key, element->key_length);
  netlink_end_nest(buffer, key);
  if (type == NFT_MSG_NEWSETELEM && element->milliseconds > 0)
    netlink_put(buffer, NFTA_SET_ELEM_TIMEOUT, &timeout, sizeof timeout);
  netlink_end_nest(buffer, item);
  netlink_end_nest(buffer, list);
  netlink_end(buffer, message);
}

/* One transaction: takes the element away, adds it, or first one and then the other. */
static int change(int filter, const struct filter_element *element, bool removes, bool adds) {
  struct netlink_buffer buffer = {0};
  netlink_add_edge(&buffer, NFNL_MSG_BATCH_BEGIN);
  if (removes)
    add_message(&buffer, NFT_MSG_DELSETELEM, 0, element);
  if (adds)
    add_message(&buffer, NFT_MSG_NEWSETELEM, NLM_F_CREATE | NLM_F_EXCL, element);
  netlink_add_edge(&buffer, NFNL_MSG_BATCH_END);
  return netlink_exchange(filter, &buffer);
}

/* Before Linux 6.12 the time of an element that is there cannot be changed; it may end between two
 * of our steps. */
bool filter_add(int filter, const struct filter_element *element) {
  int result = -EEXIST;
  for (int i = 0; i < 8 && (result == -EEXIST || result == -ENOENT); i++)
    result = change(filter, element, i % 2 == 1, true);
  return result == 0;
}

bool filter_remove(int filter, const struct filter_element *element) {
  return change(filter, element, true, false) == 0;
}

bool filter_flush(int filter, const char *set) {
  struct netlink_buffer buffer = {0};
  netlink_add_edge(&buffer, NFNL_MSG_BATCH_BEGIN);
  size_t message = netlink_begin_nft(&buffer, NFT_MSG_DELSETELEM, NLM_F_ACK, NFPROTO_INET);
  netlink_put_text(&buffer, NFTA_SET_ELEM_LIST_TABLE, EGRESS_TABLE);
  netlink_put_text(&buffer, NFTA_SET_ELEM_LIST_SET, set);
  netlink_end(&buffer, message);
  netlink_add_edge(&buffer, NFNL_MSG_BATCH_END);
  return netlink_exchange(filter, &buffer) == 0;
}

/* ---- addresses of names ---- */

static struct filter_element element_of(const struct address *address, unsigned class) {
  struct filter_element element = {.key_length = address->family == 6 ? 16 : 4};
  snprintf(element.set, sizeof element.set, EGRESS_NAMED, address->family, class);
  memcpy(element.key, address->bytes, element.key_length);
  return element;
}

void openings_close(int filter, const struct address *address, size_t class_count) {
  for (unsigned class = 0; class < class_count; class ++) {
    struct filter_element element = element_of(address, class);
    (void)filter_remove(filter, &element); /* or it is not there */
  }
}

static bool open_one(int filter, const struct opening *opening, const struct address *address,
                     unsigned class) {
  struct filter_element element = element_of(address, class);
  element.milliseconds = (uint64_t)opening->seconds * 1000;
  return filter_add(filter, &element);
}

static bool open_all(int filter, const struct opening *opening) {
  for (size_t i = 0; i < opening->count; i++) {
    for (unsigned class = 0; class < PORT_CLASSES; class ++) {
      if ((opening->classes & UINT32_C(1) << class) &&
          !open_one(filter, opening, &opening->addresses[i], class))
        return false;
    }
  }
  return true;
}

/* It comes from a process that may have been taken over. */
static bool is_sound(const struct opening *opening) {
  bool sound = opening->count <= RESOLVE_LIMIT && opening->seconds > 0 &&
               opening->seconds <= OPENING_TTL_MOST + OPENING_GRACE;
  for (size_t i = 0; sound && i < opening->count; i++)
    sound = opening->addresses[i].family == 4 || opening->addresses[i].family == 6;
  return sound;
}

bool openings_serve(int asker, int filter) {
  struct opening opening;
  ssize_t got = recv(asker, &opening, sizeof opening, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return true;
  if (got != sizeof opening || !is_sound(&opening))
    return false;
  struct opened opened = {.id = opening.id, .done = open_all(filter, &opening)};
  (void)send(asker, &opened, sizeof opened, MSG_NOSIGNAL | MSG_DONTWAIT);
  return true;
}
