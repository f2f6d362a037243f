/* Network drivers, each really started for a namespace of our own, with nobody in it who could send
 * anything. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "doctor/probe.h"
#include "net/drivers/minder.h"

/* A session with nothing in it: its pid once its namespaces are there, or -1. */
static pid_t make_session(struct finding *finding) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0)
    return -1;
  pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    if (!probe_enter_userns(finding, CLONE_NEWNET) || write(ends[1], "", 1) != 1)
      _exit(1);
    for (;;)
      pause();
  }
  close(ends[1]);
  char made;
  bool there = pid > 0 && read(ends[0], &made, 1) == 1;
  close(ends[0]);
  if (!there && pid > 0)
    waitpid(pid, NULL, 0);
  return there ? pid : -1;
}

static int open_namespace(pid_t pid, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, name);
  return open(path, O_RDONLY | O_CLOEXEC);
}

/* True when it is at work; else the message says why it is not. */
static bool await(struct minder *minder, struct minder_message *message) {
  struct pollfd line = {.fd = minder->line, .events = POLLIN};
  message->text[0] = '\0';
  while (poll(&line, 1, -1) == 1 &&
         recv(minder->line, message, sizeof *message, 0) == sizeof *message) {
    if (message->kind != MINDER_STARTED)
      return message->kind == MINDER_READY;
    minder->pid = message->pid;
  }
  return false;
}

static void try_driver(const struct net_driver *driver, pid_t session, struct finding *finding) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_close_ int user_ns = open_namespace(session, "user");
  _cleanup_close_ int net_ns = open_namespace(session, "net");
  struct host_rules none = {0};
  struct minder_request request = {.driver = driver,
                                   .session_id = "doctor",
                                   .egress = {.rules = &none},
                                   .user_ns = user_ns,
                                   .net_ns = net_ns,
                                   .openings = -1};
  struct minder minder = MINDER_NONE;
  struct minder_message message;
  if (minder_start(&minder, &request, &error) < 0) {
    finding_set(finding, DOCTOR_RESTRICTED, "%.240s", error.message);
    return;
  }
  char version[sizeof finding->found];
  memcpy(version, finding->found, sizeof version);
  const char *lacking = net_driver_lacks(driver);
  bool works = await(&minder, &message);
  if (works && lacking)
    finding_set(finding, DOCTOR_RESTRICTED, "works; %.240s", lacking);
  else if (works)
    finding_set(finding, DOCTOR_OK, "%.200s; tried, works", version);
  else
    finding_set(finding, DOCTOR_RESTRICTED, "it does not start: %.200s", message.text);
  minder_end(&minder);
}

void probe_driver(const struct check *check, struct finding *finding) {
  _cleanup_error_ struct sb_error error = {0};
  const struct net_driver *driver = net_driver_find(check->id);
  probe_tool(check, finding);
  if (finding->state != DOCTOR_OK)
    return;
  if (net_driver_check(driver, &error) < 0) {
    finding_set(finding, DOCTOR_RESTRICTED, "%.240s", error.message);
    finding_fix(finding, "%.500s", error.hint);
    return;
  }
  /* What root's driver does to the host's network, it does to one of our own. */
  if (driver->by_root && unshare(CLONE_NEWNET) < 0)
    return finding_set(finding, DOCTOR_RESTRICTED, "no network namespace: %s", strerror(errno));
  pid_t session = make_session(finding);
  if (session < 0)
    return; /* the finding says why */
  try_driver(driver, session, finding);
  kill(session, SIGKILL);
  waitpid(session, NULL, 0);
}
