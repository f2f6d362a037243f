/* Taking away again what was granted: because somebody said so, or because the host has put
 * something else there. Also what is only on its way to be granted. */
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "gate/gate-private.h"

void gate_take_back(struct gate *gate, const char *granted, struct waiting *refused) {
  struct grant_job *job = job_new(BROKER_REVOKE, granted, 0);
  job->revoked = true;
  for (struct waiting *next; refused; refused = next) {
    next = refused->next_in_job;
    job_join(job, refused);
  }
  gate->taken_back = true;
  gate->config.services.taken(gate->config.services.context, granted);
  job_add(gate, job);
  strv_remove(&gate->mounts, granted);
  strv_remove(&gate->granted, granted);
  strv_remove(&gate->granted_writable, granted);
}

/* By a later grant of a folder above: there is no way to it until that is taken back, and then it
 * must still be known, to be taken back, too. */
static bool is_covered(const struct gate *gate, const char *path) {
  bool later = false;
  STRV_FOREACH (granted, &gate->granted) {
    if (later && path_is_under(path, *granted))
      return true;
    later |= strcmp(*granted, path) == 0;
  }
  return false;
}

/* The next access finds a decision, and the new object is granted like any other. */
void gate_renew(struct gate *gate, const char *path) {
  _cleanup_free_ char *copy = xstrdup(path); /* the list's own goes away */
  if (strv_contains(&gate->granted, copy) && !is_covered(gate, copy))
    gate_take_back(gate, copy, NULL);
  gate->trigger->refresh(gate, copy);
  if (!strchr(copy + 1, '/'))
    gate_follow(gate, copy);
}

static bool stop_serving(struct gate *gate, const char *path) {
  bool any = false;
  for (size_t i = gate->served.count; i-- > 0;) {
    _cleanup_free_ char *tree = xstrdup(gate->served.items[i]);
    if (!path_is_under(tree, path) && !path_is_under(path, tree))
      continue;
    any = true;
    strv_remove(&gate->served, tree);
  }
  return any;
}

/* Those that are not mounted yet. */
static bool revoke_jobs(struct gate *gate, const char *path) {
  bool any = false;
  for (struct grant_job *job = gate->jobs; job; job = job->next) {
    bool concerned = job->request.kind == BROKER_GRANT &&
                     (path_is_under(job->path, path) || path_is_under(path, job->path));
    job->revoked |= concerned;
    any |= concerned;
  }
  return any;
}

bool gate_revoke(struct gate *gate, const char *path) {
  bool any = stop_serving(gate, path);
  any |= revoke_jobs(gate, path);
  for (size_t i = gate->granted.count; i-- > 0;) {
    _cleanup_free_ char *granted = xstrdup(gate->granted.items[i]);
    /* A grant inside the tree, or the one that the path lies in. */
    if (!path_is_under(granted, path) && !path_is_under(path, granted))
      continue;
    any = true;
    gate_take_back(gate, granted, NULL);
    gate->trigger->refresh(gate, granted);
  }
  return any;
}

void gate_uncover(struct gate *gate, const char *path) {
  struct grant_job *job = job_new(BROKER_UNCOVER, path, 0);
  job->revoked = true; /* who revokes waits for it */
  job_add(gate, job);
}
