/* What bench/gate runs inside and outside: `open PATH` and `stat PATH` make as many calls as each
 * line of the input says and print nanoseconds per call, `time N COMMAND…` prints those of each run
 * on stderr, `wait PATH` opens it once and prints the time at which that returned; `filtered
 * COMMAND…` is for comparison: it runs a command under a seccomp filter that allows everything. */
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
  return open(path, O_RDONLY | O_CLOEXEC) < 0 ? -1 : 0;
}

static int stat_once(const char *path) {
  struct stat status;
  return stat(path, &status);
}

/* Slices of a fraction of a millisecond, so that others of their kind can be timed in between: what
 * disturbs the machine for longer disturbs them all. */
static int slices(int (*call)(const char *), const char *path) {
  char line[32];
  setlinebuf(stdout);
  while (fgets(line, sizeof line, stdin)) {
    long count = atol(line);
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++) {
      if (call(path) < 0)
        give_up(path);
    }
    printf("%.1f\n", (double)(now_ns() - start) / (double)count);
    close_range(STDERR_FILENO + 1, ~0U, 0); /* closing is another call, and not counted */
  }
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
  if (argc == 3 && strcmp(argv[1], "open") == 0)
    return slices(open_once, argv[2]);
  if (argc == 3 && strcmp(argv[1], "stat") == 0)
    return slices(stat_once, argv[2]);
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
          "gate-client open|stat PATH, time N COMMAND..., wait PATH, filtered COMMAND...\n");
  return 2;
}
