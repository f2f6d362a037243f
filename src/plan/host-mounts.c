/* The host's mounts as they are now; see host-mounts.h. */
#include "plan/host-mounts.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/path.h"

/* ---- kinds ---- */

/* The one that systemd keeps in /proc is nowhere that we look. */
bool mount_is_automatic(const struct mount_entry *entry) {
  return strcmp(entry->type, "autofs") == 0 && !path_is_under(entry->point, "/proc");
}

/* Whoever answers for it may be far away, or has stopped. */
static const char *const distant_types[] = {"9p",   "afs",    "beegfs",   "ceph", "cifs",
                                            "coda", "fuse",   "fuseblk",  "gpfs", "nfs",
                                            "nfs4", "lustre", "orangefs", "smb3", "smbfs"};

/* Where the root itself is of such a kind, everything would wait, and who looks as well. The gate
 * of a session that we are in waits for a person, who may take a minute. */
bool mount_is_distant(const struct mount_entry *entry) {
  if (strcmp(entry->point, "/") == 0 || strcmp(entry->type, "fuse.sandbox") == 0)
    return false;
  for (size_t i = 0; i < ARRAY_SIZE(distant_types); i++) {
    if (strcmp(entry->type, distant_types[i]) == 0)
      return true;
  }
  return strncmp(entry->type, "fuse.", strlen("fuse.")) == 0;
}

/* ---- the list ---- */

static struct {
  struct pollfd list;
  pid_t owner; /* a process that we fork has another, or none */
  struct host_mounts mounts;
} known = {.list = {.fd = -1, .events = POLLPRI}};

static void load(void) {
  struct host_mounts *mounts = &known.mounts;
  mount_table_clear(&mounts->table);
  *mounts = (struct host_mounts){0};
  if (mount_table_load(&mounts->table) < 0)
    return;
  for (size_t i = 0; i < mounts->table.count; i++) {
    mounts->automatic |= mount_is_automatic(&mounts->table.entries[i]);
    mounts->distant |= mount_is_distant(&mounts->table.entries[i]);
  }
  if (!mounts->automatic && !mounts->distant)
    mount_table_clear(&mounts->table);
}

const struct host_mounts *host_mounts(void) {
  bool first = known.owner != getpid();
  if (first) {
    known.list.fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    known.owner = getpid();
  }
  if (first || poll(&known.list, 1, 0) != 0)
    load();
  return &known.mounts;
}
