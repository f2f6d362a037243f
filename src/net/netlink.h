/* Messages to the kernel's netlink families, put together by hand. Raw system calls, no allocation:
 * the session's init uses it, too. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct netlink_buffer {
  _Alignas(8) char bytes[16384]; /* more than any of our batches takes */
  size_t length;
  uint32_t sequence;
};

/* Zeros, which the caller fills in. */
void *netlink_append(struct netlink_buffer *buffer, size_t size);

/* A message, from its beginning (returned) to its end. */
size_t netlink_begin(struct netlink_buffer *buffer, uint16_t type, uint16_t flags);
void netlink_end(struct netlink_buffer *buffer, size_t start);

/* Attributes; numbers are big-endian, as netfilter has them. */
void netlink_put(struct netlink_buffer *buffer, uint16_t type, const void *data, size_t size);
void netlink_put_text(struct netlink_buffer *buffer, uint16_t type, const char *text);
void netlink_put_number(struct netlink_buffer *buffer, uint16_t type, uint32_t value);
size_t netlink_begin_nest(struct netlink_buffer *buffer, uint16_t type);
void netlink_end_nest(struct netlink_buffer *buffer, size_t start);

/* A message of nftables; a batch of them lies between two edges (NFNL_MSG_BATCH_BEGIN, _END). */
size_t netlink_begin_nft(struct netlink_buffer *buffer, uint16_t type, uint16_t flags,
                         uint8_t family);
void netlink_add_edge(struct netlink_buffer *buffer, uint16_t type);

/* Sends all and reads every answer: the kernel has worked it off when send returns. 0, or the first
 * error as a negative errno; -EPROTO if nobody answered. */
int netlink_exchange(int fd, const struct netlink_buffer *buffer);

/* The first attribute of the type among `length` bytes; NULL: there is none, or they are damaged.
 */
struct nlattr;
const struct nlattr *netlink_find(const char *bytes, size_t length, uint16_t type);
