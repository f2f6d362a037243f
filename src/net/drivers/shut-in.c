/* Landlock around a driver's program; see shut-in.h. */
#include "net/drivers/shut-in.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/landlock.h"

#define ALL_FILE_RIGHTS ((1ULL << 13) - 1) /* of the first ABI */
#define READ            (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define RUN             (READ | LANDLOCK_ACCESS_FS_EXECUTE)
#define USE             (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE)

static const struct {
  const char *path;
  uint64_t rights;
} places[] = {
    {"/usr", RUN},
    {"/bin", RUN},
    {"/sbin", RUN},
    {"/lib", RUN},
    {"/lib64", RUN},
    {"/nix/store", RUN},
    {"/etc/ld.so.cache", LANDLOCK_ACCESS_FS_READ_FILE},
    {"/etc/ld.so.conf", LANDLOCK_ACCESS_FS_READ_FILE},
    /* often a link into a folder of its own, where a new one replaces it */
    {"/etc/resolv.conf", LANDLOCK_ACCESS_FS_READ_FILE},
    {"/run/systemd/resolve", LANDLOCK_ACCESS_FS_READ_FILE},
    {"/run/NetworkManager", LANDLOCK_ACCESS_FS_READ_FILE},
    {"/run/resolvconf", LANDLOCK_ACCESS_FS_READ_FILE},
    {"/dev/net/tun", USE},
    {"/dev/null", USE},
    {"/dev/urandom", LANDLOCK_ACCESS_FS_READ_FILE},
    {"/proc/self", READ},
};

static int allow(int ruleset, const char *path, uint64_t rights) {
  _cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);
  struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
  if (fd < 0)
    return 0; /* not on this machine */
  return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0 ? -errno
                                                                                           : 0;
}

int driver_shut_in(void) {
  struct {
    uint64_t handled_fs;
  } attributes = {ALL_FILE_RIGHTS};
  if (landlock_abi() == 0)
    return 0;
  _cleanup_close_ int ruleset =
      (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
  if (ruleset < 0)
    return -errno;
  for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
    int result = allow(ruleset, places[i].path, places[i].rights);
    if (result < 0)
      return result;
  }
  return syscall(SYS_landlock_restrict_self, ruleset, 0) < 0 ? -errno : 0;
}
