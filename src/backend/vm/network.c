/* The guest's network: loopback, and with a network the one device that QEMU gives us, with fixed
 * addresses. What can be reached through it is decided outside, by the relay of QEMU's session. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "backend/vm/guest.h"

/* <linux/ipv6.h> and the C library's headers cannot be had together. */
struct address6 {
  struct in6_addr address;
  uint32_t prefix;
  int device;
};

static void must(const struct guest *guest, int result, const char *what) {
  if (result < 0)
    guest_fail(guest, errno, "setting up the network", what);
}

static int raise_device(int fd, const char *name) {
  struct ifreq request = {.ifr_flags = IFF_UP | IFF_RUNNING};
  strncpy(request.ifr_name, name, sizeof request.ifr_name - 1);
  return ioctl(fd, SIOCSIFFLAGS, &request);
}

static struct sockaddr address_of(const char *text) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  struct sockaddr generic;
  inet_pton(AF_INET, text, &address.sin_addr);
  memcpy(&generic, &address, sizeof generic);
  return generic;
}

static int set_address(int fd, unsigned long call, const char *text) {
  struct ifreq request = {.ifr_name = VM_NET_DEVICE, .ifr_addr = address_of(text)};
  return ioctl(fd, call, &request);
}

static int add_default_route(int fd) {
  struct rtentry route = {.rt_dst = address_of("0.0.0.0"),
                          .rt_genmask = address_of("0.0.0.0"),
                          .rt_gateway = address_of(VM_NET_GATEWAY),
                          .rt_flags = RTF_UP | RTF_GATEWAY};
  return ioctl(fd, SIOCADDRT, &route);
}

static void write_setting(const char *file, const char *value) {
  int fd = open(file, O_WRONLY | O_CLOEXEC);
  if (fd >= 0) {
    (void)!write(fd, value, strlen(value));
    close(fd);
  }
}

/* A kernel without IPv6 does without. */
static void raise_six(int device) {
  int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return;
  struct address6 address = {.prefix = 64, .device = device};
  struct in6_rtmsg route = {
      .rtmsg_flags = RTF_UP | RTF_GATEWAY, .rtmsg_metric = 1, .rtmsg_ifindex = device};
  inet_pton(AF_INET6, VM_NET_ADDRESS6, &address.address);
  inet_pton(AF_INET6, VM_NET_GATEWAY6, &route.rtmsg_gateway);
  if (ioctl(fd, SIOCSIFADDR, &address) == 0)
    (void)ioctl(fd, SIOCADDRT, &route);
  close(fd);
}

static void raise_device_of_qemu(const struct guest *guest, int fd) {
  /* No waiting for others with the same address: there is nobody. */
  write_setting("/proc/sys/net/ipv6/conf/" VM_NET_DEVICE "/accept_dad", "0");
  write_setting("/proc/sys/net/ipv6/conf/" VM_NET_DEVICE "/accept_ra", "0");
  /* Published ports lead to loopback, where servers for developers listen. */
  write_setting("/proc/sys/net/ipv4/conf/" VM_NET_DEVICE "/route_localnet", "1");
  must(guest, raise_device(fd, VM_NET_DEVICE), VM_NET_DEVICE);
  must(guest, set_address(fd, SIOCSIFADDR, VM_NET_ADDRESS), VM_NET_ADDRESS);
  must(guest, set_address(fd, SIOCSIFNETMASK, "255.255.255.0"), VM_NET_ADDRESS);
  must(guest, add_default_route(fd), VM_NET_GATEWAY);
  raise_six((int)if_nametoindex(VM_NET_DEVICE));
}

void guest_raise_network(const struct guest *guest) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0 && !guest->network)
    return; /* a kernel without a network at all */
  must(guest, fd, "sockets");
  (void)raise_device(fd, "lo");
  if (guest->network)
    raise_device_of_qemu(guest, fd);
  close(fd);
}
