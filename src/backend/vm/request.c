/* Reads what the guest has to do. The file was written by our own host half: what is wrong with it
 * is a bug, not an attack. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/vm/guest.h"

static void append(const struct guest *guest, char ***list, char *string) {
  size_t count = 0;
  while (*list && (*list)[count])
    count++;
  char **grown = realloc(*list, (count + 2) * sizeof *grown);
  if (!grown)
    guest_fail(guest, ENOMEM, "reading", "/request");
  grown[count] = string;
  grown[count + 1] = NULL;
  *list = grown;
}

static void read_file(struct guest *guest) {
  int fd = open("/request", O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) < 0)
    guest_fail(guest, errno, "opening", "/request");
  guest->request_size = (size_t)status.st_size;
  guest->request = calloc(1, guest->request_size + 1);
  if (!guest->request)
    guest_fail(guest, ENOMEM, "reading", "/request");
  guest_read_exactly(guest, fd, guest->request, guest->request_size);
  close(fd);
}

static void take(struct guest *guest, char letter, char *value) {
  switch ((enum vm_record)letter) {
  case VM_RECORD_MODULE:
    append(guest, &guest->modules, value);
    return;
  case VM_RECORD_FOLDER:
    append(guest, &guest->folders, value);
    return;
  case VM_RECORD_FILE:
    append(guest, &guest->files, value);
    return;
  case VM_RECORD_ARGUMENT:
    append(guest, &guest->arguments, value);
    return;
  case VM_RECORD_EXECUTABLE:
    append(guest, &guest->executables, value);
    return;
  case VM_RECORD_VARIABLE:
    append(guest, &guest->variables, value);
    return;
  case VM_RECORD_CWD:
    guest->cwd = value;
    return;
  case VM_RECORD_HOSTNAME:
    guest->hostname = value;
    return;
  case VM_RECORD_TMPFS_SIZE:
    guest->tmpfs_size = value;
    return;
  case VM_RECORD_PROCESSES:
    guest->processes = value;
    return;
  case VM_RECORD_NETWORK:
    guest->network = true;
    return;
  case VM_RECORD_RESOLVER:
    guest->resolver = value;
    return;
  case VM_RECORD_NAMES:
    guest->names = value;
    return;
  case VM_RECORD_USER:
    guest->user = (uid_t)strtoul(value, NULL, 10);
    return;
  case VM_RECORD_GROUP:
    guest->group = (gid_t)strtoul(value, NULL, 10);
    return;
  case VM_RECORD_OPEN_FILES:
    guest->open_files = strtoull(value, NULL, 10);
    return;
  case VM_RECORD_FILE_SIZE:
    guest->file_size = strtoull(value, NULL, 10);
    return;
  }
}

void guest_read_request(struct guest *guest) {
  read_file(guest);
  char *end = guest->request + guest->request_size;
  for (char *at = guest->request; at < end; at += strlen(at) + 1)
    take(guest, at[0], at + 1);
}
