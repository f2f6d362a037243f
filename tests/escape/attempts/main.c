/* `attempt ID [ARGUMENT…]`: tries exactly one thing and prints one line, OPEN, DENIED errno or
 * UNSUPPORTED why. The exit status is 0 whenever that line was printed. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attempt.h"

static const struct attempt *const tables[] = {
    terminal_attempts, secret_attempts,  race_attempts,        uring_attempts,
    mount_attempts,    proc_attempts,    process_attempts,     surface_attempts,
    ipc_attempts,      network_attempts, persistence_attempts,
};
enum { TABLE_COUNT = sizeof(tables) / sizeof(tables[0]) };

static char detail_text[512];

void detail(const char *format, ...) {
  va_list list;

  va_start(list, format);
  vsnprintf(detail_text, sizeof(detail_text), format, list);
  va_end(list);
}

void unsupported(const char *why) {
  printf("UNSUPPORTED %s\n", why);
  exit(0);
}

int answer(long result) {
  return result < 0 ? errno : OPENED;
}

int reached(long result) {
  if (result >= 0)
    return OPENED;
  if (errno == EPERM || errno == ENOSYS || errno == EACCES || errno == EAFNOSUPPORT)
    return errno;
  detail("reached: %s", strerrorname_np(errno));
  return OPENED;
}

long number(const char *text) {
  char *end;
  long value = strtol(text, &end, 0);

  if (*text == '\0' || *end != '\0') {
    fprintf(stderr, "attempt: not a number: %s\n", text);
    exit(2);
  }
  return value;
}

int read_some(int fd) {
  char buffer[256];
  ssize_t length;

  if (fd < 0)
    return errno;
  length = read(fd, buffer, sizeof(buffer) - 1);
  if (length < 0) {
    int saved = errno;
    close(fd);
    return saved;
  }
  close(fd);
  if (length == 0)
    return DENIED_EMPTY;
  buffer[length] = '\0';
  buffer[strcspn(buffer, "\n")] = '\0';
  detail("%s", buffer);
  return OPENED;
}

int read_path(const char *path) {
  return read_some(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

/* The child's answer travels as its detail and result through a pipe. */
int in_child(int (*run)(char **arguments), char **arguments) {
  struct {
    int result;
    char text[sizeof(detail_text)];
  } message = {.result = ECHILD};
  int ends[2], status;
  pid_t child;

  if (pipe(ends) < 0)
    return errno;
  child = fork();
  if (child < 0)
    return errno;
  if (child == 0) {
    close(ends[0]);
    message.result = run(arguments);
    memcpy(message.text, detail_text, sizeof(detail_text));
    if (write(ends[1], &message, sizeof(message)) < 0)
      _exit(1);
    _exit(0);
  }
  close(ends[1]);
  if (read(ends[0], &message, sizeof(message)) < 0)
    message.result = errno;
  close(ends[0]);
  if (waitpid(child, &status, 0) < 0)
    return errno;
  memcpy(detail_text, message.text, sizeof(detail_text));
  return message.result;
}

static const struct attempt *find(const char *id) {
  for (int i = 0; i < TABLE_COUNT; i++)
    for (const struct attempt *entry = tables[i]; entry->id; entry++)
      if (strcmp(entry->id, id) == 0)
        return entry;
  return NULL;
}

static int list(void) {
  for (int i = 0; i < TABLE_COUNT; i++)
    for (const struct attempt *entry = tables[i]; entry->id; entry++)
      printf("%-16s %d  %s\n", entry->id, entry->arguments, entry->what);
  return 0;
}

static int report(int result) {
  if (result == OPENED)
    printf("OPEN %s\n", detail_text);
  else if (result == DENIED_EMPTY)
    printf("DENIED EMPTY\n");
  else if (strerrorname_np(result))
    printf("DENIED %s\n", strerrorname_np(result));
  else
    printf("DENIED %d\n", result);
  return 0;
}

int main(int argc, char **argv) {
  const struct attempt *entry;

  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc == 2 && strcmp(argv[1], "list") == 0)
    return list();
  entry = argc > 1 ? find(argv[1]) : NULL;
  if (!entry || argc - 2 < entry->arguments) {
    fprintf(stderr, "attempt: %s\n", entry ? "too few arguments" : "no such attempt");
    return 2;
  }
  return report(entry->run(argv + 2));
}
