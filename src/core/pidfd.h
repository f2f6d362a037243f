/* What descriptors of processes can do that is younger than the headers of most distributions. */
#pragma once

#include <fcntl.h>

/* Linux 6.9; before, pidfd_open fails with EINVAL. */
#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif
