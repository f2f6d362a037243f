/* `sandbox discard`: drops what sessions changed in their overlays. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/overlays.h"
#include "cli/values.h"
#include "core/cleanup.h"
#include "overlay/apply.h"

enum { DISCARD_ALL, DISCARD_OLDER_THAN };

static const struct option_spec options[] = {
    {DISCARD_ALL, "all", .help = "the overlays of all sessions that have ended"},
    {DISCARD_OLDER_THAN, "older-than", 0, ARGUMENT_REQUIRED, "TIME",
     "of those that began longer ago than TIME, such as 7d", COMPLETE_NONE},
    {0},
};

/* An interrupted `apply` may have left a temporary file in the original. */
static void sweep(const struct host_context *host, struct overlay *overlay) {
  _cleanup_error_ struct sb_error ignored = {0};
  _cleanup_apply_ struct apply apply = {0};
  if (overlay->state == OVERLAY_APPLYING &&
      apply_prepare(overlay, host->home, &apply, &ignored) == 0)
    apply_sweep(&apply);
}

static int remove_overlay(const struct host_context *host, struct overlay *overlay,
                          struct sb_error *error) {
  _cleanup_close_ int lock = overlay_lock(overlay, error);
  if (lock < 0)
    return -1;
  sweep(host, overlay);
  int result = overlay_remove(overlay->folder);
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "removing the overlay of session %s",
                   overlay->id);
  return 0;
}

/* An overlay whose metadata cannot be read can still be dropped, by its full id. */
static int discard_one(const struct host_context *host, const char *session,
                       struct sb_error *error) {
  _cleanup_overlay_ struct overlay overlay = {0};
  if (overlay_open(host, session, &overlay, error) < 0) {
    if (error->code == SB_CODE_NOT_FOUND || error->code == SB_CODE_USAGE ||
        strlen(session) != SESSION_ID_LENGTH)
      return -1;
    memcpy(overlay.id, session, SESSION_ID_LENGTH);
    overlay.folder = overlay_folder(host, overlay.id);
    sb_error_clear(error);
  }
  return remove_overlay(host, &overlay, error);
}

static bool is_old_enough(const struct host_context *host, const char *session, uint64_t seconds) {
  _cleanup_error_ struct sb_error ignored = {0};
  _cleanup_overlay_ struct overlay overlay = {0};
  if (seconds == 0)
    return true;
  return overlay_open(host, session, &overlay, &ignored) == 0 &&
         time(NULL) - overlay.started.tv_sec >= (time_t)seconds;
}

static int discard_many(const struct host_context *host, uint64_t seconds) {
  _cleanup_strv_ struct strv ids = {0};
  size_t count = 0;
  int code = 0;
  overlay_list(host, &ids);
  STRV_FOREACH (id, &ids) {
    _cleanup_error_ struct sb_error error = {0};
    if (!is_old_enough(host, *id, seconds))
      continue;
    if (discard_one(host, *id, &error) == 0)
      count++;
    else
      code = cli_report(&error);
  }
  fprintf(stderr, "sandbox: discarded %zu overlays\n", count);
  return code;
}

static int run(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_host_ struct host_context host = {0};
  const char *age = invocation_value(invocation, DISCARD_OLDER_THAN);
  uint64_t milliseconds = 0;
  if (host_context_load(&host, &error) < 0 ||
      (age && value_duration("--older-than", age, &milliseconds, &error) < 0))
    return cli_report_for(invocation, &error);
  if (age || invocation_has(invocation, DISCARD_ALL))
    return discard_many(&host, (milliseconds + 999) / 1000);
  const char *session = cli_session_operand(invocation, &error);
  if (!session || discard_one(&host, session, &error) < 0)
    return cli_report_for(invocation, &error);
  return 0;
}

const struct verb discard_verb = {
    .name = "discard",
    .synopsis = "[OPTION]... [SID]",
    .summary = "drop what sessions changed in their overlays",
    .description = "Removes the overlays that session SID left behind, with everything that was "
                   "written to them. The original folders stay as they are.",
    .options = options,
    .operand_completion = COMPLETE_SESSION,
    .run = run,
};
