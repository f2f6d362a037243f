/* Numbers of another pid namespace; see pid-numbers.h. */
#include "core/pid-numbers.h"

#include <errno.h>
#include <sys/ioctl.h>

/* Linux 6.11; younger than the headers of most distributions. */
#ifndef NS_GET_PID_FROM_PIDNS
#define NS_GET_PID_FROM_PIDNS _IOR(0xb7, 0x6, int)
#endif
#ifndef NS_GET_TGID_FROM_PIDNS
#define NS_GET_TGID_FROM_PIDNS _IOR(0xb7, 0x7, int)
#endif

static pid_t translate(int pid_namespace, unsigned long request, pid_t inside) {
  int outer = ioctl(pid_namespace, request, inside);
  return outer < 0 ? -errno : outer;
}

pid_t pid_numbers_process(int pid_namespace, pid_t inside) {
  return translate(pid_namespace, NS_GET_TGID_FROM_PIDNS, inside);
}

pid_t pid_numbers_thread(int pid_namespace, pid_t inside) {
  return translate(pid_namespace, NS_GET_PID_FROM_PIDNS, inside);
}
