/* Whose socket is it; see sockets.h. From /proc: the table of connections of the session's network
 * has the inode, and the descriptors of its processes lead to it. */
#include "session/sockets.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"

#define TABLE_LIMIT   (4 << 20)
#define PROCESS_LIMIT 512
#define FILE_LIMIT    4096 /* of one process */

/* As the kernel writes it: words of four bytes, in the order of this machine. */
static void write_address(const struct address *address, char ret_text[48]) {
  size_t words = address->family == 6 ? 4 : 1;
  for (size_t i = 0; i < words; i++) {
    uint32_t word;
    memcpy(&word, address->bytes + 4 * i, sizeof word);
    snprintf(ret_text + 8 * i, 9, "%08X", word);
  }
}

static unsigned long find_inode(pid_t init, bool datagrams, const struct address *address,
                                uint16_t port) {
  char path[64], wanted[64], hex[48];
  write_address(address, hex);
  snprintf(wanted, sizeof wanted, ": %s:%04X ", hex, port);
  snprintf(path, sizeof path, "/proc/%d/net/%s%s", (int)init, datagrams ? "udp" : "tcp",
           address->family == 6 ? "6" : "");
  _cleanup_free_ char *table = NULL;
  if (file_read_at(AT_FDCWD, path, TABLE_LIMIT, &table, NULL) < 0)
    return 0;
  const char *line = strstr(table, wanted);
  unsigned long inode = 0;
  if (line)
    (void)sscanf(line + strlen(wanted), "%*s %*s %*s %*s %*s %*s %*s %lu", &inode);
  return inode;
}

static bool has_socket(pid_t pid, unsigned long inode) {
  char path[64], wanted[64], target[64];
  snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  DIR *folder = opendir(path);
  bool found = false;
  struct dirent *entry;
  for (int i = 0; folder && !found && i < FILE_LIMIT && (entry = readdir(folder)); i++) {
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

static pid_t search(pid_t pid, unsigned long inode, unsigned *budget) {
  if (*budget == 0)
    return 0;
  (*budget)--;
  if (has_socket(pid, inode))
    return pid;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  _cleanup_free_ char *children = NULL;
  if (file_read_at(AT_FDCWD, path, 1 << 16, &children, NULL) < 0)
    return 0;
  pid_t found = 0;
  char *rest = NULL;
  for (char *word = strtok_r(children, " \n", &rest); word && !found;
       word = strtok_r(NULL, " \n", &rest))
    found = search((pid_t)atoi(word), inode, budget);
  return found;
}

pid_t socket_owner(pid_t init, bool datagrams, const struct address *address, uint16_t port) {
  unsigned long inode = address->family ? find_inode(init, datagrams, address, port) : 0;
  unsigned budget = PROCESS_LIMIT;
  return inode ? search(init, inode, &budget) : 0;
}
