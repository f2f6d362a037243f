/* What is known of a path before anybody is asked: whether it is hidden, mounted, served, or
 * allowed by policy when something first touches it. Changes nothing that a session can see. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"
#include "gate/gate-private.h"
#include "plan/inodes.h"

/* ---- mounted ---- */

bool gate_leads_to_mount(const struct gate *gate, const char *path) {
  STRV_FOREACH (mount, &gate->mounts) {
    if (path_is_under(*mount, path))
      return true;
  }
  return false;
}

static const char *find_above(const struct strv *mounts, const char *path) {
  STRV_FOREACH (mount, mounts) {
    if (path_is_under(path, *mount))
      return *mount;
  }
  return NULL;
}

bool gate_is_mounted(const struct gate *gate, const char *path) {
  return find_above(&gate->mounts, path);
}

const char *gate_granted_mount(const struct gate *gate, const char *path) {
  return find_above(&gate->granted, path);
}

const char *gate_writable_mount(const struct gate *gate, const char *path) {
  return find_above(&gate->granted_writable, path);
}

bool gate_is_below_grant(const struct gate *gate, const char *path) {
  STRV_FOREACH (mount, &gate->granted) {
    const char *below = path_below(path, *mount);
    if (below && below[0])
      return true;
  }
  return false;
}

bool gate_may_become_writable(const struct gate *gate, const char *path) {
  size_t readable = 0, writable = 0; /* the deepest mount counts */
  STRV_FOREACH (mount, &gate->mounts) {
    size_t length = strlen(*mount);
    bool granted = strv_contains(&gate->granted, *mount);
    bool may = granted && !strv_contains(&gate->granted_writable, *mount);
    size_t *longest = may ? &readable : &writable;
    if (path_is_under(path, *mount) && length > *longest)
      *longest = length;
  }
  return gate->config.plan->ask_writes && readable > writable;
}

/* ---- hidden ---- */

bool gate_is_hidden(const struct gate *gate, const char *path) {
  STRV_FOREACH (hidden, &gate->config.plan->hidden) {
    if (path_is_under(path, *hidden))
      return true;
  }
  return false;
}

/* Where built-in secrets may be asked about, the question is their protection. */
bool gate_hides(const struct gate *gate, const char *path) {
  const struct policy *policy = gate->config.policy;
  if (gate_leads_to_mount(gate, path))
    return false; /* something below it is allowed */
  if (!policy->ask_secrets && gate_is_hidden(gate, path))
    return true;
  struct decision decision = policy_decide(policy, path, ACCESS_READ);
  return decision.verdict == VERDICT_HIDE &&
         !(policy->ask_secrets && decision.rule && decision.rule->origin.store == STORE_BUILTIN);
}

/* Only what a rule hides: of our own folders nobody needs to hear. */
void gate_note_hidden(const struct gate *gate, const struct access_request *request) {
  struct decision decision = policy_decide(gate->config.policy, request->path, ACCESS_READ);
  struct answered ignored;
  if (decision.verdict == VERDICT_HIDE)
    (void)decisions_ask(gate->config.decisions, request, NULL, NULL, &ignored);
}

/* ---- not writable ---- */

/* By its mode, without a sandbox: no option of ours would help. */
static bool is_closed(const char *path) {
  return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) < 0 && errno == EACCES;
}

int gate_refuse_write(const struct gate *gate, const struct access_request *request,
                      const char *place) {
  /* Also before it is there: a shell's history. */
  if (gate_hides(gate, request->path)) {
    gate_note_hidden(gate, request);
    return EACCES;
  }
  if (is_closed(place))
    return EACCES;
  decisions_note_refused(gate->config.decisions, request, "not a writable place");
  return EROFS;
}

/* ---- allowed when touched ---- */

/* Hidden objects are not allowed by what surrounds them. */
bool gate_find_touched(struct gate *gate, const char *path, struct answered *ret_answer) {
  touched_resolve(gate);
  for (size_t i = ARRAY_SIZE(gate->touched); i-- > 0;) {
    STRV_FOREACH (tree, &gate->touched[i]) {
      if (!path_is_under(path, *tree) || gate_is_hidden(gate, path))
        continue;
      *ret_answer = (struct answered){
          .answer = ANSWER_ALLOW, .scope = SCOPE_SESSION, .tree = *tree, .writable = i == 1};
      return true;
    }
  }
  return false;
}

bool gate_is_touchable(struct gate *gate, const char *path) {
  struct answered answer;
  return gate_find_touched(gate, path, &answer);
}

bool gate_is_writable(struct gate *gate, const char *path) {
  struct answered answer;
  return (gate_find_touched(gate, path, &answer) && answer.writable) ||
         decisions_keep_writable(gate->config.decisions, path);
}

/* ---- served without a mount ---- */

static bool is_denied(const struct gate *gate, const char *path) {
  _cleanup_strv_ struct strv denied = {0};
  decisions_denied_below(gate->config.decisions, "/", false, &denied);
  STRV_FOREACH (one, &denied) {
    if (path_is_under(path, *one))
      return true;
  }
  return false;
}

/* A rule about the folder, or an answer, says more than the base list does. */
bool gate_lists_freely(const struct gate *gate, const char *path) {
  if (decisions_list(gate->config.decisions, path))
    return true;
  return policy_base_lists(path) &&
         policy_decide(gate->config.policy, path, ACCESS_READ).verdict == VERDICT_ASK &&
         !is_denied(gate, path) && !decisions_is_revoked(gate->config.decisions, path);
}

static bool is_in_served_tree(const struct gate *gate, const char *path) {
  STRV_FOREACH (tree, &gate->served) {
    if (path_is_under(path, *tree))
      return true;
  }
  return false;
}

static bool is_second_name(const struct gate *gate, const char *path) {
  struct stat status;
  return lstat(path, &status) == 0 && inode_is_hidden(&gate->config.plan->hidden, &status);
}

/* Secrets and their second names are decided about one by one, and so is what was taken back. */
bool gate_is_served(struct gate *gate, const struct access_request *request) {
  if (request->want == WANT_WRITE || request->want == WANT_CONNECT ||
      !is_in_served_tree(gate, request->path))
    return false;
  struct decision decision = policy_decide(gate->config.policy, request->path, ACCESS_READ);
  return !gate_is_hidden(gate, request->path) && decision.verdict != VERDICT_HIDE &&
         !decision.secret && !is_denied(gate, request->path) &&
         !decisions_is_revoked(gate->config.decisions, request->path) &&
         !is_second_name(gate, request->path);
}
