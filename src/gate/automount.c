/* Looks for what the host mounts by itself; see automount.h. No file system is asked: one that is
 * far away would keep everybody waiting. */
#include "gate/automount.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/path.h"
#include "plan/mounts.h"

/* The one that systemd keeps in /proc is nowhere that we look. */
static bool is_automount(const struct mount_entry *entry) {
  return strcmp(entry->type, "autofs") == 0 && !path_is_under(entry->point, "/proc");
}

/* As long as we live: the kernel tells by the descriptor that the list is another one. */
static struct {
  struct pollfd list;
  struct mount_table table; /* empty unless there are any */
} known = {.list = {.fd = -1, .events = POLLPRI}};

static bool has_automounts(const struct mount_table *table) {
  for (size_t i = 0; i < table->count; i++) {
    if (is_automount(&table->entries[i]))
      return true;
  }
  return false;
}

bool automount_exists(void) {
  bool first = known.list.fd < 0;
  if (first)
    known.list.fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
  if (first || poll(&known.list, 1, 0) != 0) {
    mount_table_clear(&known.table);
    if (mount_table_load(&known.table) == 0 && !has_automounts(&known.table))
      mount_table_clear(&known.table);
  }
  return known.table.count > 0;
}

static bool is_in_automount(const struct mount_table *table, int folder) {
  struct statx status;
  char device[32];
  if (statx(folder, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) < 0)
    return false;
  snprintf(device, sizeof device, "%u:%u", status.stx_dev_major, status.stx_dev_minor);
  for (size_t i = 0; i < table->count; i++) {
    if (is_automount(&table->entries[i]) && strcmp(table->entries[i].device, device) == 0)
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
  return automount_exists() && is_in_automount(&known.table, folder) &&
         !is_mounted(&known.table, path);
}
