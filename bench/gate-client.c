/* What bench/gate runs inside and outside. `open PATH`, `stat PATH` and `run COMMAND…` do it as
 * often as each line of the input says, and print nanoseconds for each time; `wait PATH` opens it
 * once and prints the time at which that returned; `filtered COMMAND…` is for comparison: it runs a
 * command under a seccomp filter that allows everything. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

static int open_once(char **words) {
  return open(words[0], O_RDONLY | O_CLOEXEC) < 0 ? -1 : 0;
}

static int stat_once(char **words) {
  struct stat status;
  return stat(words[0], &status);
}

static int run_once(char **words) {
  pid_t child = fork();
  if (child == 0) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execvp(words[0], words);
    _exit(127);
  }
  int status;
  return child < 0 || waitpid(child, &status, 0) < 0 || status != 0 ? -1 : 0;
}

static int take_turns(int (*once)(char **), char **words) {
  char line[32];
  setlinebuf(stdout);
  while (fgets(line, sizeof line, stdin)) {
    long count = atol(line);
    uint64_t start = now_ns();
    for (long i = 0; i < count; i++) {
      if (once(words) < 0)
        give_up(words[0]);
    }
    printf("%.1f\n", (double)(now_ns() - start) / (double)count);
    close_range(STDERR_FILENO + 1, ~0U, 0); /* closing is another call, and not counted */
  }
  return 0;
}

static int wait_for(char **words) {
  int result = open_once(words);
  printf("%llu\n", (unsigned long long)now_ns());
  return result;
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
  static const struct {
    const char *name;
    int (*once)(char **);
  } turns[] = {{"open", open_once}, {"stat", stat_once}, {"run", run_once}};
  for (size_t i = 0; argc > 2 && i < sizeof turns / sizeof turns[0]; i++) {
    if (strcmp(argv[1], turns[i].name) == 0)
      return take_turns(turns[i].once, argv + 2);
  }
  if (argc == 3 && strcmp(argv[1], "wait") == 0)
    return wait_for(argv + 2);
  if (argc > 2 && strcmp(argv[1], "filtered") == 0)
    return run_filtered(argv + 2);
  fprintf(stderr, "gate-client open|stat|wait PATH, run|filtered COMMAND...\n");
  return 2;
}
