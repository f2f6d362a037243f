/* Whose socket is it; see sockets.h. From /proc: the table of connections of the session's network
 * has the inode, and the descriptors of its processes lead to it. */
#include "session/sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"

/* The workload decides how many connections, processes and descriptors there are to be looked at,
 * and meanwhile the monitor serves nobody else: some milliseconds, and it is not found. */
#define STEP_LIMIT     4096 /* lines of the table and descriptors */
#define PROCESS_STEPS  16   /* what a process costs without its descriptors */
#define CHILDREN_LIMIT (1 << 16)

struct search {
  unsigned long inode;
  unsigned steps_left;
};

static bool may_step(struct search *search, unsigned steps) {
  if (search->steps_left < steps)
    return false;
  search->steps_left -= steps;
  return true;
}

/* As the kernel writes it: words of four bytes, in the order of this machine. */
static void write_address(const struct address *address, char ret_text[48]) {
  size_t words = address->family == 6 ? 4 : 1;
  for (size_t i = 0; i < words; i++) {
    uint32_t word;
    memcpy(&word, address->bytes + 4 * i, sizeof word);
    snprintf(ret_text + 8 * i, 9, "%08X", word);
  }
}

static bool find_inode(struct search *search, pid_t init, bool datagrams,
                       const struct address *address, uint16_t port) {
  char path[64], wanted[64], hex[48], text[512];
  write_address(address, hex);
  snprintf(wanted, sizeof wanted, ": %s:%04X ", hex, port);
  snprintf(path, sizeof path, "/proc/%d/net/%s%s", (int)init, datagrams ? "udp" : "tcp",
           address->family == 6 ? "6" : "");
  FILE *table = fopen(path, "re");
  const char *found = NULL;
  while (table && !found && may_step(search, 1) && fgets(text, sizeof text, table))
    found = strstr(text, wanted);
  if (table)
    fclose(table);
  return found &&
         sscanf(found + strlen(wanted), "%*s %*s %*s %*s %*s %*s %*s %lu", &search->inode) == 1;
}

static bool has_socket(struct search *search, pid_t pid) {
  char path[64], wanted[64], target[64];
  snprintf(wanted, sizeof wanted, "socket:[%lu]", search->inode);
  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  DIR *folder = opendir(path);
  bool found = false;
  struct dirent *entry;
  while (folder && !found && may_step(search, 1) && (entry = readdir(folder))) {
    ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
    if (length <= 0)
      continue;
    target[length] = '\0';
    found = strcmp(target, wanted) == 0;
  }
  if (folder)
    closedir(folder);
  return found;
}

static pid_t find_owner(struct search *search, pid_t pid) {
  if (!may_step(search, PROCESS_STEPS))
    return 0;
  if (has_socket(search, pid))
    return pid;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  _cleanup_free_ char *children = NULL;
  if (file_read_at(AT_FDCWD, path, CHILDREN_LIMIT, &children, NULL) < 0)
    return 0;
  pid_t found = 0;
  char *rest = NULL;
  for (char *word = strtok_r(children, " \n", &rest); word && !found;
       word = strtok_r(NULL, " \n", &rest))
    found = find_owner(search, (pid_t)atoi(word));
  return found;
}

pid_t socket_owner(pid_t init, bool datagrams, const struct address *address, uint16_t port) {
  struct search search = {.steps_left = STEP_LIMIT};
  bool known = address->family && find_inode(&search, init, datagrams, address, port);
  return known && search.inode ? find_owner(&search, init) : 0;
}
