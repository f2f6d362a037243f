/* Looks for what the host mounts by itself; see automount.h. No file system is asked: one that is
 * far away would keep everybody waiting. */
#include "gate/automount.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "plan/host-mounts.h"

bool automount_exists(void) {
  return host_mounts()->automatic;
}

static bool is_in_automount(const struct mount_table *table, int folder) {
  struct statx status;
  char device[32];
  if (statx(folder, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) < 0)
    return false;
  snprintf(device, sizeof device, "%u:%u", status.stx_dev_major, status.stx_dev_minor);
  for (size_t i = 0; i < table->count; i++) {
    if (mount_is_automatic(&table->entries[i]) && strcmp(table->entries[i].device, device) == 0)
      return true;
  }
  return false;
}

static bool is_mounted(const struct mount_table *table, const char *path) {
  for (size_t i = 0; i < table->count; i++) {
    if (strcmp(table->entries[i].point, path) == 0)
      return true;
  }
  return false;
}

bool automount_waits(int folder, const char *path) {
  const struct host_mounts *mounts = host_mounts();
  return mounts->automatic && is_in_automount(&mounts->table, folder) &&
         !is_mounted(&mounts->table, path);
}
