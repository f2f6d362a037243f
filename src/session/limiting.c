/* The monitor's side of the limits; see limiting.h. */
#include "session/limiting.h"

#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>

#include "core/cleanup.h"
#include "session/events.h"
#include "session/monitor.h"

#define LOOK_FLOOR_NS   (50ull * 1000 * 1000)
#define LOOK_CEILING_NS (1000ull * 1000 * 1000)
#define DISK_BUDGET_NS  (5ull * 1000 * 1000)
#define TIME_GRACE_NS   (2ull * 1000 * 1000 * 1000)

int limiting_begin(struct monitor *monitor, struct sb_error *error) {
  struct limit_request request = {
      .set = monitor->request->limits,
      .session_id = monitor->request->session_id,
      .own_processes = monitor->terminal.any ? 2 : 1,
      .outer_processes = 1, /* the keeper; the connector is at the expense of who needs one */
      .best_effort = monitor->request->best_effort_limits,
  };
  if (limit_group_create(&request, &monitor->limits, error) < 0)
    return -1;
  memcpy(monitor->result->enforcers, monitor->limits.enforcers, sizeof monitor->result->enforcers);
  limit_groups_recover(&monitor->limits);
  return 0;
}

static void collect_writable(const struct plan *plan, struct strv *ret_folders) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    if (operation->kind == OPERATION_WRITABLE)
      strv_add(ret_folders, operation->path);
    else if (operation->kind == OPERATION_OVERLAY)
      strv_add(ret_folders, operation->upper);
  }
}

void limiting_start(struct monitor *monitor, int folders_inside[2]) {
  uint64_t now = monotonic_ns();
  monitor->deadline = deadline_new(now, monitor->limits.set.value[LIMIT_TIME], TIME_GRACE_NS);
  _cleanup_strv_ struct strv folders = {0};
  collect_writable(monitor->request->plan, &folders);
  limit_group_watch(&monitor->limits, monitor->engine.init, &folders);
  /* The watch has taken over what it can see. */
  memcpy(monitor->result->enforcers, monitor->limits.enforcers, sizeof monitor->result->enforcers);
  (void)limit_group_use_folders(&monitor->limits, &folders_inside[0], &folders_inside[1]);
  if (limit_group_needs_watch(&monitor->limits))
    monitor->next_look_ns = now + LOOK_FLOOR_NS;
}

void limiting_name(struct monitor *monitor, enum limit_kind kind) {
  if (monitor->result->limit_hit)
    return;
  monitor->result->limit_hit = true;
  monitor->result->limit = kind;
  _cleanup_free_ char *described = limit_describe(&monitor->limits.set, kind);
  log_write(monitor->request->log, LOG_WARNING, "limit", -1,
            json_pack("{s:s, s:s, s:s}", "limit", limit_name(kind), "value", described,
                      "enforced_by", limit_enforcer_name(&monitor->limits, kind)));
  events_limit(monitor, limit_name(kind), described, limit_enforcer_name(&monitor->limits, kind));
  monitor_notify(monitor, &(struct session_notice){.event = SESSION_LIMIT,
                                                   .text = described,
                                                   .result = monitor->result});
}

/* What we have used ourselves: on a busy machine, and a bomb makes it one, a look takes long
 * without costing more, and the next one must not wait for that. */
static uint64_t own_time_ns(void) {
  struct timespec used;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return (uint64_t)used.tv_sec * 1000000000ull + (uint64_t)used.tv_nsec;
}

/* Looks at what no kernel limit holds, no more often than it may cost. */
void limiting_look(struct monitor *monitor, uint64_t now) {
  if (monitor->next_look_ns == 0 || now < monitor->next_look_ns)
    return;
  struct usage usage;
  enum limit_kind kind;
  uint64_t before = own_time_ns();
  limit_group_watch_disk(&monitor->limits, DISK_BUDGET_NS);
  limit_group_sample(&monitor->limits, &usage);
  enum limit_verdict verdict = limit_group_check(&monitor->limits, &usage, &kind);
  if (verdict == LIMIT_EXCEEDED) {
    limiting_name(monitor, kind);
    monitor->killed = true;
    monitor->over = true;
  }
  uint64_t cost = own_time_ns() - before;
  monitor->next_look_ns = now + limit_watch_interval(cost, LOOK_FLOOR_NS, LOOK_CEILING_NS);
}

/* ---- the end ---- */

/* The private tmpfs is as large as the smaller of two limits: full, it stands for that one. */
static bool is_private_full(const struct monitor *monitor) {
  struct statvfs status;
  return monitor->limits.private_files >= 0 && monitor->request->plan->private_size_bytes > 0 &&
         fstatvfs(monitor->limits.private_files, &status) == 0 &&
         status.f_bfree <= status.f_blocks / 64;
}

static enum limit_kind private_limit(const struct monitor *monitor) {
  const uint64_t *value = monitor->limits.set.value;
  return value[LIMIT_MEMORY] && (!value[LIMIT_DISK] || value[LIMIT_MEMORY] <= value[LIMIT_DISK])
             ? LIMIT_MEMORY
             : LIMIT_DISK;
}

/* The signal that ended the command, or what it ran: a shell passes it on as its own status. */
static int last_signal(const struct start_report *report) {
  if (!report->workload_done)
    return 0;
  if (WIFSIGNALED(report->wait_status))
    return WTERMSIG(report->wait_status);
  int status = WEXITSTATUS(report->wait_status);
  return status > 128 ? status - 128 : 0;
}

/* Which limit the end has to do with, now that nothing runs any more. */
void limiting_conclude(struct monitor *monitor) {
  struct session_result *result = monitor->result;
  enum limit_kind kind;
  const struct start_report *report = monitor->request->report;
  uint64_t disk = monitor->limits.set.value[LIMIT_DISK], used = result->usage.disk_bytes;
  if (limit_group_check(&monitor->limits, &result->usage, &kind) != LIMIT_FINE)
    limiting_name(monitor, kind);
  else if (disk && used != USAGE_UNKNOWN && used >= disk - disk / 64)
    limiting_name(monitor, LIMIT_DISK); /* RLIMIT_FSIZE stopped it right at the limit */
  else if (is_private_full(monitor))
    limiting_name(monitor, private_limit(monitor));
  else if (limit_group_explains_signal(&monitor->limits, last_signal(report), &kind))
    limiting_name(monitor, kind);
}
