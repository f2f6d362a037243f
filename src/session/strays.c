/* Datagrams that nobody takes; see strays.h. */
#include "session/strays.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"

#define TABLE_SIZE (16 * 1024)

static int open_table(pid_t pid, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/net/%s", (int)pid, name);
  return open(path, O_RDONLY | O_CLOEXEC);
}

struct strays strays_open(pid_t pid) {
  return (struct strays){.tables = {open_table(pid, "snmp"), open_table(pid, "snmp6")}};
}

void strays_close(struct strays *strays) {
  for (size_t i = 0; i < ARRAY_SIZE(strays->tables); i++) {
    if (strays->tables[i] >= 0)
      close(strays->tables[i]);
  }
  *strays = STRAYS_NONE;
}

static bool read_table(int table, char ret_text[TABLE_SIZE]) {
  ssize_t got = table < 0 ? -1 : pread(table, ret_text, TABLE_SIZE - 1, 0);
  ret_text[got > 0 ? got : 0] = '\0';
  return got > 0;
}

/* "Udp: InDatagrams NoPorts ...", and in the line below, under the same heading, the figures. */
static int64_t count4(const char *text) {
  const char *names = strstr(text, "\nUdp: "),
             *figures = names ? strstr(names + 1, "\nUdp: ") : NULL;
  uint64_t taken, strays;
  bool known = names && strncmp(names, "\nUdp: InDatagrams NoPorts ", 26) == 0;
  return known && figures && sscanf(figures, "\nUdp: %lu %lu", &taken, &strays) == 2
             ? (int64_t)strays
             : -1;
}

/* "Udp6NoPorts   0" */
static int64_t count6(const char *text) {
  const char *line = strstr(text, "\nUdp6NoPorts");
  uint64_t strays;
  return line && sscanf(line, "\nUdp6NoPorts %lu", &strays) == 1 ? (int64_t)strays : -1;
}

int64_t strays_count(const struct strays *strays) {
  char text[TABLE_SIZE];
  int64_t four = read_table(strays->tables[0], text) ? count4(text) : -1;
  bool without_six = strays->tables[1] < 0; /* a kernel without IPv6 */
  int64_t six = without_six ? 0 : read_table(strays->tables[1], text) ? count6(text) : -1;
  return four < 0 || six < 0 ? -1 : four + six;
}
