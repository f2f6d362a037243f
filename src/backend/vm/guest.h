/* The guest's half of sandbox-vm. It is root of a machine of its own; what the machine can reach of
 * the host was decided outside, before QEMU was started. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/vm/wire.h"

struct guest {
  char *request; /* the records; strings below point into it */
  size_t request_size;
  char **modules, **folders, **files, **arguments, **executables, **variables;
  const char *cwd, *hostname, *tmpfs_size, *processes;
  const char *resolver, *names; /* the resolver's configuration: its place and text, or NULL */
  bool network;
  uid_t user;
  gid_t group;
  uint64_t open_files, file_size; /* 0: no limit */
  int control, input, output, error;
  int limits; /* writing "0" here takes the process into the limited group, or -1 */
  bool terminal;
  unsigned short rows, columns;
};

/* Says what failed, with errno if it is not 0, to the host, and stops the machine. */
_Noreturn void guest_fail(const struct guest *guest, int errnum, const char *what,
                          const char *name);

/* request.c: reads /request. */
void guest_read_request(struct guest *guest);

/* devices.c: loads the modules and opens the ports. */
void guest_load_modules(const struct guest *guest);
void guest_open_ports(struct guest *guest);
void guest_read_exactly(const struct guest *guest, int fd, void *data, size_t size);
void guest_write_all(int fd, const void *data, size_t size);
void guest_send(const struct guest *guest, struct vm_message message);

/* network.c: loopback, and the one device if there is one. */
void guest_raise_network(const struct guest *guest);

/* mounts.c: builds the root and makes it "/". */
void guest_mount_early(const struct guest *guest);
void guest_enter_root(const struct guest *guest);
void guest_limit_processes(struct guest *guest);

/* command.c: starts the command; fds are our ends of its input, output and error (-1: none). */
struct guest_command {
  pid_t pid;
  int input, output, error;
};
void guest_start(const struct guest *guest, struct guest_command *ret_command);

/* relay.c: until the command has ended, and then until the host switches us off. */
_Noreturn void guest_relay(const struct guest *guest, struct guest_command *command);

int guest_main(void);
int launch_main(int count, char **words);
