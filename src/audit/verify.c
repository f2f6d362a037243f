/* Verifying: every hash is computed again, every log is compared with what the user's chain says
 * about it, and the chain with its head. Reads only. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "audit/audit.h"
#include "audit/read.h"
#include "audit/store.h"
#include "core/alloc.h"
#include "core/cleanup.h"

struct walk {
  const char *name, *session; /* a session to look out for in the chain, or NULL */
  struct audit_verdict *verdict;
  struct audit_position position;
  json_t *logs;                 /* the chain: what it says about each log, by name */
  const struct chain_head *end; /* where it ended when the walk began; NULL in other logs */
  bool end_differs;
  size_t lines;
  size_t own, last; /* lines about files since the last record; those before it, and it */
  /* A line that is no line waits for the one after it, which may explain it. */
  char *torn_file;
  size_t torn_line, torn_length;
  char torn_hash[SHA256_HEX_SIZE];
};

static void add_problem(struct audit_verdict *verdict, const char *file, size_t line,
                        const char *what) {
  ARRAY_GROW(verdict->problems, verdict->problem_count);
  verdict->problems[verdict->problem_count++] =
      (struct audit_problem){.file = xstrdup(file), .line = line, .what = xstrdup(what)};
}

static void settle_torn(struct walk *walk, const json_t *next) {
  if (!walk->torn_file)
    return;
  bool explained = next && strcmp(audit_text(next, "event"), "log.torn") == 0 &&
                   strcmp(audit_text(next, "sha256"), walk->torn_hash) == 0 &&
                   audit_number(next, "bytes") == walk->torn_length;
  if (!explained)
    add_problem(walk->verdict, walk->torn_file, walk->torn_line, "this is not a line of the log");
  else
    strv_addf(&walk->verdict->notes, "%s:%zu: a crash tore this line; it was marked afterwards",
              walk->torn_file, walk->torn_line);
  free(walk->torn_file);
  walk->torn_file = NULL;
}

static void remember_torn(struct walk *walk, const struct audit_raw_line *line) {
  settle_torn(walk, NULL);
  walk->torn_file = xstrdup(line->file);
  walk->torn_line = line->number;
  walk->torn_length = line->length;
  sha256_hex(line->text, line->length, walk->torn_hash);
}

/* What the chain says about the logs; the last word counts. */
static void learn_about_log(json_t *logs, const json_t *record) {
  if (audit_log_state(record) != AUDIT_LOG_UNKNOWN)
    json_object_set(logs, audit_text(record, "session"), (json_t *)record);
}

/* One writer adds a record, and before it what there is to say about the files themselves. */
static void count_last(struct walk *walk, const json_t *line) {
  static const char *const own[] = {"log.continue", "log.torn", "chain.adopted"};
  walk->last = walk->own + 1;
  walk->own = 0;
  for (size_t i = 0; i < ARRAY_SIZE(own); i++)
    if (strcmp(audit_text(line, "event"), own[i]) == 0)
      walk->own = walk->last;
}

static bool check_line(void *context, const struct audit_raw_line *line) {
  struct walk *walk = context;
  char hash[SHA256_HEX_SIZE] = "";
  json_t *json;
  const char *problem = audit_line_parse(line->text, line->length, &json, hash);
  if (!line->whole && walk->end) {
    json_decref(json);
    return true; /* of the chain: being written this moment, or the next writer will mark it */
  }
  walk->lines++;
  if (!json) {
    remember_torn(walk, line);
    return true;
  }
  settle_torn(walk, json);
  const char *place = audit_line_follows(&walk->position, json, hash);
  if (problem || place)
    add_problem(walk->verdict, line->file, line->number, problem ? problem : place);
  if (strcmp(audit_text(json, "event"), "chain.adopted") == 0)
    add_problem(walk->verdict, line->file, line->number,
                "before this line the record of the chain's end was missing");
  if (walk->end && walk->position.count == walk->end->position.count)
    walk->end_differs = strcmp(hash, walk->end->position.head) != 0;
  if (walk->logs)
    learn_about_log(walk->logs, json);
  count_last(walk, json);
  walk->verdict->known |= walk->session && strcmp(audit_text(json, "session"), walk->session) == 0;
  json_decref(json);
  return true;
}

static int walk_log(struct walk *walk, int folder) {
  walk->position = audit_position_start(walk->name);
  return audit_lines_read(folder, walk->name, check_line, walk);
}

/* ---- the chain ---- */

/* Sessions start and end while we read, and must not wait for us: the chain may be longer than its
 * head said when we began, but not longer than it says now. */
static const char *compare_with_head(const struct walk *walk, const struct chain_head *now) {
  const struct chain_head *before = walk->end;
  if (before->segment == 0)
    return walk->position.count > 1 ? "the record of the chain's end (chain.head) is missing"
                                    : NULL;
  if (walk->position.count < before->position.count)
    return "the end is missing: records were cut off";
  if (walk->end_differs)
    return "the last record is not the one that was written";
  /* The last one may have been written by somebody who died before saying so. */
  if (walk->position.count > now->position.count + walk->last)
    return "there are more records than were written";
  return NULL;
}

static int verify_chain(int folder, const char *session_id, json_t *logs,
                        struct audit_verdict *verdict) {
  struct chain_head before, now;
  audit_chain_head(folder, &before);
  struct walk walk = {
      .name = AUDIT_CHAIN, .session = session_id, .verdict = verdict, .logs = logs, .end = &before};
  int result = walk_log(&walk, folder);
  if (result < 0)
    return result;
  settle_torn(&walk, NULL);
  audit_chain_head(folder, &now);
  const char *problem = compare_with_head(&walk, &now);
  if (problem)
    add_problem(verdict, "chain.jsonl", 0, problem);
  verdict->lines += walk.lines;
  verdict->chain_count = walk.position.count;
  memcpy(verdict->chain_head, walk.position.head, SHA256_HEX_SIZE);
  return 0;
}

/* ---- one session's log ---- */

/* True if nobody holds the log open for writing. */
static bool is_abandoned(int folder, const char *name) {
  char file[AUDIT_NAME_MAX + 32];
  audit_segment_name(name, audit_last_segment(folder, name), file);
  _cleanup_close_ int fd = openat(folder, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0;
}

static void note_open(struct walk *walk, int folder, const char *file) {
  bool abandoned = is_abandoned(folder, walk->name);
  if (!abandoned && walk->torn_file) { /* being written this very moment */
    free(walk->torn_file);
    walk->torn_file = NULL;
  }
  if (abandoned)
    strv_addf(&walk->verdict->notes,
              "%s: its session ended without closing it (killed?): what was cut off after line %zu "
              "since then would not be noticed",
              file, walk->lines);
  else
    strv_addf(&walk->verdict->notes, "%s: the session is still running", file);
}

static const char *compare_end(const struct walk *walk, const json_t *record) {
  if (walk->position.count < audit_number(record, "count"))
    return walk->position.count == 0 ? "the log is missing or empty"
                                     : "the end is missing: lines were cut off after this one";
  if (walk->position.count > audit_number(record, "count"))
    return "lines were added after the session had ended";
  if (walk->position.count > 0 && strcmp(walk->position.head, audit_text(record, "head")) != 0)
    return "the log was replaced: it ended otherwise";
  return NULL;
}

static void compare_with_record(struct walk *walk, int folder, const char *file, int files,
                                const json_t *record) {
  const char *problem = NULL;
  switch (audit_log_state(record)) {
  case AUDIT_LOG_PRUNED:
    problem = files > 0 ? "this log was removed as old, and is there again" : NULL;
    break;
  case AUDIT_LOG_ENDED:
    problem = compare_end(walk, record);
    break;
  default:
    if (files == 0)
      problem = "the log is missing: the chain says that it was begun";
    else
      note_open(walk, folder, file);
  }
  if (problem)
    add_problem(walk->verdict, file, walk->lines, problem);
}

static int verify_log(int folder, const char *name, const json_t *record,
                      struct audit_verdict *verdict) {
  char file[AUDIT_NAME_MAX + 32];
  struct walk walk = {.name = name, .verdict = verdict};
  audit_segment_name(name, 1, file);
  int files = walk_log(&walk, folder);
  if (files < 0)
    return files;
  if (record)
    compare_with_record(&walk, folder, file, files, record);
  else if (walk.lines > 0)
    add_problem(verdict, file, 0, "the chain does not know this log");
  settle_torn(&walk, NULL);
  verdict->lines += walk.lines;
  verdict->logs++;
  return 0;
}

/* A session may have opened, closed or removed its log since the chain was read: what looks wrong
 * is looked at twice. */
static int verify_log_patiently(int folder, const char *name, json_t *logs,
                                struct audit_verdict *verdict) {
  _cleanup_verdict_ struct audit_verdict first = {0}, chain = {0};
  int result = verify_log(folder, name, json_object_get(logs, name), &first);
  if (result < 0)
    return result;
  if (first.problem_count > 0)
    result = verify_chain(folder, NULL, logs, &chain);
  return result < 0 ? result : verify_log(folder, name, json_object_get(logs, name), verdict);
}

/* ---- all of it ---- */

static void add_known(json_t *logs, struct strv *names) {
  const char *name;
  json_t *record;
  json_object_foreach(logs, name, record) if (!strv_contains(names, name)) strv_add(names, name);
}

static int verify_in(int folder, const char *session_id, struct audit_verdict *verdict) {
  json_t *logs = json_object();
  _cleanup_strv_ struct strv names = {0};
  if (session_id)
    strv_add(&names, session_id);
  int result = session_id ? 0 : audit_names(folder, &names);
  if (result == 0)
    result = verify_chain(folder, session_id, logs, verdict);
  if (!session_id)
    add_known(logs, &names);
  for (size_t i = 0; result == 0 && i < names.count; i++)
    result = verify_log_patiently(folder, names.items[i], logs, verdict);
  if (result == 0 && session_id && !verdict->known && audit_last_segment(folder, session_id) == 0)
    result = -ENOENT;
  json_decref(logs);
  return result;
}

int audit_verify(const char *state_home, const char *session_id, struct audit_verdict *ret_verdict,
                 struct sb_error *error) {
  const char *shown = session_id ? session_id : AUDIT_CHAIN;
  _cleanup_close_ int folder = audit_folder_open(state_home, false);
  if (folder == -ENOENT && !session_id)
    return 0;
  if (folder < 0)
    return audit_fail_read(error, shown, -folder);
  int result = verify_in(folder, session_id, ret_verdict);
  return result < 0 ? audit_fail_read(error, shown, -result) : 0;
}

void audit_verdict_clear(struct audit_verdict *verdict) {
  for (size_t i = 0; i < verdict->problem_count; i++) {
    free(verdict->problems[i].file);
    free(verdict->problems[i].what);
  }
  free(verdict->problems);
  strv_clear(&verdict->notes);
  *verdict = (struct audit_verdict){0};
}
