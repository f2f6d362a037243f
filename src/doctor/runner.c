/* Runs the probes, each in a child of its own, several at a time. Must never hang: a probe that
 * takes too long is killed with everything it started, and one that cannot be killed (stuck in the
 * kernel) is left alone. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/child.h"
#include "doctor/probe.h"

/* Patient: who asks on a busy machine wants to know what it can do, not how busy it is, and only
 * what hangs takes that long. */
enum { AT_A_TIME = 16, PATIENCE_MS = 6000, DYING_MS = 100 };

struct running {
  const struct check *check; /* NULL: free */
  struct finding *finding;   /* shared with the child */
  pid_t pid;
  int pipe; /* hangs up when the child and all it forked are gone */
  long long deadline;
};

static long long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Nothing that a probe or a tool writes may reach the terminal. */
static void silence(void) {
  int fd = open("/dev/null", O_RDWR);
  if (fd < 0)
    fd = memfd_create("silence", 0); /* a chroot without /dev */
  for (int target = 0; fd >= 0 && target <= 2; target++)
    dup2(fd, target);
  if (fd > 2)
    close(fd);
}

static void become_probe(const struct running *running) {
  setpgid(0, 0); /* so that the probe can be killed with all its children */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  silence();
  running->check->probe(running->check, running->finding);
  running->finding->done = true;
  _exit(0);
}

/* False if no child could be made. */
static bool start(struct running *running) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0)
    return false;
  running->pid = fork();
  if (running->pid < 0) {
    close(ends[0]);
    close(ends[1]);
    return false;
  }
  if (running->pid == 0)
    become_probe(running);
  close(ends[1]);
  running->pipe = ends[0];
  running->deadline = now_ms() + PATIENCE_MS;
  return true;
}

static void note_death(struct finding *finding, int status) {
  if (WIFSIGNALED(status))
    finding_set(finding, DOCTOR_RESTRICTED, "the probe was killed: %s",
                strsignal(WTERMSIG(status)));
  else
    finding_set(finding, DOCTOR_RESTRICTED, "the probe gave no answer");
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
    finding_fix(finding, "a seccomp filter from outside kills it: start the container with "
                         "--security-opt seccomp=unconfined");
}

static void finish(struct running *running) {
  int status = child_wait(running->pid);
  if (!running->finding->done)
    note_death(running->finding, status);
  close(running->pipe);
  running->check = NULL;
}

static void give_up(struct running *running) {
  kill(-running->pid, SIGKILL);
  kill(running->pid, SIGKILL);
  /* The pipe hangs up as it dies; if it does not, it is stuck in the kernel and not waited for. */
  bool died = poll(&(struct pollfd){.fd = running->pipe}, 1, DYING_MS) == 1;
  waitpid(running->pid, NULL, died ? 0 : WNOHANG);
  struct finding *finding = running->finding;
  /* A probe says early what it knows: a tool that is there but does not answer is still there. */
  if (finding->found[0]) {
    finding->state = DOCTOR_DEGRADED;
    if (!finding->fix[0])
      finding_fix(finding, "it does not answer: run it by hand to see why");
  } else
    finding_set(finding, DOCTOR_RESTRICTED, "no answer within %d ms", PATIENCE_MS);
  close(running->pipe);
  running->check = NULL;
}

/* Waits until a probe ends or its time is up. */
static void wait_for_some(struct running *slots) {
  struct pollfd fds[AT_A_TIME];
  long long nearest = now_ms() + PATIENCE_MS;
  for (size_t i = 0; i < AT_A_TIME; i++) {
    fds[i] = (struct pollfd){.fd = slots[i].check ? slots[i].pipe : -1};
    if (slots[i].check && slots[i].deadline < nearest)
      nearest = slots[i].deadline;
  }
  long long left = nearest - now_ms();
  if (poll(fds, AT_A_TIME, left > 0 ? (int)left : 0) < 0)
    return;
  for (size_t i = 0; i < AT_A_TIME; i++) {
    if (slots[i].check && fds[i].revents)
      finish(&slots[i]);
    else if (slots[i].check && now_ms() >= slots[i].deadline)
      give_up(&slots[i]);
  }
}

static struct running *free_slot(struct running *slots) {
  for (size_t i = 0; i < AT_A_TIME; i++)
    if (!slots[i].check)
      return &slots[i];
  return NULL;
}

static bool any_running(const struct running *slots) {
  for (size_t i = 0; i < AT_A_TIME; i++)
    if (slots[i].check)
      return true;
  return false;
}

static void run_with(const struct check *checks, size_t count, struct finding *shared) {
  struct running slots[AT_A_TIME] = {0};
  for (size_t next = 0; next < count;) {
    struct running *slot = free_slot(slots);
    if (slot) {
      *slot = (struct running){.check = &checks[next], .finding = &shared[next]};
      if (start(slot)) {
        next++;
        continue;
      }
      slot->check = NULL;
      if (!any_running(slots)) {
        finding_set(&shared[next++], DOCTOR_RESTRICTED, "not tried: no child process: %s",
                    strerror(errno));
        continue;
      }
    }
    wait_for_some(slots); /* frees a slot, or processes and descriptors to try again with */
  }
  while (any_running(slots))
    wait_for_some(slots);
}

void probe_run_all(const struct check *checks, size_t count, struct finding *findings) {
  size_t size = count * sizeof *findings;
  struct finding *shared =
      mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    for (size_t i = 0; i < count; i++)
      finding_set(&findings[i], DOCTOR_RESTRICTED, "not tried: no memory: %s", strerror(errno));
    return;
  }
  run_with(checks, count, shared);
  memcpy(findings, shared, size);
  munmap(shared, size);
}
