/* step-start OUTPUT PROGRAM ARGUMENT…: runs a program and writes down where it and its children
 * have been, instruction by instruction, until each of them executes another one: offsets from its
 * beginning, in the order of the first time. For tools/order-start; in C, as millions of steps take
 * long enough. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLACES (1UL << 24) /* bytes that a program may have */

static unsigned char seen[PLACES];
static unsigned long base, end; /* of the program; 0: it has not been started yet */

static void start(char **argv) {
  int null = open("/dev/null", O_RDWR);
  if (null < 0 || dup2(null, STDERR_FILENO) < 0 || ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
    _exit(125);
  raise(SIGSTOP);
  execv(argv[0], argv);
  _exit(127);
}

static bool find_program(pid_t pid, const char *program) {
  char path[64], line[4096];
  snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
  FILE *maps = fopen(path, "re");
  while (maps && fgets(line, sizeof line, maps)) {
    unsigned long from, to;
    if (!strstr(line, program) || sscanf(line, "%lx-%lx", &from, &to) != 2)
      continue;
    base = base ? base : from;
    end = to;
  }
  if (maps)
    fclose(maps);
  return base > 0 && end - base <= PLACES;
}

static void note(pid_t pid, FILE *output) {
  struct user_regs_struct registers;
  if (ptrace(PTRACE_GETREGS, pid, NULL, &registers) < 0 || registers.rip < base ||
      registers.rip >= end || seen[registers.rip - base])
    return;
  seen[registers.rip - base] = 1;
  fprintf(output, "%lx\n", (unsigned long)registers.rip - base);
}

/* Lets a stopped process take its next step. */
static void step(pid_t pid, int status, const char *program, FILE *output) {
  bool executed = status >> 16 == PTRACE_EVENT_EXEC;
  int signal = WSTOPSIG(status);
  if (executed && base) {
    ptrace(PTRACE_DETACH, pid, NULL, NULL);
    return;
  }
  if (executed && !find_program(pid, program)) {
    fprintf(stderr, "step-start: %s: not found in its own memory\n", program);
    exit(1);
  }
  if (signal == SIGTRAP || signal == SIGSTOP) {
    note(pid, output);
    signal = 0;
  }
  ptrace(PTRACE_SINGLESTEP, pid, NULL, (void *)(long)signal);
}

int main(int argc, char **argv) {
  FILE *output = argc > 2 ? fopen(argv[1], "we") : NULL;
  if (!output) {
    fprintf(stderr, "step-start OUTPUT PROGRAM ARGUMENT...\n");
    return 2;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  (void)sched_setaffinity(0, sizeof one,
                          &one); /* waking another processor takes longer than a step */
  pid_t child = fork();
  if (child == 0)
    start(argv + 2);
  int status;
  waitpid(child, &status, 0);
  ptrace(PTRACE_SETOPTIONS, child, NULL,
         (void *)(PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                  PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL));
  ptrace(PTRACE_CONT, child, NULL, NULL);
  for (pid_t pid; (pid = waitpid(-1, &status, __WALL)) > 0;) {
    if (WIFSTOPPED(status))
      step(pid, status, argv[2], output);
  }
  return fclose(output) == 0 && base ? 0 : 1;
}
