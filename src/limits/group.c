/* The group of one session: decides what enforces which limit, and owns the folders; see
 * limits.h. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "limits/cgroup.h"
#include "limits/disk.h"
#include "limits/rlimits.h"

/* ---- who enforces what ---- */

/* Without a cgroup. A share of processor time or of disk throughput cannot be had otherwise: a
 * process can undo a CPU affinity, and stopping it over and over would be seen as job control. */
static enum limit_enforcer fallback(enum limit_kind kind) {
  static const enum limit_enforcer table[LIMIT_COUNT] = {
      [LIMIT_CPU] = ENFORCER_NONE,         [LIMIT_MEMORY] = ENFORCER_WATCH,
      [LIMIT_PROCESSES] = ENFORCER_RLIMIT, [LIMIT_DISK] = ENFORCER_WATCH,
      [LIMIT_INODES] = ENFORCER_TMPFS,     [LIMIT_IO] = ENFORCER_NONE,
      [LIMIT_TIME] = ENFORCER_TIMER,       [LIMIT_OPEN_FILES] = ENFORCER_RLIMIT,
      [LIMIT_FILE_SIZE] = ENFORCER_RLIMIT,
  };
  if (kind == LIMIT_PROCESSES && !rlimit_processes_works())
    return ENFORCER_WATCH;
  return table[kind];
}

static int assign_enforcers(struct limit_group *group, unsigned held, bool best_effort,
                            struct sb_error *error) {
  for (size_t i = 0; i < LIMIT_COUNT; i++) {
    if (!group->set.value[i])
      continue;
    enum limit_kind kind = (enum limit_kind)i;
    group->enforcers[i] = !(held & 1u << i) ? fallback(kind)
                          : group->unified  ? ENFORCER_CGROUP_V2
                                            : ENFORCER_CGROUP_V1;
    if (group->enforcers[i] != ENFORCER_NONE || best_effort)
      continue;
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "nothing here can limit %s (%s): no cgroup of ours",
            limit_title(kind), limit_policy_key(kind));
    return sb_hint(error, "start it as 'systemd-run --user --scope -p Delegate=yes sandbox run …', "
                          "as root, or without this limit; see 'sandbox doctor'");
  }
  return 0;
}

enum limit_enforcer limit_group_enforcer(const struct limit_group *group, enum limit_kind kind) {
  return group->enforcers[kind];
}

const char *limit_enforcer_name(const struct limit_group *group, enum limit_kind kind) {
  return limit_enforcer_text(group->enforcers[kind]);
}

json_t *limit_group_to_json(const struct limit_group *group) {
  json_t *object = json_object();
  for (int kind = 0; kind < LIMIT_COUNT; kind++) {
    if (group->set.value[kind] == 0)
      continue;
    _cleanup_free_ char *described = limit_describe(&group->set, kind);
    json_object_set_new(object, limit_name(kind),
                        json_pack("{s:s, s:s}", "limit", described, "enforced_by",
                                  limit_enforcer_name(group, kind)));
  }
  return object;
}

bool limit_group_needs_watch(const struct limit_group *group) {
  for (size_t i = 0; i < LIMIT_COUNT; i++) {
    if (group->enforcers[i] == ENFORCER_WATCH)
      return true;
  }
  /* The kernel holds it, but says nothing: only a look finds a session at the limit. */
  return group->enforcers[LIMIT_PROCESSES] == ENFORCER_RLIMIT;
}

/* ---- making ---- */

static void make_folders(struct limit_group *group, const struct limit_request *request) {
  _cleanup_free_ char *text = NULL;
  struct cgroup_place place = request->place ? *request->place : cgroup_place_find(&text);
  if (place.version == CGROUP_VERSION_NONE)
    return;
  unsigned needed = cgroup_controllers_needed(place.version, &group->set, request->metrics);
  if (place.version == CGROUP_VERSION_2)
    cgroup_v2_create(group, &place, needed);
  else
    cgroup_v1_create(group, &place, needed);
}

static bool wants_folders(const struct limit_request *request) {
  return request->metrics || cgroup_controllers_needed(CGROUP_VERSION_2, request->set, false) != 0;
}

/* The coarse clock: files are dated by it, and one that is born now must not look older than us. */
static uint64_t file_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

int limit_group_create(const struct limit_request *request, struct limit_group *ret_group,
                       struct sb_error *error) {
  struct limit_group group = LIMIT_GROUP_NONE;
  group.set = *request->set;
  group.own_processes = request->own_processes;
  group.outer_processes = request->outer_processes;
  group.metrics = request->metrics;
  group.start_ns = file_time();
  snprintf(group.name, sizeof group.name, CGROUP_PREFIX "%s", request->session_id);
  unsigned held = 0;
  if (wants_folders(request)) {
    make_folders(&group, request);
    held = cgroup_apply(&group);
  }
  if (assign_enforcers(&group, held, request->best_effort, error) < 0) {
    limit_group_remove(&group);
    return -1;
  }
  group.rlimits = rlimits_for(&group);
  *ret_group = group;
  return 0;
}

/* ---- entering ---- */

int limit_group_clone_fd(const struct limit_group *group) {
  return group->unified && group->hierarchy_count > 0 ? group->hierarchies[0].folder : -1;
}

int limit_group_enter(const struct limit_group *group) {
  int result = 0;
  for (size_t i = 0; i < group->hierarchy_count; i++) {
    const struct limit_hierarchy *hierarchy = &group->hierarchies[i];
    if (hierarchy->tasks >= 0) {
      if (write(hierarchy->tasks, "0", 1) < 0 && result == 0)
        result = -errno;
      close(hierarchy->tasks);
    }
    close(hierarchy->folder);
    close(hierarchy->parent);
  }
  return result;
}

/* ---- ending ---- */

/* A number that was listed may be another's by now. Held first and looked at then, it is a member,
 * or what is held is gone. */
static void kill_member(pid_t pid, const char *group) {
  char path[64];
  _cleanup_free_ char *groups = NULL;
  _cleanup_close_ int held = pidfd_open(pid, 0);
  snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
  if (held >= 0 && file_read_at(AT_FDCWD, path, 1 << 16, &groups, NULL) == 0 &&
      strstr(groups, group))
    (void)pidfd_send_signal(held, SIGKILL, NULL, 0);
}

static void kill_members(int folder, const char *group) {
  _cleanup_free_ char *text = NULL;
  if (file_read_at(folder, "cgroup.procs", 1 << 20, &text, NULL) < 0)
    return;
  for (char *at = text, *end;; at = end) {
    long pid = strtol(at, &end, 10);
    if (end == at)
      return;
    if (pid > 0) /* 0: not of our pid namespace */
      kill_member((pid_t)pid, group);
  }
}

void limit_group_kill(const struct limit_group *group) {
  if (group->hierarchy_count == 0)
    return;
  if (group->unified && cgroup_write(group->hierarchies[0].folder, "cgroup.kill", "1") == 0)
    return;
  for (size_t i = 0; i < group->hierarchy_count; i++) {
    /* No freezer needed to win against a fork bomb: nobody forks at a limit of zero. */
    (void)cgroup_write(group->hierarchies[i].folder, "pids.max", "0");
  }
  kill_members(group->hierarchies[0].folder, group->name);
}

/* The kernel needs a moment after the last process is gone. */
static int remove_folder(const struct limit_hierarchy *hierarchy, const char *name) {
  int result = -EBUSY;
  for (unsigned i = 0; i < 50 && result == -EBUSY; i++) {
    result = cgroup_remove_tree(hierarchy->parent, name);
    struct timespec pause = {.tv_nsec = i < 10 ? 1000000 : 25000000};
    if (result == -EBUSY)
      nanosleep(&pause, NULL);
  }
  return result;
}

int limit_group_remove(struct limit_group *group) {
  int result = 0;
  for (size_t i = 0; i < group->hierarchy_count; i++) {
    int removed = remove_folder(&group->hierarchies[i], group->name);
    if (result == 0)
      result = removed;
  }
  if (group->monitor_moved)
    cgroup_v2_move_back(group);
  for (size_t i = 0; i < group->hierarchy_count; i++) {
    cleanup_close_fd(&group->hierarchies[i].tasks);
    cleanup_close_fd(&group->hierarchies[i].folder);
    cleanup_close_fd(&group->hierarchies[i].parent);
  }
  cleanup_close_fd(&group->proc);
  cleanup_close_fd(&group->private_files);
  disk_watch_free(group->disk);
  *group = LIMIT_GROUP_NONE;
  return result;
}
