/* Reaching processes that are not ours: the sandbox's own, and the host's. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attempt.h"

static int seize(pid_t pid) {
  if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0)
    return errno;
  /* Kill the tracer to let go: a seized process that was not stopped just runs on. */
  return OPENED;
}

static int seize_now(char **arguments) {
  return seize((pid_t)number(arguments[0]));
}

static int seize_in_child(char **arguments) {
  return in_child(seize_now, arguments);
}

static int attach_now(char **arguments) {
  pid_t pid = (pid_t)number(arguments[0]);

  if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) < 0)
    return errno;
  waitpid(pid, NULL, __WALL);
  return answer(ptrace(PTRACE_DETACH, pid, NULL, NULL));
}

static int attach_in_child(char **arguments) {
  return in_child(attach_now, arguments);
}

/* Everything visible but ourselves and our ancestors inside, which the command line gives. */
static int seize_all_now(char **arguments) {
  DIR *folder = opendir("/proc");
  struct dirent *entry;
  int result = ESRCH;

  (void)arguments;
  if (!folder)
    return errno;
  while ((entry = readdir(folder))) {
    pid_t pid = (pid_t)atoi(entry->d_name);
    if (!isdigit((unsigned char)entry->d_name[0]) || pid == getpid() || pid == getppid())
      continue;
    result = seize(pid);
    if (result == OPENED) {
      detail("%d", pid);
      break;
    }
  }
  closedir(folder);
  return result;
}

static int seize_all(char **arguments) {
  return in_child(seize_all_now, arguments);
}

/* A debugger's own child: must work unless debugging is off. */
static int trace_child(char **arguments) {
  pid_t child = fork();
  int status;

  (void)arguments;
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
      _exit(errno);
    raise(SIGSTOP);
    _exit(0);
  }
  if (child < 0 || waitpid(child, &status, 0) < 0)
    return errno;
  if (WIFEXITED(status))
    return WEXITSTATUS(status);
  ptrace(PTRACE_CONT, child, NULL, NULL);
  waitpid(child, &status, 0);
  return OPENED;
}

/* The address of something that every process has. */
static unsigned long some_address(const char *pid) {
  char path[64];
  unsigned long address = 0;
  FILE *file;

  snprintf(path, sizeof(path), "/proc/%s/maps", pid);
  file = fopen(path, "re");
  if (!file)
    return (unsigned long)&errno;
  if (fscanf(file, "%lx", &address) != 1)
    address = (unsigned long)&errno;
  fclose(file);
  return address;
}

typedef ssize_t (*transfer)(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                            unsigned long, unsigned long);

static int transfer_memory(transfer call, const char *pid) {
  char buffer[8];
  struct iovec local = {buffer, sizeof(buffer)};
  struct iovec remote = {(void *)some_address(pid), sizeof(buffer)};

  if (call((pid_t)number(pid), &local, 1, &remote, 1, 0) >= 0)
    return OPENED;
  /* EFAULT is the answer of one who was let in, at a wrong or read-only address. */
  return errno == EFAULT ? OPENED : errno;
}

static int read_memory(char **arguments) {
  return transfer_memory(process_vm_readv, arguments[0]);
}

static int write_memory(char **arguments) {
  return transfer_memory(process_vm_writev, arguments[0]);
}

static int steal_descriptor(char **arguments) {
  int process = (int)syscall(SYS_pidfd_open, number(arguments[0]), 0);

  if (process < 0)
    return errno;
  return answer(syscall(SYS_pidfd_getfd, process, (int)number(arguments[1]), 0));
}

static int signal_by_pidfd(char **arguments) {
  int process = (int)syscall(SYS_pidfd_open, number(arguments[0]), 0);

  if (process < 0)
    return errno;
  return answer(syscall(SYS_pidfd_send_signal, process, (int)number(arguments[1]), NULL, 0));
}

static int send_signal(char **arguments) {
  if (number(arguments[0]) <= 0)
    return EINVAL;
  return answer(kill((pid_t)number(arguments[0]), (int)number(arguments[1])));
}

/* Everything that we may signal. Not tried in the pid namespace that the argument names (the
 * host's): being there is the escape, and the machine is needed for the report. */
static int kill_everything(char **arguments) {
  char target[64];
  ssize_t length = readlink("/proc/self/ns/pid", target, sizeof(target) - 1);

  if (length < 0)
    return errno;
  target[length] = '\0';
  if (strcmp(target, arguments[0]) == 0) {
    detail("in the host's pid namespace: not tried");
    return OPENED;
  }
  return answer(kill(-1, SIGKILL));
}

static int read_link(char **arguments) {
  char target[4096];
  ssize_t length = readlink(arguments[0], target, sizeof(target) - 1);

  if (length < 0)
    return errno;
  target[length] = '\0';
  detail("%s", target);
  return OPENED;
}

static int set_limit(char **arguments) {
  struct rlimit limit;
  pid_t pid = (pid_t)number(arguments[0]);

  if (prlimit(pid, RLIMIT_NOFILE, NULL, &limit) < 0)
    return errno;
  return answer(prlimit(pid, RLIMIT_NOFILE, &limit, NULL));
}

static int raise_limit(char **arguments) {
  struct rlimit limit;

  (void)arguments;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
    return errno;
  limit.rlim_max += 1;
  return answer(setrlimit(RLIMIT_NOFILE, &limit));
}

static int raise_limit_in_child(char **arguments) {
  return in_child(raise_limit, arguments);
}

static int idle_schedule(char **arguments) {
  struct sched_param none = {0};

  return answer(sched_setscheduler((pid_t)number(arguments[0]), SCHED_BATCH, &none));
}

static int real_time(char **arguments) {
  struct sched_param one = {.sched_priority = 1};

  (void)arguments;
  return answer(sched_setscheduler(0, SCHED_FIFO, &one));
}

static int real_time_in_child(char **arguments) {
  return in_child(real_time, arguments);
}

static int nice_up(char **arguments) {
  (void)arguments;
  return answer(setpriority(PRIO_PROCESS, 0, -5));
}

static int nice_up_in_child(char **arguments) {
  return in_child(nice_up, arguments);
}

static int real_time_disk(char **arguments) {
  (void)arguments;
  /* Class 1 is real time, of process 0 (us). */
  return answer(syscall(SYS_ioprio_set, 1, 0, (1 << 13) | 4));
}

static int real_time_disk_in_child(char **arguments) {
  return in_child(real_time_disk, arguments);
}

static int disk_priority_of(char **arguments) {
  return answer(syscall(SYS_ioprio_set, 1, (int)number(arguments[0]), (2 << 13) | 4));
}

static int compare(char **arguments) {
  pid_t pid = (pid_t)number(arguments[0]);

  return answer(syscall(SYS_kcmp, pid, getpid(), KCMP_VM, 0, 0));
}

static int move_its_pages(char **arguments) {
  unsigned long nodes = 1;

  return answer(syscall(SYS_migrate_pages, (pid_t)number(arguments[0]), 64, &nodes, &nodes));
}

static int robust_list(char **arguments) {
  void *head;
  size_t length;

  return answer(syscall(SYS_get_robust_list, (pid_t)number(arguments[0]), &head, &length));
}

/* A daemon: own session, own parent, no pipe kept. It touches the file for as long as it lives. */
static int daemonise(char **arguments) {
  pid_t child = fork();

  if (child < 0)
    return errno;
  if (child > 0) {
    waitpid(child, NULL, 0);
    return OPENED;
  }
  setsid();
  signal(SIGHUP, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  if (fork() > 0)
    _exit(0);
  for (int fd = 0; fd < 3; fd++)
    close(fd);
  for (int i = 0; i < 600; i++) {
    int fd = open(arguments[0], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0) {
      dprintf(fd, "%d\n", i);
      close(fd);
    }
    usleep(50000);
  }
  _exit(0);
}

const struct attempt process_attempts[] = {
    {"E75", 1, "PID: PTRACE_SEIZE", seize_in_child},
    {"E75.attach", 1, "PID: PTRACE_ATTACH", attach_in_child},
    {"E75.all", 0, "PTRACE_SEIZE of every visible process", seize_all},
    {"E76.write", 1, "PID: process_vm_writev", write_memory},
    {"E76.read", 1, "PID: process_vm_readv", read_memory},
    {"E76.pidfd", 2, "PID FD: pidfd_getfd", steal_descriptor},
    {"E77.link", 1, "PATH: readlink", read_link},
    {"E78", 0, "PTRACE_TRACEME of a child", trace_child},
    {"E79", 1, "LINK: kill everything, unless in this pid namespace", kill_everything},
    {"kill", 2, "PID SIGNAL", send_signal},
    {"kill.pidfd", 2, "PID SIGNAL: pidfd_send_signal", signal_by_pidfd},
    {"prlimit", 1, "PID: set its limits to what they are", set_limit},
    {"prlimit.raise", 0, "raise our own hard limit", raise_limit_in_child},
    {"sched", 1, "PID: SCHED_BATCH", idle_schedule},
    {"sched.fifo", 0, "SCHED_FIFO for us", real_time_in_child},
    {"nice", 0, "a better priority for us", nice_up_in_child},
    {"ioprio", 1, "PID: best-effort priority", disk_priority_of},
    {"ioprio.rt", 0, "real-time class for us", real_time_disk_in_child},
    {"kcmp", 1, "PID", compare},
    {"migrate", 1, "PID: migrate_pages", move_its_pages},
    {"robust", 1, "PID: get_robust_list", robust_list},
    {"E95", 1, "PATH: leave a daemon that keeps writing to it", daemonise},
    {NULL, 0, NULL, NULL},
};
