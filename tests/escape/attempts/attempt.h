/* One attempt to get out of, or leak from, a sandbox per function. The program only tries and
 * says what the kernel answered; whether that answer is right is for the tests to judge. */
#pragma once

#include <errno.h>
#include <stddef.h>

/* What an attempt returns: 0 if it succeeded, an errno if it was refused, or DENIED_EMPTY if the
 * call worked but there was nothing behind it (a mask). */
enum { OPENED = 0, DENIED_EMPTY = -1 };

struct attempt {
  const char *id;   /* the row of the corpus, or a verb that several rows share */
  int arguments;    /* how many are needed */
  const char *what; /* shown by `attempt list` */
  int (*run)(char **arguments);
};

/* Ends the program: this host cannot do the thing, sandboxed or not. */
void unsupported(const char *why) __attribute__((noreturn));
/* Remembers a word that is printed after OPEN. */
void detail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* 0 if `result` is not negative, else the errno. */
int answer(long result);
/* For calls that check permission first and arguments, wrong on purpose, after that: any answer
 * but "not allowed" and "not there" means that the call was let through. */
int reached(long result);
/* Reads something from the descriptor and closes it: OPENED, DENIED_EMPTY or an errno. */
int read_some(int fd);
/* Opens and reads a path. */
int read_path(const char *path);
/* Runs the function in a child, so that what it does to itself ends with it. */
int in_child(int (*run)(char **arguments), char **arguments);
/* A number from an argument; ends the program if it is none. */
long number(const char *text);

/* Each table ends with a NULL id. */
extern const struct attempt terminal_attempts[];
extern const struct attempt secret_attempts[];
extern const struct attempt race_attempts[];
extern const struct attempt uring_attempts[];
extern const struct attempt persistence_attempts[];
extern const struct attempt mount_attempts[];
extern const struct attempt proc_attempts[];
extern const struct attempt process_attempts[];
extern const struct attempt surface_attempts[];
extern const struct attempt ipc_attempts[];
extern const struct attempt network_attempts[];
