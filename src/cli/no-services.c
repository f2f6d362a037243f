/* The C library's tables of services, which a static program can read only with the help of shared
 * libraries of the very same version. The resolver's library names them and is never asked for one:
 * here they are empty, and the machinery behind them stays out of the command. */
#include <errno.h>
#include <netdb.h>
#include <stddef.h>

struct servent *getservbyname(const char *name, const char *protocol) {
  (void)name, (void)protocol;
  return NULL;
}

int getservbyport_r(int port, const char *protocol, struct servent *ret, char *buffer, size_t size,
                    struct servent **ret_found) {
  (void)port, (void)protocol, (void)ret, (void)buffer, (void)size;
  *ret_found = NULL;
  return ENOENT;
}
