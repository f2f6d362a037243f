/* Gives up every capability for good. Runs between clone and exec: raw system calls only. */
#include "engine/caps.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* No capability for uid 0 on exec, none by changing uids, none ambient; all locked. Whether those
 * that are not there would be kept is left open: `ping` sets that bit, and ends if it may not. */
#define LOCKED_BITS                                                                                \
  (SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED | \
   SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)

/* The kernel says with EINVAL which capability is one too many; a newer one has more of them than
 * our headers know. */
int caps_drop_bounding_set(void) {
  for (unsigned long capability = 0; prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0;)
    capability++;
  return errno == EINVAL ? 0 : -errno;
}

/* Bits of younger kernels, which restrict the exec of scripts, stay as they are. */
static int lock_securebits(void) {
  int bits = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);
  if (bits < 0)
    return -errno;
  bits = (bits | LOCKED_BITS) & ~SECBIT_KEEP_CAPS;
  return prctl(PR_SET_SECUREBITS, (unsigned long)bits, 0, 0, 0) < 0 ? -errno : 0;
}

int caps_keep(uint64_t kept) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
  for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
    data[i].effective = data[i].permitted = (uint32_t)(kept >> (32 * i));
  return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

/* Returns those that were in effect before. */
static uint64_t set_effective(uint64_t effective) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
  uint64_t before = 0;
  if (syscall(SYS_capget, &header, data) < 0)
    return 0;
  for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
    before |= (uint64_t)data[i].effective << (32 * i);
    data[i].effective = (uint32_t)(effective >> (32 * i));
  }
  if (before != effective)
    (void)syscall(SYS_capset, &header, data); /* of what is permitted this never fails */
  return before;
}

uint64_t caps_lay_down(void) {
  return set_effective(0);
}

void caps_take_up(uint64_t effective) {
  (void)set_effective(effective);
}

static int clear_sets(void) {
  return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ? -errno : caps_keep(0);
}

int caps_drop_rest(void) {
  int result = lock_securebits();
  return result < 0 ? result : clear_sets(); /* last: the others need CAP_SETPCAP */
}

int caps_drop_all(void) {
  int result = caps_drop_bounding_set();
  return result < 0 ? result : caps_drop_rest();
}

/* The bounding set holds back what uid 0 would get by the exec. */
int caps_pass(uint64_t passed) {
  for (unsigned long capability = 0; capability < 64; capability++) {
    if (!(passed >> capability & 1) && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0 &&
        errno != EINVAL)
      return -errno;
  }
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
  for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
    data[i].effective = data[i].permitted = data[i].inheritable = (uint32_t)(passed >> (32 * i));
  if (syscall(SYS_capset, &header, data) < 0)
    return -errno;
  for (unsigned long capability = 0; capability < 64; capability++) {
    if (passed >> capability & 1 &&
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) < 0)
      return -errno;
  }
  return 0;
}
