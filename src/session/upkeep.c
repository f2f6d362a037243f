/* The monitor's side of the keeper; see upkeep.h. */
#include "session/upkeep.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"
#include "session/events.h"
#include "session/monitor.h"

/* Most commands are over by then, and never pay for it. What the host changes before is found when
 * the keeper compares. */
#define START_AFTER_NS (30ull * 1000 * 1000)
/* How many late secrets are told of one by one. */
#define TOLD_LIMIT 5
/* How long a keeper may take to say that it is done. */
#define FAREWELL_MS 500

/* ---- fail closed ---- */

void upkeep_give_up(struct monitor *monitor, const char *path, const char *sentence) {
  if (monitor->over)
    return;
  events_protection(monitor, "protection.failed", path, sentence);
  monitor_warn(monitor, sentence);
  monitor->killed = monitor->over = true;
}

/* Why the session was ended, around the name. */
static const struct {
  int errnum;
  const char *before, *after;
} failures[] = {
    {E2BIG, "too many new names of secrets appeared, the last is '",
     "': the session was ended, since no more of them can be hidden"},
    {ETXTBSY, "'",
     "' was replaced outside, and somebody has the new file open for writing: the session was "
     "ended, since it may be the command"},
    {EMLINK, "'",
     "' was replaced outside, and the new file has a second name (hard link): the session was "
     "ended, since the command may write to it by that name"},
    {EBUSY, "'",
     "' was replaced outside, and somebody in the session has the new one, or something in it, "
     "open: the session was ended, since it could be written to from there"},
    {ELOOP, "'",
     "' was replaced outside by a link to something that the command may write: the session was "
     "ended, since that cannot be protected while it runs"},
};

static char *describe_failure(const struct keeper_report *report) {
  _cleanup_free_ char *path = escape_string(report->path);
  for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
    if (failures[i].errnum == report->errnum)
      return xasprintf("%s%s%s", failures[i].before, path, failures[i].after);
  }
  return xasprintf("'%s' was changed outside and could not be protected again (%s): the session "
                   "was ended",
                   path, strerror(report->errnum));
}

static void on_failure(struct monitor *monitor, const struct keeper_report *report) {
  _cleanup_free_ char *sentence = describe_failure(report);
  upkeep_give_up(monitor, report->path, sentence);
}

/* ---- reports ---- */

static void on_hidden(struct monitor *monitor, const char *path) {
  events_protection(monitor, "protection.hidden", path, NULL);
  if (++monitor->upkeep.hidden_count > TOLD_LIMIT)
    return;
  _cleanup_free_ char *shown = escape_string(path);
  bool own = path_is_under(path, monitor->request->host->project);
  _cleanup_free_ char *remedy =
      own ? xasprintf("--rw '**/%s'", path_base(shown)) : xasprintf("--ro '%s'", shown);
  _cleanup_free_ char *sentence =
      xasprintf("'%s' appeared and is hidden from the command from now on, because secrets have "
                "such names; %s allows it",
                shown, remedy);
  monitor_warn(monitor, sentence);
}

/* Something of the host's may be there by now; then there is nothing to remove. */
static void on_made(struct monitor *monitor, const char *path, const char *content) {
  const struct session_request *request = monitor->request;
  (void)placeholders_adopt(&monitor->placeholders, request->host, request->session_id, path,
                           content);
  events_protection(monitor, "protection.reserved", path, NULL);
}

static void on_weaker(struct monitor *monitor, const struct keeper_report *report) {
  _cleanup_free_ char *path = escape_string(report->path);
  _cleanup_free_ char *sentence =
      report->kind == KEEPER_POLLS
          ? xasprintf(
                "no more files can be watched (%s): protected names that are replaced outside "
                "are looked at 20 times a second only; raise fs.inotify.max_user_instances "
                "or max_user_watches",
                strerror(report->errnum))
          : xasprintf("too many folders to watch: secrets that appear in '%s' and others are not "
                      "hidden before the next start",
                      path);
  events_protection(monitor, "protection.weaker", report->path, sentence);
  monitor_warn(monitor, sentence);
}

static const char *content_in(const struct plan *plan, const char *path) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    if (operation->kind == OPERATION_PLACEHOLDER_FILE && strcmp(operation->path, path) == 0)
      return operation->source;
  }
  return NULL;
}

static const char *placeholder_content(const struct monitor *monitor, const char *path) {
  const char *content = content_in(monitor->request->plan, path);
  if (!content)
    content = content_in(&monitor->upkeep.grown, path);
  return content ? content : "";
}

static void on_report(struct monitor *monitor, const struct keeper_report *report) {
  switch ((enum keeper_kind)report->kind) {
  case KEEPER_READY:
    log_write(monitor->request->log, LOG_DEBUG, "kept", -1, NULL);
    return;
  case KEEPER_RENEWED:
    events_protection(monitor, "protection.renewed", report->path, NULL);
    return;
  case KEEPER_HIDDEN:
    on_hidden(monitor, report->path);
    return;
  case KEEPER_MADE_FOLDER:
    on_made(monitor, report->path, NULL);
    return;
  case KEEPER_MADE_FILE:
    on_made(monitor, report->path, placeholder_content(monitor, report->path));
    return;
  case KEEPER_ROOT:
    if (monitor->gate)
      gate_follow(monitor->gate, report->path);
    return;
  case KEEPER_POLLS:
  case KEEPER_BOUNDED:
    on_weaker(monitor, report);
    return;
  case KEEPER_FAILED:
    on_failure(monitor, report);
    return;
  case KEEPER_DONE:
    return;
  }
}

static void read_reports(struct monitor *monitor) {
  struct keeper_report report;
  int got;
  while ((got = keeper_receive(&monitor->upkeep.keeper, &report)) > 0)
    on_report(monitor, &report);
  if (got < 0) {
    keeper_end(&monitor->upkeep.keeper);
    upkeep_give_up(
        monitor, NULL,
        "the process that keeps masks and protections in place is gone: the session was ended");
  }
}

/* ---- folders that are granted ---- */

static void order(struct monitor *monitor, enum keeper_order_kind kind, const char *path,
                  const struct operation *operation) {
  const struct keeper *keeper = &monitor->upkeep.keeper;
  if (keeper->channel >= 0 && keeper_tell(keeper, kind, path, operation) < 0)
    upkeep_give_up(monitor, path,
                   "the process that keeps masks and protections in place does not answer: "
                   "the session was ended");
}

/* Takes the operations over. */
static void grow(struct upkeep *upkeep, struct plan *plan) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    ARRAY_GROW(upkeep->grown.operations, upkeep->grown.operation_count);
    upkeep->grown.operations[upkeep->grown.operation_count++] = plan->operations[i];
  }
  plan->operation_count = 0;
}

const struct plan *upkeep_prepare(void *context, const char *folder) {
  struct monitor *monitor = context;
  const struct session_request *request = monitor->request;
  struct upkeep *upkeep = &monitor->upkeep;
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_plan_ struct plan plan = {0};
  if (strv_contains(&upkeep->prepared, folder))
    return &upkeep->grown;
  if (plan_place(request->host, request->rules, folder, &plan, &error) < 0 ||
      placeholders_extend(&monitor->placeholders, &plan, request->host, request->session_id,
                          &error) < 0) {
    _cleanup_free_ char *shown = escape_string(folder);
    _cleanup_free_ char *sentence =
        xasprintf("'%s' is not made writable, since names in it could not be protected: %s", shown,
                  error.message);
    monitor_warn(monitor, sentence);
    return NULL;
  }
  grow(upkeep, &plan);
  strv_add(&upkeep->prepared, folder);
  return &upkeep->grown;
}

static bool has_operation(const struct plan *plan, enum operation_kind kind, const char *path) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    if (plan->operations[i].kind == kind && strcmp(plan->operations[i].path, path) == 0)
      return true;
  }
  return false;
}

/* Takes over those that are not there yet. */
static void grow_new(struct upkeep *upkeep, struct plan *plan) {
  size_t count = 0;
  for (size_t i = 0; i < plan->operation_count; i++) {
    struct operation *operation = &plan->operations[i];
    if (has_operation(&upkeep->grown, operation->kind, operation->path))
      operation_clear(operation);
    else
      plan->operations[count++] = *operation;
  }
  plan->operation_count = count;
  grow(upkeep, plan);
}

static void warn_denied(struct monitor *monitor, const struct denied_name *denied,
                        const struct sb_error *error) {
  _cleanup_free_ char *place = escape_string(denied->place ? denied->place : denied->path);
  _cleanup_free_ char *path = escape_string(denied->path), *word = escape_shell_word(denied->path);
  _cleanup_free_ char *sentence =
      xasprintf("'%s' is not allowed as a whole, since '%s' was denied and could not be kept so: "
                "%s; to take that back: sandbox policy revoke %s",
                place, path, error->message, word);
  monitor_warn(monitor, sentence);
}

const struct plan *upkeep_deny(void *context, const struct denied_name *denied) {
  struct monitor *monitor = context;
  const struct session_request *request = monitor->request;
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_plan_ struct plan plan = {0};
  if (plan_denied(request->host, request->rules, denied, &plan, &error) < 0 ||
      placeholders_extend(&monitor->placeholders, &plan, request->host, request->session_id,
                          &error) < 0) {
    warn_denied(monitor, denied, &error);
    return NULL;
  }
  grow_new(&monitor->upkeep, &plan);
  return &monitor->upkeep.grown;
}

bool upkeep_allow(struct monitor *monitor, const char *path) {
  if (plan_drop(&monitor->upkeep.grown, path, PLAN_DENIED) == 0)
    return false;
  placeholders_drop(&monitor->placeholders, path);
  order(monitor, KEEPER_ALLOWED, path, NULL);
  return true;
}

static bool is_folder(const char *path) {
  struct stat status;
  return lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

void upkeep_granted(void *context, const char *path, bool writable) {
  struct monitor *monitor = context;
  struct upkeep *upkeep = &monitor->upkeep;
  if (!is_folder(path))
    return;
  strv_add(writable ? &upkeep->granted_writable : &upkeep->granted, path);
  for (size_t i = 0; i < upkeep->grown.operation_count; i++) {
    const struct operation *operation = &upkeep->grown.operations[i];
    if (path_is_under(operation->path, path))
      order(monitor, KEEPER_OPERATION, operation->path, operation);
  }
  order(monitor, writable ? KEEPER_GRANTED_WRITABLE : KEEPER_GRANTED, path, NULL);
}

void upkeep_taken(void *context, const char *path) {
  struct monitor *monitor = context;
  bool known = strv_remove(&monitor->upkeep.granted, path);
  known |= strv_remove(&monitor->upkeep.granted_writable, path);
  if (known)
    order(monitor, KEEPER_TAKEN, path, NULL);
}

void upkeep_held(void *context, const char *path) {
  struct monitor *monitor = context;
  _cleanup_free_ char *shown = escape_string(path);
  _cleanup_free_ char *sentence = xasprintf(
      "'%s' was taken back, but not every folder of it that a process may have open could "
      "be found and covered: from there it can still be read until that process ends",
      shown);
  monitor->upkeep.held = true;
  events_protection(monitor, "protection.weaker", path, sentence);
  monitor_warn(monitor, sentence);
}

/* ---- its life ---- */

void upkeep_schedule(struct monitor *monitor) {
  monitor->upkeep.start_at_ns = monotonic_ns() + START_AFTER_NS;
}

static void start(struct monitor *monitor) {
  _cleanup_error_ struct sb_error error = {0};
  const struct session_request *request = monitor->request;
  struct upkeep *upkeep = &monitor->upkeep;
  const struct kept_request kept = {.plan = request->plan,
                                    .policy = request->rules,
                                    .host = request->host,
                                    .grown = &upkeep->grown,
                                    .granted = &upkeep->granted,
                                    .granted_writable = &upkeep->granted_writable};
  if (keeper_start(&monitor->upkeep.keeper, &kept, monitor->engine.user_ns,
                   monitor->engine.mount_ns, &error) < 0)
    upkeep_give_up(monitor, NULL, error.message);
}

struct pollfd upkeep_watch(const struct upkeep *upkeep) {
  return (struct pollfd){.fd = upkeep->keeper.channel, .events = POLLIN};
}

void upkeep_step(struct monitor *monitor, uint64_t now, const struct pollfd *watched) {
  struct upkeep *upkeep = &monitor->upkeep;
  if (watched->revents && watched->fd == upkeep->keeper.channel)
    read_reports(monitor);
  if (upkeep->start_at_ns == 0 || now < upkeep->start_at_ns || monitor->over)
    return;
  upkeep->start_at_ns = 0;
  start(monitor);
}

/* A placeholder that it has just made must be known, or it would stay. */
static void dismiss(struct monitor *monitor) {
  struct keeper *keeper = &monitor->upkeep.keeper;
  struct keeper_report report = {.kind = KEEPER_READY};
  struct pollfd watched = upkeep_watch(&monitor->upkeep);
  int got = 0;
  if (keeper->channel < 0)
    return;
  keeper_dismiss(keeper);
  while (got >= 0 && report.kind != KEEPER_DONE &&
         (got > 0 || poll(&watched, 1, FAREWELL_MS) > 0)) {
    got = keeper_receive(keeper, &report);
    if (got > 0)
      on_report(monitor, &report);
  }
  keeper_end(keeper);
}

void upkeep_end(struct monitor *monitor) {
  struct upkeep *upkeep = &monitor->upkeep;
  dismiss(monitor);
  plan_clear(&upkeep->grown);
  strv_clear(&upkeep->prepared);
  strv_clear(&upkeep->granted);
  strv_clear(&upkeep->granted_writable);
}
