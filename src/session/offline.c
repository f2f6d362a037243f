/* What the kernel counts in a session without a network; see offline.h. */
#include "session/offline.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "session/monitor.h"

#define SHORT_NS       (30ull * 1000 * 1000)
#define FEW_FILES      256 /* then others need them more */
#define COUNTERS_LIMIT (64 << 10)

static const char *const tables[] = {"snmp", "snmp6"};

static bool has_few_files(void) {
  struct rlimit files;
  return getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur < FEW_FILES;
}

void offline_step(struct monitor *monitor, uint64_t now) {
  struct offline *offline = &monitor->offline;
  if (offline->opened || monitor->engine.init <= 0 || now < monitor->started_ns + SHORT_NS ||
      monitor->request->plan->network.mode != NETWORK_NONE)
    return;
  offline->opened = true;
  for (size_t i = 0; i < ARRAY_SIZE(tables) && !has_few_files(); i++) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/net/%s", monitor->engine.init, tables[i]);
    offline->counters[i] = open(path, O_RDONLY | O_CLOEXEC);
  }
}

/* "Ip: Forwarding … OutNoRoutes …", and the numbers in the next line in the same order. */
static unsigned long long count_old(char *text) {
  char *values = strstr(text, "\nIp: "), *words = text, *rest_words = NULL, *rest_values = NULL;
  if (!values || strncmp(text, "Ip: ", 4) != 0)
    return 0;
  *values++ = '\0';
  values[strcspn(values, "\n")] = '\0';
  char *word = strtok_r(words, " ", &rest_words), *value = strtok_r(values, " ", &rest_values);
  while (word && value && strcmp(word, "OutNoRoutes") != 0) {
    word = strtok_r(NULL, " ", &rest_words);
    value = strtok_r(NULL, " ", &rest_values);
  }
  return word && value ? strtoull(value, NULL, 10) : 0;
}

/* A line for each: "Ip6OutNoRoutes   2". */
static unsigned long long count_new(char *text) {
  static const char name[] = "Ip6OutNoRoutes";
  const char *line = strstr(text, name);
  return line ? strtoull(line + strlen(name), NULL, 10) : 0;
}

bool offline_end(struct monitor *monitor) {
  static unsigned long long (*const count[])(char *text) = {count_old, count_new};
  struct offline *offline = &monitor->offline;
  bool tried = false;
  for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
    char text[COUNTERS_LIMIT];
    ssize_t length =
        offline->counters[i] < 0 ? -1 : pread(offline->counters[i], text, sizeof text - 1, 0);
    text[length < 0 ? 0 : length] = '\0';
    tried |= count[i](text) > 0;
    cleanup_close_fd(&offline->counters[i]);
  }
  return tried;
}
