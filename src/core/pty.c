/* A new pair of terminals; see pty.h. The slave is opened without its name, which may be another's
 * in the view of whoever asks. */
#include "core/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/cleanup.h"

int pty_open(int *ret_master, int *ret_slave) {
  int unlock = 0;
  _cleanup_close_ int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0)
    return -errno;
  int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0)
    return -errno;
  *ret_master = steal_fd(&master);
  *ret_slave = slave;
  return 0;
}
