/* Reaching the terminal of the person who started the sandbox. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "attempt.h"

/* The kernel looks at 32 bits of the request: a filter that compares 64 is bypassed with these. */
#define HIGH_BITS 0x100000000UL

static int inject(int fd, unsigned long bits) {
  static const char character = '#';

  if (fd < 0)
    return errno;
  return answer(syscall(SYS_ioctl, fd, TIOCSTI | bits, &character));
}

static int inject_stdin(char **arguments) {
  (void)arguments;
  return inject(0, 0);
}

static int inject_high_bits(char **arguments) {
  (void)arguments;
  return inject(0, HIGH_BITS);
}

static int inject_tty(char **arguments) {
  (void)arguments;
  return inject(open("/dev/tty", O_RDWR | O_CLOEXEC), 0);
}

/* A terminal of our own making: the filter must not depend on which terminal it is. */
static int inject_own_pty(char **arguments) {
  int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), slave, unlock = 0;

  (void)arguments;
  if (master < 0)
    return errno;
  if (ioctl(master, TIOCSPTLCK, &unlock) < 0)
    return errno;
  setsid();
  slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_CLOEXEC);
  if (slave < 0)
    return errno;
  return inject(slave, 0);
}

static int inject_own_pty_in_child(char **arguments) {
  return in_child(inject_own_pty, arguments);
}

static int selection(unsigned long bits) {
  /* 2 sets the selection of a virtual console, 3 pastes it. */
  char set = 2, paste = 3;
  int first = answer(syscall(SYS_ioctl, 0, TIOCLINUX | bits, &set));
  int second = answer(syscall(SYS_ioctl, 0, TIOCLINUX | bits, &paste));

  return first == OPENED ? OPENED : second;
}

static int selection_plain(char **arguments) {
  (void)arguments;
  return selection(0);
}

static int selection_high_bits(char **arguments) {
  (void)arguments;
  return selection(HIGH_BITS);
}

static int say(int fd, const char *text) {
  if (fd < 0)
    return errno;
  return answer(write(fd, text, strlen(text)));
}

static int steal_now(char **arguments) {
  int fd;

  setsid();
  fd = open(arguments[0], O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return errno;
  if (ioctl(fd, TIOCSCTTY, 0) < 0)
    return errno;
  return say(fd, arguments[1]);
}

static int steal(char **arguments) {
  return in_child(steal_now, arguments);
}

static int open_and_say(char **arguments) {
  return say(open(arguments[0], O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), arguments[1]);
}

/* Leaves the terminal without echo, as a password catcher would. */
static int silence(char **arguments) {
  struct termios settings;

  (void)arguments;
  if (tcgetattr(0, &settings) < 0)
    return errno;
  settings.c_lflag &= ~(tcflag_t)(ECHO | ICANON | ISIG);
  return answer(tcsetattr(0, TCSANOW, &settings));
}

const struct attempt terminal_attempts[] = {
    {"E1.stdin", 0, "TIOCSTI on fd 0", inject_stdin},
    {"E1.high", 0, "TIOCSTI with bits above 32 set", inject_high_bits},
    {"E1.tty", 0, "TIOCSTI on /dev/tty", inject_tty},
    {"E1.own", 0, "TIOCSTI on a pty made inside", inject_own_pty_in_child},
    {"E2", 0, "TIOCLINUX set and paste selection", selection_plain},
    {"E2.high", 0, "TIOCLINUX with bits above 32 set", selection_high_bits},
    {"E3", 2, "TTY TEXT: take a terminal as the controlling one and write to it", steal},
    {"E4", 2, "TTY TEXT: write to a terminal", open_and_say},
    {"E4.termios", 0, "switch echo and signals of fd 0 off", silence},
    {NULL, 0, NULL, NULL},
};
