/* The argument rules of the calls that syscalls.def classes as ARGUMENTS. Pointers are never looked
 * at: what lies behind them can change after the check. */
#include "genfilter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define ALLOW         SECCOMP_RET_ALLOW
#define REFUSE(errno) (SECCOMP_RET_ERRNO | (errno))

#define EQUAL(argument, value)                                                                     \
  { CHECK_EQUAL, argument, UINT32_MAX, value }
#define NOT_EQUAL(argument, value)                                                                 \
  { CHECK_NOT_EQUAL, argument, UINT32_MAX, value }
#define MASKED(argument, mask, value)                                                              \
  { CHECK_EQUAL, argument, mask, value }
#define NOT_MASKED(argument, mask, value)                                                          \
  { CHECK_NOT_EQUAL, argument, mask, value }
#define ANY_BIT(argument, mask)                                                                    \
  { CHECK_ANY_BIT, argument, mask, 0 }

#define NULL_LOW(argument) EQUAL(argument, 0)
#define NULL_HIGH(argument)                                                                        \
  { CHECK_EQUAL, argument, UINT32_MAX, 0, .high = true }
#define NOT_NULL_LOW(argument) NOT_EQUAL(argument, 0)
#define NOT_NULL_HIGH(argument)                                                                    \
  { CHECK_NOT_EQUAL, argument, UINT32_MAX, 0, .high = true }
#define DO_NOTHING REFUSE(0)              /* and say that it was done */
#define WAIT       SECCOMP_RET_USER_NOTIF /* for the gate: traps.def has it */

/* clone(2) has no CLONE_NEWTIME: its bit is part of the exit signal there. */
#define NAMESPACES                                                                                 \
  (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |    \
   CLONE_NEWNET)
#define SET_ID      (S_ISUID | S_ISGID)
#define SOCKET_TYPE 0xf /* without SOCK_CLOEXEC and SOCK_NONBLOCK */

/* The two groups of console requests (linux/kd.h and linux/vt.h): KDSKBSENT puts a command on a
 * function key of the console that the next user types at. */
#define REQUEST_GROUP 0xffffff00
#define KEYBOARD      0x4b00
#define CONSOLE       0x5600

const struct rule rules[] = {
    {{"fchmod"}, NOT_CONTAINERS, REFUSE(EPERM), {ANY_BIT(1, SET_ID)}},
    {{"fchmod"}, ALWAYS, ALLOW},
    {{"chmod"}, NOT_CONTAINERS, REFUSE(EPERM), {ANY_BIT(1, SET_ID)}},
    {{"chmod"}, ONLY_NOTIFY, WAIT},
    {{"chmod"}, ALWAYS, ALLOW},
    {{"fchmodat", "fchmodat2"}, NOT_CONTAINERS, REFUSE(EPERM), {ANY_BIT(2, SET_ID)}},
    {{"fchmodat", "fchmodat2"}, ONLY_NOTIFY, WAIT},
    {{"fchmodat", "fchmodat2"}, ALWAYS, ALLOW},

    {{"mknod"}, NOT_CONTAINERS, REFUSE(EPERM), {MASKED(1, S_IFMT, S_IFCHR)}},
    {{"mknod"}, NOT_CONTAINERS, REFUSE(EPERM), {MASKED(1, S_IFMT, S_IFBLK)}},
    {{"mknod"}, NOT_CONTAINERS, REFUSE(EPERM), {ANY_BIT(1, SET_ID)}},
    {{"mknod"}, ONLY_NOTIFY, WAIT},
    {{"mknod"}, ALWAYS, ALLOW},
    {{"mknodat"}, NOT_CONTAINERS, REFUSE(EPERM), {MASKED(2, S_IFMT, S_IFCHR)}},
    {{"mknodat"}, NOT_CONTAINERS, REFUSE(EPERM), {MASKED(2, S_IFMT, S_IFBLK)}},
    {{"mknodat"}, NOT_CONTAINERS, REFUSE(EPERM), {ANY_BIT(2, SET_ID)}},
    {{"mknodat"}, ONLY_NOTIFY, WAIT},
    {{"mknodat"}, ALWAYS, ALLOW},

    /* Only what names a socket; send(2) on one that is connected names none. */
    {{"sendto"}, ONLY_NOTIFY, ALLOW, {NULL_LOW(4), NULL_HIGH(4)}},
    {{"sendto"}, ONLY_NOTIFY, WAIT},

    /* What fstat(3) is in many C libraries, half of all calls of some programs: a descriptor, and a
     * path that is empty. If it is not, the call meets the mount view alone. */
    {{"newfstatat", "fstatat64"},
     ONLY_NOTIFY,
     ALLOW,
     {NOT_EQUAL(0, AT_FDCWD), EQUAL(3, AT_EMPTY_PATH)}},
    {{"newfstatat", "fstatat64"}, ONLY_NOTIFY, WAIT},
    {{"statx"}, ONLY_NOTIFY, ALLOW, {NOT_EQUAL(0, AT_FDCWD), EQUAL(2, AT_EMPTY_PATH)}},
    {{"statx"}, ONLY_NOTIFY, WAIT},

    {{"clone"}, NOT_CONTAINERS, REFUSE(EPERM), {ANY_BIT(0, NAMESPACES)}},
    {{"clone"}, ALWAYS, ALLOW},

    /* Their datagrams reach whoever has a name in view; a raw one becomes one of them. */
    {{"socket", "socketpair"},
     ONLY_CONNECT,
     REFUSE(EACCES),
     {EQUAL(0, AF_UNIX), MASKED(1, SOCKET_TYPE, SOCK_DGRAM)}},
    {{"socket", "socketpair"},
     ONLY_CONNECT,
     REFUSE(EACCES),
     {EQUAL(0, AF_UNIX), MASKED(1, SOCKET_TYPE, SOCK_RAW)}},

    /* Not only raw sockets: AF_INET with SOCK_PACKET becomes AF_PACKET in the kernel, and asking
     * for SCTP, DCCP or L2TP loads their modules. */
    {{"socket"}, ALWAYS, ALLOW, {EQUAL(0, AF_UNIX)}},
    {{"socket"}, ALWAYS, ALLOW, {EQUAL(0, AF_NETLINK), EQUAL(2, NETLINK_ROUTE)}},
    {{"socket"}, ALWAYS, REFUSE(EAFNOSUPPORT), {NOT_EQUAL(0, AF_INET), NOT_EQUAL(0, AF_INET6)}},
    {{"socket"},
     ALWAYS,
     REFUSE(EPERM),
     {NOT_MASKED(1, SOCKET_TYPE, SOCK_STREAM), NOT_MASKED(1, SOCKET_TYPE, SOCK_DGRAM)}},
    {{"socket"}, ALWAYS, ALLOW, {EQUAL(2, IPPROTO_IP)}},
    {{"socket"}, ALWAYS, ALLOW, {EQUAL(2, IPPROTO_TCP)}},
    {{"socket"}, ALWAYS, ALLOW, {EQUAL(2, IPPROTO_UDP)}},
    {{"socket"}, ALWAYS, ALLOW, {EQUAL(2, IPPROTO_ICMP)}},
    {{"socket"}, ALWAYS, ALLOW, {EQUAL(2, IPPROTO_ICMPV6)}},
    {{"socket"}, ALWAYS, REFUSE(EPROTONOSUPPORT)},

    {{"socketpair"}, ALWAYS, ALLOW, {EQUAL(0, AF_UNIX)}},
    {{"socketpair"}, ALWAYS, REFUSE(EAFNOSUPPORT)},

    /* A line discipline (TIOCSETD) loads old, rarely read kernel modules. */
    {{"ioctl"}, ALWAYS, REFUSE(EPERM), {EQUAL(1, TIOCSTI)}},
    {{"ioctl"}, ALWAYS, REFUSE(EPERM), {EQUAL(1, TIOCLINUX)}},
    {{"ioctl"}, ALWAYS, REFUSE(EPERM), {EQUAL(1, TIOCSETD)}},
    {{"ioctl"}, ALWAYS, REFUSE(EPERM), {EQUAL(1, TIOCCONS)}},
    {{"ioctl"}, ALWAYS, REFUSE(ENOTTY), {MASKED(1, REQUEST_GROUP, KEYBOARD)}},
    {{"ioctl"}, ALWAYS, REFUSE(ENOTTY), {MASKED(1, REQUEST_GROUP, CONSOLE)}},
    {{"ioctl"}, ALWAYS, ALLOW},

    /* A lease on a file that is only readable here stops its writers on the host, for 45 s each.
     * The kernel says the same to whoever does not own the file. */
    {{"fcntl", "fcntl64"}, ALWAYS, REFUSE(EACCES), {EQUAL(1, F_SETLEASE)}},
    {{"fcntl", "fcntl64"}, ALWAYS, ALLOW},

    {{"prctl"}, ALWAYS, REFUSE(EPERM), {EQUAL(0, PR_SET_MM)}},
    {{"prctl"}, ALWAYS, ALLOW},

    {{"personality"}, ALWAYS, ALLOW, {EQUAL(0, PER_LINUX)}},
    {{"personality"}, ALWAYS, ALLOW, {EQUAL(0, PER_LINUX32)}},
    {{"personality"}, ALWAYS, ALLOW, {EQUAL(0, UINT32_MAX)}}, /* asks for the current one */
    {{"personality"}, ONLY_DEBUG, ALLOW, {EQUAL(0, PER_LINUX | ADDR_NO_RANDOMIZE)}},
    {{"personality"}, ONLY_DEBUG, ALLOW, {EQUAL(0, PER_LINUX32 | ADDR_NO_RANDOMIZE)}},
    {{"personality"}, ALWAYS, REFUSE(EPERM)},

    /* Core files are off for good, by the one limit (1) that also keeps a pipe in core_pattern from
     * starting the host's handler; 0 would let it start. Programs that switch them off themselves
     * have what they want. */
    {{"setrlimit"}, ALWAYS, DO_NOTHING, {EQUAL(0, RLIMIT_CORE)}},
    {{"setrlimit"}, ALWAYS, ALLOW},
    /* One's own only: init runs as the same user, and without descriptors it could not do its part.
     */
    {{"prlimit64"}, ALWAYS, REFUSE(EPERM), {NOT_EQUAL(0, 0), NOT_NULL_LOW(2)}},
    {{"prlimit64"}, ALWAYS, REFUSE(EPERM), {NOT_EQUAL(0, 0), NOT_NULL_HIGH(2)}},
    {{"prlimit64"}, ALWAYS, DO_NOTHING, {EQUAL(1, RLIMIT_CORE), NOT_NULL_LOW(2)}},
    {{"prlimit64"}, ALWAYS, DO_NOTHING, {EQUAL(1, RLIMIT_CORE), NOT_NULL_HIGH(2)}},
    {{"prlimit64"}, ALWAYS, ALLOW},

    {{"seccomp"},
     ALWAYS,
     REFUSE(EPERM),
     {EQUAL(0, SECCOMP_SET_MODE_FILTER), ANY_BIT(1, SECCOMP_FILTER_FLAG_NEW_LISTENER)}},
    {{"seccomp"}, ALWAYS, ALLOW},
};
const size_t rule_count = sizeof rules / sizeof rules[0];

static bool names_call(const struct rule *rule, const char *call) {
  return strcmp(rule->calls[0], call) == 0 || (rule->calls[1] && strcmp(rule->calls[1], call) == 0);
}

static bool applies(const struct rule *rule, struct variant variant) {
  return rule->when == ALWAYS || (rule->when == ONLY_DEBUG && variant.debug) ||
         (rule->when == NOT_CONTAINERS && !variant.containers) ||
         (rule->when == ONLY_NOTIFY && variant.waits == WAIT_PATHS) ||
         (rule->when == ONLY_CONNECT && variant.waits == WAIT_CONNECT);
}

const struct rule *rule_next(const struct rule *rule, const char *call, struct variant variant) {
  for (rule = rule ? rule + 1 : rules; rule < rules + rule_count; rule++) {
    if (names_call(rule, call) && applies(rule, variant))
      return rule;
  }
  return NULL;
}
