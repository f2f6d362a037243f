/* A file as stdin by way of a pipe; see exec-input.h. */
#include "cli/exec-input.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "core/child.h"
#include "core/cleanup.h"

#define PORTION (64 << 10)

/* The signals that the relay passes on are blocked here, too; this one ends with the relay, with
 * the file, or when nobody can read any more. */
static _Noreturn void feed(int writer) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (sendfile(writer, STDIN_FILENO, NULL, PORTION) > 0)
    ;
  _exit(0);
}

int exec_input_open(struct exec_input *ret_input, struct sb_error *error) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0)
    return sb_fail_errno(error, "making a pipe for stdin");
  pid_t feeder = fork();
  if (feeder == 0) {
    close(ends[0]);
    feed(ends[1]);
  }
  close(ends[1]);
  if (feeder < 0) {
    close(ends[0]);
    return sb_fail_errno(error, "starting a process that feeds stdin");
  }
  *ret_input = (struct exec_input){.reader = ends[0], .feeder = feeder};
  return 0;
}

/* `while read line; do sandbox exec SID -- …; done < list` goes on with the next line. */
void exec_input_close(struct exec_input *input) {
  int unread = 0;
  if (input->feeder <= 0)
    return;
  kill(input->feeder, SIGKILL);
  (void)child_wait(input->feeder);
  if (ioctl(input->reader, FIONREAD, &unread) == 0 && unread > 0)
    lseek(STDIN_FILENO, -unread, SEEK_CUR);
  close(input->reader);
  *input = (struct exec_input){.reader = -1};
}
