/* The ground that tests of decisions stand on; see decisions-ground.h. */
#include "decisions-ground.h"

#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "policy/grants.h"

const struct policy_context place = {
    .home = "/home/ann",
    .project = "/home/ann/shop",
    .config_home = "/home/ann/.config",
    .state_home = "/home/ann/.local/state",
    .org_folder = "/etc/sandbox",
    .environment = (char *[]){NULL},
};

struct strv hidden;

bool learning;

/* ---- services ---- */

static int record(void *context, const char *event, json_t *fields, struct sb_error *error) {
  struct ground *ground = context;
  if (ground->audit_fails ||
      (ground->audit_fails_for && strcmp(event, ground->audit_fails_for) == 0)) {
    json_decref(fields);
    return sb_fail(error, SB_CODE_SYSTEM, 28, "writing the audit log");
  }
  json_object_set_new(fields, "event", json_string(event));
  json_array_append_new(ground->records, fields);
  return 0;
}

static int store(void *context, enum grant_scope scope, const struct grant *grant,
                 struct sb_error *error) {
  struct ground *ground = context;
  if (ground->store_fails)
    return sb_fail(error, SB_CODE_DENIED, 13, "writing grants");
  strv_addf(&ground->stored, "%s %s %s%s by %s", scope_name(scope), grant->allow ? "allow" : "deny",
            grant->path ? grant->path : grant->host,
            grant->names      ? " names"
            : grant->writable ? " rw"
                              : "",
            grant->by);
  return 0;
}

static int unstore(void *context, enum grant_scope scope, const char *name, size_t *ret_removed,
                   struct sb_error *error) {
  struct ground *ground = context;
  *ret_removed = 0;
  if (ground->unstore_fails)
    return sb_fail(error, SB_CODE_DENIED, 13, "writing grants");
  for (size_t i = 0; i < ground->stored.count; i++)
    *ret_removed += strstr(ground->stored.items[i], name) &&
                    strncmp(ground->stored.items[i], scope_name(scope), 4) == 0;
  strv_addf(&ground->unstored, "%s %s", scope_name(scope), name);
  return 0;
}

static bool take_away(void *context, const char *path) {
  struct ground *ground = context;
  strv_add(&ground->revoked, path);
  return ground->granted;
}

static void notice(void *context, const char *sentence) {
  strv_add(&((struct ground *)context)->notices, sentence);
}

static bool expects(void *context) {
  return ((struct ground *)context)->expected;
}

static uint64_t clock_now(void *context) {
  return ((struct ground *)context)->now;
}

/* ---- the person, the trigger ---- */

static void on_asked(void *context, const struct question *question) {
  struct ground *ground = context;
  free(ground->asked);
  ground->asked = xstrdup(question->id);
  ground->asked_count++;
}

static void on_settled(void *context, const struct question *question, const char *how,
                       const char *by) {
  (void)question, (void)by;
  strv_add(&((struct ground *)context)->settled, how);
}

static void on_answer(void *context, uint64_t ticket, const struct answered *answer) {
  struct ground *ground = context;
  assert_true(ticket < 128);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_PENDING);
  ground->answers[ticket] = *answer;
  ground->answers[ticket].tree = answer->tree ? xstrdup(answer->tree) : NULL;
  ground->answer_count++;
  ground->records_when_answered = json_array_size(ground->records);
}

/* ---- laying it ---- */

struct ground *lay(const char *yaml, bool waits) {
  struct ground *ground = xcalloc(1, sizeof *ground);
  _cleanup_error_ struct sb_error error = {0};
  ground->policy = policy_new(&place);
  if (yaml) {
    char name[] = "/tmp/test-decisions-XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0 && write(fd, yaml, strlen(yaml)) == (ssize_t)strlen(yaml));
    close(fd);
    if (policy_load_file(&place, name, STORE_USER, ground->policy, &error) < 0)
      fail_msg("%s", error.message);
    unlink(name);
  }
  ground->policy->mode = MODE_DYNAMIC;
  ground->policy->prompt_timeout_seconds = 60;
  ground->records = json_array();
  ground->now = 1000 * SECOND;
  struct decisions_config config = {
      .policy = ground->policy,
      .context = &place,
      .hidden = &hidden,
      .session_id = "abcdefgh",
      .waits = waits,
      .learns = learning,
      .services = {record, store, unstore, take_away, notice, expects, clock_now, ground},
  };
  ground->decisions = decisions_new(&config);
  ground->person = (struct supervisor){.asked = on_asked, .settled = on_settled, .context = ground};
  return ground;
}

struct ground *lay_with_person(const char *yaml) {
  struct ground *ground = lay(yaml, false);
  decisions_add_supervisor(ground->decisions, &ground->person);
  ground->person_is_there = true;
  return ground;
}

static void leave(struct ground *ground) {
  decisions_free(ground->decisions);
  policy_free(ground->policy);
  json_decref(ground->records);
  strv_clear(&ground->notices);
  strv_clear(&ground->stored);
  strv_clear(&ground->unstored);
  strv_clear(&ground->revoked);
  strv_clear(&ground->settled);
  for (size_t i = 0; i < 128; i++)
    free((char *)ground->answers[i].tree);
  free(ground->asked);
  free(ground);
}

void cleanup_ground(struct ground **ground) {
  leave(*ground);
}

/* ---- asking and answering ---- */

struct access_request file(const char *path, enum want want) {
  uint64_t inode = 5381;
  for (const char *at = path; *at; at++)
    inode = inode * 33 + (unsigned char)*at;
  return (struct access_request){.subject = SUBJECT_FILE,
                                 .want = want,
                                 .path = path,
                                 .device = 1,
                                 .inode = inode,
                                 .pid = getpid()};
}

enum answer ask_for(struct ground *ground, const struct access_request *request,
                    uint64_t *ret_ticket, struct answered *ret_answer) {
  struct answered answer;
  *ret_ticket = decisions_ask(ground->decisions, request, on_answer, ground, &answer);
  assert_true((*ret_ticket > 0) == (answer.answer == ANSWER_PENDING));
  if (ret_answer)
    *ret_answer = answer;
  return answer.answer;
}

uint64_t ask_file(struct ground *ground, const char *path, enum want want) {
  struct access_request request = file(path, want);
  uint64_t ticket;
  assert_int_equal(ask_for(ground, &request, &ticket, NULL), ANSWER_PENDING);
  return ticket;
}

enum answer answer_at_once(struct ground *ground, const char *path, enum want want) {
  struct access_request request = file(path, want);
  uint64_t ticket;
  return ask_for(ground, &request, &ticket, NULL);
}

int reply_with(struct ground *ground, bool allow, enum grant_scope scope, const char *tree) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_free_ char *id = xstrdup(ground->asked);
  struct reply reply = {.allow = allow, .scope = scope, .tree = tree, .by = "ann"};
  return decisions_answer(ground->decisions, id, &reply, &error);
}

const json_t *last_record(const struct ground *ground) {
  return json_array_get(ground->records, json_array_size(ground->records) - 1);
}

const char *field(const json_t *object, const char *key) {
  return json_string_value(json_object_get(object, key));
}
