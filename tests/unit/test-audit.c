/* The audit log: what is written, every way to tamper with it, crashes, floods, full disks. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "audit/audit.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/error.h"
#include "core/file.h"
#include "core/strv.h"
#include "core/text.h"

#define SESSION "abcdefgh"

static int set_up(void **state) {
  char template[] = "/tmp/sandbox-test-XXXXXX";
  *state = xstrdup(mkdtemp(template));
  return 0;
}

static int tear_down(void **state) {
  _cleanup_free_ char *home = *state;
  _cleanup_free_ char *command = xasprintf("rm -rf '%s'", home);
  return system(command);
}

static char *log_path(const char *home, const char *name) {
  return xasprintf("%s/sandbox/audit/%s", home, name);
}

static struct audit *open_log(const char *home, const char *session) {
  _cleanup_error_ struct sb_error error = {0};
  struct audit *audit = NULL;
  if (audit_open(home, session, &audit, &error) < 0)
    fail_msg("%s", error.message);
  return audit;
}

static void write_event(struct audit *audit, const char *event, int number) {
  _cleanup_error_ struct sb_error error = {0};
  if (audit_write(audit, event, json_pack("{s:i, s:s}", "number", number, "path", "/opt/x"),
                  &error) < 0)
    fail_msg("%s", error.message);
}

/* Two sessions with some lines each; the tests tamper with the first. */
static void write_logs(const char *home, int lines) {
  static const char *const sessions[] = {SESSION, "hgfedcba"};
  for (size_t i = 0; i < ARRAY_SIZE(sessions); i++) {
    struct audit *audit = open_log(home, sessions[i]);
    for (int number = 0; number < lines; number++)
      write_event(audit, "decision", number);
    audit_close(audit);
  }
}

static size_t problems(const char *home, const char *session, size_t *ret_line) {
  _cleanup_verdict_ struct audit_verdict verdict = {0};
  _cleanup_error_ struct sb_error error = {0};
  if (audit_verify(home, session, &verdict, &error) < 0)
    fail_msg("%s", error.message);
  if (ret_line && verdict.problem_count > 0)
    *ret_line = verdict.problems[0].line;
  return verdict.problem_count;
}

__attribute__((noinline)) static char *read_file_of(const char *path) {
  char *data = NULL;
  assert_int_equal(file_read_at(AT_FDCWD, path, 1 << 26, &data, NULL), 0);
  return data;
}

static void write_file_of(const char *path, const char *data) {
  assert_int_equal(file_replace_at(AT_FDCWD, path, data, strlen(data), 0600), 0);
}

static void split(char *data, struct strv *ret_lines) {
  for (char *rest = data, *line; (line = strsep(&rest, "\n"));)
    if (*line)
      strv_add(ret_lines, line);
}

static void write_lines(const char *path, const struct strv *lines) {
  _cleanup_text_ struct text text = {0};
  STRV_FOREACH (line, lines)
    text_appendf(&text, "%s\n", *line);
  write_file_of(path, text_string(&text));
}

/* ---- what is written ---- */

static bool count_visit(void *context, const struct audit_entry *entry) {
  size_t *count = context;
  ++*count;
  assert_int_equal(json_integer_value(json_object_get(entry->json, "seq")), (json_int_t)*count);
  return true;
}

static bool any_visit(void *context, const struct audit_entry *entry) {
  (void)entry;
  ++*(size_t *)context;
  return true;
}

static void test_lines_are_read_back(void **state) {
  _cleanup_error_ struct sb_error error = {0};
  write_logs(*state, 5);
  size_t count = 0;
  assert_int_equal(audit_read(*state, SESSION, any_visit, &count, &error), 0);
  assert_int_equal(count, 2 + 5); /* opened, closed, and what happened */
  assert_int_equal(problems(*state, NULL, NULL), 0);
  assert_int_equal(problems(*state, SESSION, NULL), 0);
}

static void test_files_are_private(void **state) {
  write_logs(*state, 1);
  static const char *const names[] = {SESSION ".jsonl", "chain.jsonl", "chain.head"};
  struct stat status;
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    _cleanup_free_ char *path = log_path(*state, names[i]);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
  }
  _cleanup_free_ char *folder = audit_folder(*state);
  assert_int_equal(stat(folder, &status), 0);
  assert_int_equal(status.st_mode & 0777, 0700);
}

/* A field must not be able to pass for the time, the session or the place in the chain. */
static void test_fields_cannot_take_our_names(void **state) {
  _cleanup_error_ struct sb_error error = {0};
  struct audit *audit = open_log(*state, SESSION);
  assert_int_equal(audit_write(audit, "decision",
                               json_pack("{s:i, s:s, s:s, s:s, s:s, s:s}", "seq", 99, "time", "x",
                                         "session", "x", "event", "x", "hash", "x", "prev", "x"),
                               &error),
                   0);
  audit_close(audit);
  assert_int_equal(problems(*state, SESSION, NULL), 0);
  _cleanup_free_ char *path = log_path(*state, SESSION ".jsonl");
  _cleanup_free_ char *data = read_file_of(path);
  assert_non_null(strstr(data, "{\"seq\":1,\"time\":\"2"));
  assert_null(strstr(data, ":99"));
}

static void test_bad_ids_are_refused(void **state) {
  static const char *const ids[] = {
      "", "../x", "a/b", "a\"b", "chain", "a.b", "012345678901234567890123456789012"};
  for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
    _cleanup_error_ struct sb_error error = {0};
    struct audit *audit = NULL;
    assert_int_equal(audit_open(*state, ids[i], &audit, &error), -1);
  }
}

static void test_unwritable_place_is_an_error(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  struct audit *audit = NULL;
  assert_int_equal(audit_open("/proc/none", SESSION, &audit, &error), -1);
  assert_non_null(strstr(error.message, "audit log"));
  assert_non_null(error.hint);
}

/* Most sessions ask nothing: they have two records in the chain and no file. */
static void test_a_quiet_session_has_no_file(void **state) {
  _cleanup_error_ struct sb_error error = {0};
  struct audit *audit = open_log(*state, SESSION);
  assert_int_equal(audit_start(audit, json_pack("{s:s}", "command", "true"), &error), 0);
  assert_int_equal(audit_end(audit, json_pack("{s:i}", "exit", 0), &error), 0);
  audit_close(audit);
  size_t count = 0;
  assert_int_equal(audit_read(*state, NULL, count_visit, &count, &error), 0);
  assert_int_equal(count, 2);
  count = 0;
  assert_int_equal(audit_read(*state, SESSION, count_visit, &count, &error), 0);
  assert_int_equal(count, 2);
  assert_int_equal(problems(*state, SESSION, NULL), 0);
  assert_int_equal(audit_read(*state, "nobody22", count_visit, &count, &error), -1);
  sb_error_clear(&error);
  _cleanup_verdict_ struct audit_verdict verdict = {0};
  assert_int_equal(audit_verify(*state, "nobody22", &verdict, &error), -1);
}

/* ---- tampering: each with the number of the line that must be named ---- */

typedef void tamper(struct strv *lines, const struct strv *other);

static void drop(struct strv *lines, size_t index) {
  free(lines->items[index]);
  memmove(lines->items + index, lines->items + index + 1,
          (lines->count - index) * sizeof *lines->items);
  lines->count--;
}

static void insert(struct strv *lines, size_t index, const char *line) {
  strv_add(lines, line);
  char *last = lines->items[lines->count - 1];
  memmove(lines->items + index + 1, lines->items + index,
          (lines->count - 1 - index) * sizeof *lines->items);
  lines->items[index] = last;
}

static void edit_text(struct strv *lines, const struct strv *other) {
  (void)other;
  *strstr(lines->items[2], "/opt/x") = '!';
}
static void edit_time(struct strv *lines, const struct strv *other) {
  (void)other;
  char *time = strstr(lines->items[2], "\"time\":\"") + 8;
  time[3] = time[3] == '1' ? '2' : '1';
}
static void edit_hash(struct strv *lines, const struct strv *other) {
  (void)other;
  char *digit = lines->items[2] + strlen(lines->items[2]) - 3;
  *digit = *digit == '0' ? '1' : '0';
}
static void add_space(struct strv *lines, const struct strv *other) {
  (void)other;
  char *old = lines->items[2];
  lines->items[2] = xasprintf("%s ", old);
  free(old);
}
static void cut_first(struct strv *lines, const struct strv *other) {
  (void)other;
  drop(lines, 0);
}
static void cut_middle(struct strv *lines, const struct strv *other) {
  (void)other;
  drop(lines, 2);
}
static void cut_last(struct strv *lines, const struct strv *other) {
  (void)other;
  drop(lines, 4);
}
static void cut_all(struct strv *lines, const struct strv *other) {
  (void)other;
  strv_clear(lines);
}
static void swap(struct strv *lines, const struct strv *other) {
  (void)other;
  char *kept = lines->items[1];
  lines->items[1] = lines->items[2];
  lines->items[2] = kept;
}
static void repeat(struct strv *lines, const struct strv *other) {
  (void)other;
  insert(lines, 3, lines->items[2]);
}
static void insert_foreign(struct strv *lines, const struct strv *other) {
  insert(lines, 2, other->items[2]);
}
static void append_foreign(struct strv *lines, const struct strv *other) {
  strv_add(lines, other->items[4]);
}
static void append_garbage(struct strv *lines, const struct strv *other) {
  (void)other;
  strv_add(lines, "not a line");
}
static void replace_all(struct strv *lines, const struct strv *other) {
  strv_clear(lines);
  STRV_FOREACH (line, other)
    strv_add(lines, *line);
}

static const struct {
  const char *name;
  tamper *tamper;
  size_t line; /* that is named first */
} tamperings[] = {
    {"edit a field", edit_text, 3},
    {"edit the time", edit_time, 3},
    {"edit a hash", edit_hash, 3},
    {"add a space", add_space, 3},
    {"cut the first line", cut_first, 1},
    {"cut a line", cut_middle, 3},
    {"cut the last line", cut_last, 4},
    {"empty the file", cut_all, 0},
    {"swap two lines", swap, 2},
    {"repeat a line", repeat, 4},
    {"insert a foreign line", insert_foreign, 3},
    {"append a foreign line", append_foreign, 6},
    {"append garbage", append_garbage, 6},
    {"replace the file", replace_all, 1},
};

static void test_every_tampering_is_found(void **state) {
  _cleanup_free_ char *path = log_path(*state, SESSION ".jsonl");
  _cleanup_free_ char *other_path = log_path(*state, "hgfedcba.jsonl");
  write_logs(*state, 5);
  _cleanup_free_ char *original = read_file_of(path), *other_data = read_file_of(other_path);
  _cleanup_strv_ struct strv other = {0};
  split(other_data, &other);
  for (size_t i = 0; i < ARRAY_SIZE(tamperings); i++) {
    _cleanup_strv_ struct strv lines = {0};
    _cleanup_free_ char *data = xstrdup(original);
    split(data, &lines);
    tamperings[i].tamper(&lines, &other);
    write_lines(path, &lines);
    size_t line = 999;
    if (problems(*state, NULL, &line) == 0 || problems(*state, SESSION, NULL) == 0)
      fail_msg("%s was not noticed", tamperings[i].name);
    if (line != tamperings[i].line)
      fail_msg("%s: line %zu was named", tamperings[i].name, line);
    write_file_of(path, original);
    assert_int_equal(problems(*state, NULL, NULL), 0); /* the control: nothing else is wrong */
  }
}

/* Somebody who knows how makes a whole new log with hashes that are right. */
static void test_a_log_made_anew_is_found(void **state) {
  write_logs(*state, 5);
  _cleanup_free_ char *forged_home = xasprintf("%s/forged", (char *)*state);
  write_logs(forged_home, 5);
  _cleanup_free_ char *path = log_path(*state, SESSION ".jsonl");
  _cleanup_free_ char *forged = log_path(forged_home, SESSION ".jsonl");
  assert_int_equal(problems(forged_home, NULL, NULL), 0);
  assert_int_equal(rename(forged, path), 0);
  assert_int_equal(problems(*state, SESSION, NULL), 1);
}

static void test_a_missing_log_is_found(void **state) {
  write_logs(*state, 5);
  _cleanup_free_ char *path = log_path(*state, SESSION ".jsonl");
  assert_int_equal(unlink(path), 0);
  assert_int_equal(problems(*state, NULL, NULL), 1);
  assert_int_equal(problems(*state, SESSION, NULL), 1);
}

static void test_a_planted_log_is_found(void **state) {
  write_logs(*state, 5);
  _cleanup_free_ char *forged_home = xasprintf("%s/forged", (char *)*state);
  struct audit *audit = open_log(forged_home, "planted2");
  write_event(audit, "decision", 1);
  audit_close(audit);
  _cleanup_free_ char *path = log_path(*state, "planted2.jsonl");
  _cleanup_free_ char *forged = log_path(forged_home, "planted2.jsonl");
  assert_int_equal(rename(forged, path), 0);
  assert_int_equal(problems(*state, NULL, NULL), 1);
}

/* The chain itself: cut, edited, gone; also after another session has written to it since. */
static void tamper_with_chain(const char *home, int kind) {
  _cleanup_free_ char *path = log_path(home, "chain.jsonl");
  _cleanup_free_ char *head = log_path(home, "chain.head");
  _cleanup_free_ char *data = read_file_of(path);
  _cleanup_strv_ struct strv lines = {0};
  split(data, &lines);
  if (kind == 0)
    drop(&lines, lines.count - 1);
  if (kind == 1)
    drop(&lines, 0);
  if (kind == 2)
    swap(&lines, NULL);
  if (kind == 3)
    lines.items[1][9] ^= 1;
  if (kind <= 3)
    write_lines(path, &lines);
  else
    assert_int_equal(unlink(kind == 4 ? path : head), 0);
}

static void test_the_chain_is_verified(void **state) {
  for (int kind = 0; kind < 6; kind++) {
    _cleanup_free_ char *home = xasprintf("%s/%d", (char *)*state, kind);
    write_logs(home, 3);
    assert_int_equal(problems(home, NULL, NULL), 0);
    tamper_with_chain(home, kind);
    if (problems(home, NULL, NULL) == 0)
      fail_msg("kind %d was not noticed", kind);
    struct audit *audit = open_log(home, "later222");
    write_event(audit, "decision", 1);
    audit_close(audit);
    if (problems(home, NULL, NULL) == 0)
      fail_msg("kind %d was not noticed later", kind);
  }
}

/* ---- rotation ---- */

static void test_rotation_keeps_the_chain(void **state) {
  struct audit *audit = open_log(*state, SESSION);
  audit_set_segment_size(audit, 2000);
  for (int i = 0; i < 50; i++)
    write_event(audit, "decision", i);
  audit_close(audit);
  assert_int_equal(problems(*state, NULL, NULL), 0);
  _cleanup_free_ char *second = log_path(*state, SESSION ".2.jsonl");
  _cleanup_free_ char *third = log_path(*state, SESSION ".3.jsonl");
  assert_int_equal(access(second, F_OK), 0);
  assert_int_equal(rename(third, second), 0); /* one file of it is gone */
  assert_true(problems(*state, NULL, NULL) > 0);
}

/* ---- crashes ---- */

static void append(const char *path, const char *bytes) {
  _cleanup_close_ int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  assert_int_equal(write(fd, bytes, strlen(bytes)), (ssize_t)strlen(bytes));
}

/* The writer is gone, in the middle of a line. */
static void die_writing(const char *home, const char *session) {
  pid_t child = fork();
  if (child == 0) {
    struct audit *audit = open_log(home, session);
    for (int i = 0; i < 3; i++)
      write_event(audit, "decision", i);
    raise(SIGKILL);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
}

static void test_a_killed_writer_is_no_tampering(void **state) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_free_ char *path = log_path(*state, SESSION ".jsonl");
  die_writing(*state, SESSION);
  _cleanup_verdict_ struct audit_verdict verdict = {0};
  assert_int_equal(audit_verify(*state, SESSION, &verdict, &error), 0);
  assert_int_equal(verdict.problem_count, 0);
  assert_int_equal(verdict.notes.count, 1);
  append(path, "{\"seq\":4,\"ti");
  assert_int_equal(audit_seal(*state, SESSION, &error), 1);
  assert_int_equal(problems(*state, SESSION, NULL), 0);
  /* From then on a cut is noticed. */
  assert_int_equal(truncate(path, 100), 0);
  assert_true(problems(*state, SESSION, NULL) > 0);
}

static void test_a_torn_line_must_be_the_one_that_was_marked(void **state) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_free_ char *path = log_path(*state, SESSION ".jsonl");
  die_writing(*state, SESSION);
  append(path, "{\"seq\":4,\"ti");
  assert_int_equal(audit_seal(*state, SESSION, &error), 1);
  _cleanup_free_ char *data = read_file_of(path);
  char *torn = strstr(data, "\"ti\n");
  assert_non_null(torn);
  *torn = '!';
  write_file_of(path, data);
  assert_int_equal(problems(*state, SESSION, NULL), 1);
}

static void test_a_live_log_is_not_sealed(void **state) {
  _cleanup_error_ struct sb_error error = {0};
  struct audit *audit = open_log(*state, SESSION);
  write_event(audit, "decision", 1);
  assert_int_equal(audit_seal(*state, SESSION, &error), 0);
  assert_int_equal(problems(*state, SESSION, NULL), 0);
  audit_close(audit);
  assert_int_equal(problems(*state, SESSION, NULL), 0);
}

/* The chain's writer died between the line and the head, or within the line. */
static void test_a_torn_chain_is_continued(void **state) {
  _cleanup_free_ char *chain = log_path(*state, "chain.jsonl"),
                      *head = log_path(*state, "chain.head");
  write_logs(*state, 2);
  _cleanup_free_ char *before = read_file_of(head);
  struct audit *audit = open_log(*state, "third222");
  write_event(audit, "decision", 1);
  write_file_of(head, before); /* one line behind */
  assert_int_equal(problems(*state, NULL, NULL), 0);
  audit_close(audit);
  assert_int_equal(problems(*state, NULL, NULL), 0);
  append(chain, "{\"seq\":7");
  audit = open_log(*state, "fourth22");
  write_event(audit, "decision", 1);
  audit_close(audit);
  assert_int_equal(problems(*state, NULL, NULL), 0);
}

/* From here on this happens where the head would be written. */
static void fail_at_the_head(unsigned action) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, action),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {ARRAY_SIZE(filter), filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void kill_writers_in_a_row(const char *home) {
  for (int i = 0; i < 3; i++) {
    pid_t child = fork();
    if (child == 0) {
      _cleanup_error_ struct sb_error error = {0};
      fail_at_the_head(SECCOMP_RET_KILL_PROCESS);
      _exit(audit_note(home, "policy.trust", json_object(), &error));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(problems(home, NULL, NULL), 0);
  }
}

static void test_writers_of_the_chain_killed_in_a_row(void **state) {
  _cleanup_error_ struct sb_error error = {0};
  kill_writers_in_a_row(*state); /* the very first ones */
  write_logs(*state, 2);
  kill_writers_in_a_row(*state);
  assert_int_equal(audit_note(*state, "policy.trust", json_object(), &error), 0);
  assert_int_equal(problems(*state, NULL, NULL), 0);
}

/* The lines would have taken the room of what says where they end. */
static void test_no_line_without_room_for_the_head(void **state) {
  _cleanup_error_ struct sb_error error = {0};
  pid_t child = fork();
  if (child == 0) {
    fail_at_the_head(SECCOMP_RET_ERRNO | ENOSPC);
    _exit(audit_note(*state, "policy.trust", json_object(), &error) == 0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_int_equal(audit_note(*state, "policy.trust", json_object(), &error), 0);
  assert_int_equal(problems(*state, NULL, NULL), 0);
}

static void test_many_writers_share_the_chain(void **state) {
  enum { WRITERS = 20, ROUNDS = 10 };
  for (int i = 0; i < WRITERS; i++)
    if (fork() == 0) {
      for (int round = 0; round < ROUNDS; round++) {
        _cleanup_free_ char *session = xasprintf("writer%02dx%02d", i, round);
        struct audit *audit = open_log(*state, session);
        write_event(audit, "decision", round);
        audit_close(audit);
      }
      _exit(0);
    }
  int status, failed = 0;
  for (int i = 0; i < WRITERS; i++)
    if (wait(&status) < 0 || status != 0)
      failed++;
  assert_int_equal(failed, 0);
  _cleanup_verdict_ struct audit_verdict verdict = {0};
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(audit_verify(*state, NULL, &verdict, &error), 0);
  assert_int_equal(verdict.problem_count, 0);
  assert_int_equal(verdict.chain_count, 2 * WRITERS * ROUNDS); /* open, close */
}

/* ---- a disk without room: RLIMIT_FSIZE cuts a write in the same way ---- */

static void test_a_full_disk_loses_no_line(void **state) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_free_ char *path = log_path(*state, SESSION ".jsonl");
  signal(SIGXFSZ, SIG_IGN);
  struct audit *audit = open_log(*state, SESSION);
  write_event(audit, "decision", 1);
  struct stat status;
  struct rlimit old, small;
  assert_int_equal(stat(path, &status), 0);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = (struct rlimit){.rlim_cur = 100, .rlim_max = old.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  int first = audit_write(audit, "decision", json_pack("{s:i}", "number", 2), &error);
  sb_error_clear(&error);
  int second = audit_write(audit, "decision", json_pack("{s:i}", "number", 3), &error);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  assert_int_equal(first, -1);
  assert_int_equal(second, -1);
  assert_non_null(error.hint);
  /* Nothing of the refused lines is left, neither here nor in the next file. */
  _cleanup_free_ char *full = read_file_of(path), *next = log_path(*state, SESSION ".2.jsonl");
  assert_int_equal(strlen(full), status.st_size);
  _cleanup_free_ char *empty = read_file_of(next);
  assert_string_equal(empty, "");
  write_event(audit, "decision", 4);
  audit_close(audit);
  assert_int_equal(problems(*state, SESSION, NULL), 0);
  _cleanup_free_ char *data = read_file_of(next);
  assert_non_null(strstr(data, "\"event\":\"log.gap\",\"count\":2"));
}

/* Room for the last lines is held while the log is open, and given back. */
static void test_room_is_held_and_given_back(void **state) {
  _cleanup_free_ char *path = log_path(*state, SESSION ".jsonl");
  struct stat status;
  struct audit *audit = open_log(*state, SESSION);
  write_event(audit, "decision", 1);
  assert_int_equal(stat(path, &status), 0);
  if (status.st_blocks * 512 < 8192)
    print_message("this file system allocates nothing ahead\n");
  assert_true(status.st_size < 4096);
  audit_close(audit);
  assert_int_equal(stat(path, &status), 0);
  assert_true(status.st_blocks * 512 <= 8192);
  assert_int_equal(problems(*state, NULL, NULL), 0);
}

/* ---- floods ---- */

static bool add_up(void *context, const struct audit_entry *entry) {
  json_int_t *sum = context;
  const char *event = json_string_value(json_object_get(entry->json, "event"));
  if (strncmp(event, "log.", 4) == 0)
    return true;
  *sum +=
      strcmp(event, "summary") == 0 ? json_integer_value(json_object_get(entry->json, "count")) : 1;
  return true;
}

static void test_a_flood_is_counted(void **state) {
  _cleanup_error_ struct sb_error error = {0};
  enum { FLOOD = 20000 };
  struct audit *audit = open_log(*state, SESSION);
  for (int i = 0; i < FLOOD; i++)
    assert_int_equal(audit_summary(audit, "denied", json_pack("{s:i}", "number", i), &error), 0);
  audit_close(audit);
  json_int_t sum = 0;
  assert_int_equal(audit_read(*state, SESSION, add_up, &sum, &error), 0);
  assert_int_equal(sum, FLOOD);
  _cleanup_free_ char *path = log_path(*state, SESSION ".jsonl");
  _cleanup_free_ char *data = read_file_of(path);
  _cleanup_strv_ struct strv lines = {0};
  split(data, &lines);
  assert_true(lines.count < FLOOD / 10);
}

/* ---- outside of sessions, and removal ---- */

static void test_notes_are_in_the_chain(void **state) {
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(audit_note(*state, "policy.trust", json_pack("{s:s}", "project", "/p"), &error),
                   0);
  assert_int_equal(problems(*state, NULL, NULL), 0);
  size_t count = 0;
  assert_int_equal(audit_read(*state, NULL, count_visit, &count, &error), 0);
  assert_int_equal(count, 1);
}

static void test_pruning_is_remembered(void **state) {
  _cleanup_error_ struct sb_error error = {0};
  size_t count;
  write_logs(*state, 2);
  struct audit *live = open_log(*state, "live2222");
  assert_int_equal(audit_prune(*state, "2001-01-01T00:00:00Z", &count, &error), 0);
  assert_int_equal(count, 0);
  assert_int_equal(audit_prune(*state, "9999-01-01T00:00:00Z", &count, &error), 0);
  assert_int_equal(count, 2);
  _cleanup_free_ char *path = log_path(*state, SESSION ".jsonl");
  assert_int_not_equal(access(path, F_OK), 0);
  assert_int_equal(problems(*state, NULL, NULL), 0);
  audit_close(live);
  assert_int_equal(problems(*state, NULL, NULL), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    TEST(test_lines_are_read_back),
    TEST(test_files_are_private),
    TEST(test_a_quiet_session_has_no_file),
    TEST(test_fields_cannot_take_our_names),
    TEST(test_bad_ids_are_refused),
    TEST(test_unwritable_place_is_an_error),
    TEST(test_every_tampering_is_found),
    TEST(test_a_log_made_anew_is_found),
    TEST(test_a_missing_log_is_found),
    TEST(test_a_planted_log_is_found),
    TEST(test_the_chain_is_verified),
    TEST(test_rotation_keeps_the_chain),
    TEST(test_a_killed_writer_is_no_tampering),
    TEST(test_a_torn_line_must_be_the_one_that_was_marked),
    TEST(test_a_live_log_is_not_sealed),
    TEST(test_a_torn_chain_is_continued),
    TEST(test_writers_of_the_chain_killed_in_a_row),
    TEST(test_no_line_without_room_for_the_head),
    TEST(test_many_writers_share_the_chain),
    TEST(test_a_full_disk_loses_no_line),
    TEST(test_room_is_held_and_given_back),
    TEST(test_a_flood_is_counted),
    TEST(test_notes_are_in_the_chain),
    TEST(test_pruning_is_remembered),
};

UNIT_MAIN(tests)
