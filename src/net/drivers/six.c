/* IPv6 for drivers; see six.h. */
#include "net/drivers/six.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "net/netlink.h"

/* `default` is what a new interface has. */
static const char *const switches[] = {"all", "default"};

/* ---- whether there is any ---- */

static int require_ipv6(struct sb_error *error) {
  for (size_t i = 0; i < ARRAY_SIZE(switches); i++) {
    _cleanup_free_ char *text = NULL;
    char path[64];
    snprintf(path, sizeof path, "/proc/sys/net/ipv6/conf/%s/disable_ipv6", switches[i]);
    if (file_read_at(AT_FDCWD, path, 16, &text, NULL) < 0) {
      sb_fail(error, SB_CODE_UNSUPPORTED, 0, "this machine's kernel has no IPv6");
      return sb_hint(error, "leave out what is about IPv6 addresses");
    }
    if (text[0] == '0')
      continue;
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "IPv6 is switched off on this machine");
    return sb_hint(error,
                   "sudo sysctl -w net.ipv6.conf.%s.disable_ipv6=0, or leave out what is about "
                   "IPv6 addresses",
                   switches[i]);
  }
  return 0;
}

static int probe(const struct net_driver *driver, struct sb_error *error) {
  if (require_ipv6(error) < 0)
    return -1;
  return driver->probe_six ? driver->probe_six(error) : 0;
}

bool six_is_there(const struct net_driver *driver) {
  _cleanup_error_ struct sb_error ignored = {0};
  return probe(driver, &ignored) == 0;
}

int six_check(const struct net_driver *driver, const struct host_rules *rules,
              struct sb_error *error) {
  for (size_t i = 0; i < rules->allow_count; i++) {
    const struct host_rule *rule = &rules->allow[i];
    if (rule->kind != HOST_NETWORK || rule->network.family != 6)
      continue;
    return probe(driver, error) < 0
               ? sb_wrap(error, "%s with network.driver %s", rule->written, driver->name)
               : 0;
  }
  return 0;
}

/* ---- an address ---- */

static void add_address(struct netlink_buffer *buffer, unsigned device,
                        const struct in6_addr *address) {
  size_t message = netlink_begin(buffer, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK);
  struct ifaddrmsg *head = netlink_append(buffer, sizeof *head);
  *head = (struct ifaddrmsg){.ifa_family = AF_INET6,
                             .ifa_prefixlen = 64,
                             .ifa_flags = IFA_F_NODAD, /* nobody else is there */
                             .ifa_index = device};
  netlink_put(buffer, IFA_LOCAL, address, sizeof *address);
  netlink_end(buffer, message);
}

static void add_route(struct netlink_buffer *buffer, unsigned device,
                      const struct in6_addr *gateway) {
  size_t message = netlink_begin(buffer, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK);
  struct rtmsg *route = netlink_append(buffer, sizeof *route);
  *route = (struct rtmsg){.rtm_family = AF_INET6,
                          .rtm_table = RT_TABLE_MAIN,
                          .rtm_protocol = RTPROT_BOOT,
                          .rtm_scope = RT_SCOPE_UNIVERSE,
                          .rtm_type = RTN_UNICAST};
  netlink_put(buffer, RTA_GATEWAY, gateway, sizeof *gateway);
  netlink_put(buffer, RTA_OIF, &device, sizeof device);
  netlink_end(buffer, message);
}

static int configure_inside(const struct driver_run *run, const struct six_address *six) {
  struct netlink_buffer buffer = {0};
  struct in6_addr address, gateway;
  if (inet_pton(AF_INET6, six->address, &address) != 1 ||
      inet_pton(AF_INET6, six->gateway, &gateway) != 1)
    return -EINVAL;
  if (setns(run->request->net_ns, CLONE_NEWNET) < 0)
    return -errno;
  unsigned device = if_nametoindex(run->request->driver->interface);
  _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (device == 0 || fd < 0)
    return -errno;
  add_address(&buffer, device, &address);
  add_route(&buffer, device, &gateway);
  return netlink_exchange(fd, &buffer);
}

/* By a child: there is no way back from a network namespace that is not ours. */
int six_configure(struct driver_run *run, const struct six_address *six) {
  int status = -1;
  pid_t pid = fork();
  if (pid == 0)
    _exit(-configure_inside(run, six) & 255);
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  if (pid > 0 && status == 0)
    return 0;
  snprintf(run->problem, sizeof run->problem, "an IPv6 address inside: %s",
           pid > 0 && WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "no process for it");
  return -1;
}
