/* The kernel's list of UNIX sockets in one network namespace. */
#pragma once

#include <linux/unix_diag.h>
#include <stddef.h>

/* A line to the kernel, which belongs to the network namespace that it is opened in; or a negative
 * errno. */
int unix_diag_open(void);

/* One attribute (UNIX_DIAG_*) of one socket. */
typedef void unix_diag_visitor(void *context, const struct unix_diag_msg *socket, int kind,
                               const void *data, size_t length);

/* Visits the attributes `show` (UDIAG_SHOW_*) of every socket in `states` (bits by TCP_*). 0 or a
 * negative errno; -EOPNOTSUPP: the kernel was built without it. */
int unix_diag_dump(int line, unsigned states, unsigned show, unix_diag_visitor *visit,
                   void *context);
