/* A relay that was taken over: what the monitor believes of its ledger, and what it can still do.
 */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/landlock.h"
#include "net/confine.h"
#include "net/ledger.h"

/* ---- the ledger ---- */

/* The relay writes it, and may have been taken over. */
static void test_leads(void **state) {
  (void)state;
  struct ledger *ledger = ledger_new();
  const struct address here = {.family = 4, .bytes = {203, 0, 113, 10}}, there = {.family = 4};
  char reason[REASON_SIZE] = "untouched";
  _cleanup_strv_ struct strv none = {0}, one = {0}, many = {0}, after = {0};
  ledger_names(ledger, &here, &none, reason);
  assert_int_equal(none.count, 0);
  assert_string_equal(reason, "untouched");
  struct ledger_line *line = ledger_find(ledger, "good.test", 0, true, "network.allow: good.test");
  ledger_lead(ledger, line, &here);
  ledger_lead(ledger, line, &here);
  ledger_names(ledger, &here, &one, reason);
  assert_int_equal(one.count, 1);
  assert_string_equal(one.items[0], "good.test");
  assert_string_equal(reason, "network.allow: good.test");
  struct address found;
  uint32_t index = 0;
  assert_true(ledger_next_address(ledger, "good.test", &index, &found));
  assert_true(address_equal(&found, &here));
  assert_false(ledger_next_address(ledger, "good.test", &index, &found));
  index = 0;
  assert_false(ledger_next_address(ledger, "other.test", &index, &found));
  for (int i = 0; i < 2 * LEDGER_LEADS; i++) {
    char name[16];
    snprintf(name, sizeof name, "%d.test", i % LEDGER_LINES);
    line = ledger_find(ledger, name, 0, true, "");
    const struct address next = {.family = 4, .bytes = {203, 0, 113, (uint8_t)(i / LEDGER_LINES)}};
    if (line)
      ledger_lead(ledger, line, i < LEDGER_LINES ? &here : &next);
  }
  ledger_names(ledger, &here, &many, reason);
  assert_int_equal(many.count, LEDGER_NAMES);
  ledger->lead_count = UINT32_MAX;
  ledger->leads[0].line = UINT32_MAX;
  ledger_names(ledger, &here, &after, reason);
  assert_int_equal(after.count, LEDGER_NAMES);
  ledger->line_count = 0;
  ledger_names(ledger, &there, &after, reason);
  ledger_free(ledger);
}

/* ---- confinement ---- */

/* What a relay that was taken over could still do, as bits; all of it must fail but the first. */
static int try_everything(void) {
  static char *const nothing[] = {NULL};
  int tcp = socket(AF_INET, SOCK_STREAM, 0), unix_socket = socket(AF_UNIX, SOCK_STREAM, 0);
  int file = open("/etc/passwd", O_RDONLY), made = open("/tmp/relay-test", O_CREAT | O_RDWR, 0600);
  bool landlocked = landlock_abi() > 0;
  void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int result = (tcp >= 0) | (unix_socket >= 0) << 1 | (file >= 0 && landlocked) << 2 |
               (made >= 0 && landlocked) << 3 | (code != MAP_FAILED) << 4;
  syscall(SYS_execve, "/bin/true", nothing, nothing);
  return result | (kill(getppid(), 0) == 0) << 5 |
         (syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) >= 0) << 6;
}

static void test_confinement(void **state) {
  (void)state;
  pid_t pid = fork();
  while (pid == 0) /* not _exit: a sanitizer does more there than the filter allows */
    syscall(SYS_exit_group, relay_confine() < 0 ? 128 : try_everything());
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_leads),
    cmocka_unit_test(test_confinement),
};

UNIT_MAIN(tests)
