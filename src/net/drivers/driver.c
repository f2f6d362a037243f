/* The table of drivers; see driver.h. */
#include "net/drivers/driver.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "core/cleanup.h"
#include "engine/landlock.h"

const struct net_driver *const net_drivers[] = {&slirp_driver, &pasta_driver, &veth_driver, NULL};

const struct net_driver *net_driver_find(const char *name) {
  for (size_t i = 0; name && net_drivers[i]; i++) {
    if (strcmp(net_drivers[i]->name, name) == 0)
      return net_drivers[i];
  }
  return NULL;
}

char *net_driver_tool(const struct net_driver *driver, int index) {
  return tool_find(index == DRIVER_NFT ? "nft" : driver->tools[index].program);
}

static int check_tool(const struct net_driver *driver, int index, struct sb_error *error) {
  _cleanup_free_ char *path = net_driver_tool(driver, index);
  if (path)
    return 0;
  const char *program = index == DRIVER_NFT ? "nft" : driver->tools[index].program;
  const char *package = index == DRIVER_NFT ? "nftables" : driver->tools[index].package;
  sb_fail(error, SB_CODE_UNSUPPORTED, 0,
          "network.driver %s needs the program %s, which is not here", driver->name, program);
  return sb_hint(error, "install the package %s, or use network.driver: auto, which needs nothing",
                 package);
}

int net_driver_needs_tun(struct sb_error *error) {
  if (access("/dev/net/tun", R_OK | W_OK) == 0)
    return 0;
  sb_fail(error, SB_CODE_UNSUPPORTED, errno, "/dev/net/tun");
  return sb_hint(error, "sudo modprobe tun; in a container: --device /dev/net/tun; or use "
                        "network.driver: auto, which needs nothing");
}

const char *net_driver_lacks(const struct net_driver *driver) {
  if (!driver->needs_shut_in || geteuid() == 0 || landlock_abi() > 0)
    return NULL;
  return "this kernel has no Landlock, so nothing keeps its process from your files if somebody "
         "takes it over; network.driver: pasta shuts itself in";
}

int net_driver_check(const struct net_driver *driver, struct sb_error *error) {
  if (driver->by_root && geteuid() != 0) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0,
            "network.driver %s changes the host's network: it needs "
            "root",
            driver->name);
    return sb_hint(error, "use network.driver: pasta or slirp4netns, or auto");
  }
  for (int i = DRIVER_NFT; i == DRIVER_NFT || driver->tools[i].program; i++) {
    if (check_tool(driver, i, error) < 0)
      return -1;
  }
  return driver->probe ? driver->probe(error) : 0;
}
