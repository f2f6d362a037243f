/* The kernel's answer to a netlink request for a whole list (NLM_F_DUMP). */
#pragma once

#include <linux/netlink.h>
#include <stddef.h>

typedef void netlink_taker(void *context, const struct nlmsghdr *message);

/* Reads all of it, a buffer (aligned as a message is) at a time, and takes each message. `flags`
 * are those of recv. 0 or a negative errno; -EOPNOTSUPP: the kernel answers with an error. */
int netlink_dump(int line, int flags, char *buffer, size_t size, netlink_taker *take,
                 void *context);
