/* What bench/gate runs inside and outside: `open N PATH` and `stat N PATH` print nanoseconds per
 * call, `time N COMMAND…` prints those of each run on stderr, `wait PATH` opens it once and prints
 * the time at which that returned; `filtered COMMAND…` is for comparison: it runs a command under a
 * seccomp filter that allows everything. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

static int open_once(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  return fd < 0 ? -1 : close(fd);
}

static int stat_once(const char *path) {
  struct stat status;
  return stat(path, &status);
}

static int repeat(int (*call)(const char *), long count, const char *path) {
  uint64_t start = now_ns();
  for (long i = 0; i < count; i++) {
    if (call(path) < 0) {
      perror(path);
      return 1;
    }
  }
  printf("%.1f\n", (double)(now_ns() - start) / (double)count);
  return 0;
}

static int run(char **command, int null) {
  pid_t child = fork();
  if (child == 0) {
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execvp(command[0], command);
    _exit(127);
  }
  int status;
  return child < 0 || waitpid(child, &status, 0) < 0 ? 1 : status;
}

static int time_runs(long count, char **command) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (long i = 0; i < count; i++) {
    uint64_t start = now_ns();
    if (run(command, null) != 0)
      return 1;
    fprintf(stderr, "%llu\n", (unsigned long long)(now_ns() - start));
  }
  return 0;
}

static int run_filtered(char **command) {
  struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {1, &allow};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
    execvp(command[0], command);
  perror(command[0]);
  return 127;
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "open") == 0)
    return repeat(open_once, atol(argv[2]), argv[3]);
  if (argc == 4 && strcmp(argv[1], "stat") == 0)
    return repeat(stat_once, atol(argv[2]), argv[3]);
  if (argc == 3 && strcmp(argv[1], "wait") == 0) {
    int result = open_once(argv[2]);
    printf("%llu\n", (unsigned long long)now_ns());
    return result < 0;
  }
  if (argc > 3 && strcmp(argv[1], "time") == 0)
    return time_runs(atol(argv[2]), argv + 3);
  if (argc > 2 && strcmp(argv[1], "filtered") == 0)
    return run_filtered(argv + 2);
  fprintf(stderr,
          "gate-client open|stat N PATH, time N COMMAND..., wait PATH, filtered COMMAND...\n");
  return 2;
}
