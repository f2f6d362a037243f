/* More commands in a running session; see exec.h. The description was made by the monitor from what
 * a client of the same user sent; its form is checked all the same before it is used. */
#include "engine/exec.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/pty.h"
#include "engine/channel.h"
#include "engine/command.h"

/* The mapped description and the arrays of pointers made from it. */
struct description {
  void *memory, *pointers;
  size_t memory_size, pointers_size;
  const struct exec_header *header;
  const char *folder;
  char **arguments, **script_arguments, **environment, **executables;
};

static void unmap(struct description *description) {
  if (description->memory)
    munmap(description->memory, description->memory_size);
  if (description->pointers)
    munmap(description->pointers, description->pointers_size);
}

static int map_memory(struct description *description, int fd) {
  struct stat status;
  if (fstat(fd, &status) < 0)
    return -errno;
  size_t size = (size_t)status.st_size;
  if (size <= sizeof(struct exec_header) || size > EXEC_PAYLOAD_LIMIT)
    return -EINVAL;
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  if (memory == MAP_FAILED)
    return -errno;
  description->memory = memory;
  description->memory_size = size;
  description->header = memory;
  return ((const char *)memory)[size - 1] == '\0' ? 0 : -EINVAL;
}

/* Takes the next `count` strings into a NULL-terminated array. */
static char **take_strings(char ***free_slots, char **at, const char *end, uint32_t count) {
  char **first = *free_slots;
  for (uint32_t i = 0; i < count; i++) {
    if (*at >= end)
      return NULL;
    *(*free_slots)++ = *at;
    *at += strlen(*at) + 1;
  }
  *(*free_slots)++ = NULL;
  return first;
}

static int split(struct description *description) {
  const struct exec_header *header = description->header;
  size_t total = (size_t)header->argument_count * 2 + header->environment_count +
                 header->executable_count + 16;
  if (header->argument_count == 0 || total > EXEC_PAYLOAD_LIMIT)
    return -EINVAL;
  description->pointers_size = total * sizeof(char *);
  description->pointers = mmap(NULL, description->pointers_size, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (description->pointers == MAP_FAILED) {
    description->pointers = NULL;
    return -ENOMEM;
  }
  char **slots = description->pointers;
  char *at = (char *)description->memory + sizeof *header;
  const char *end = (const char *)description->memory + description->memory_size;
  description->folder = at;
  at += strlen(at) + 1;
  description->arguments = take_strings(&slots, &at, end, header->argument_count);
  description->environment = take_strings(&slots, &at, end, header->environment_count);
  description->executables = take_strings(&slots, &at, end, header->executable_count);
  if (!description->arguments || !description->environment || !description->executables)
    return -EINVAL;
  /* "sh", the file, and the arguments after the first. */
  static char shell[] = "sh";
  description->script_arguments = slots;
  slots[0] = shell;
  slots[1] = NULL;
  memcpy(slots + 2, description->arguments + 1, header->argument_count * sizeof *slots);
  return 0;
}

static int send_terminal(const struct exec_input *input, int master) {
  struct message message = {.kind = MESSAGE_EXEC_TERMINAL, .id = input->id};
  return fd_send(input->channel, &master, 1, &message, sizeof message);
}

static int arrange(const struct exec_input *input, const struct description *description,
                   struct command *command, int *ret_terminal) {
  *command = (struct command){
      .arguments = description->arguments,
      .script_arguments = description->script_arguments,
      .environment = description->environment,
      .executables = description->executables,
      .folder = description->folder,
      .terminal = -1,
      .mask = input->mask,
      .rlimits = input->rlimits,
      .announced = &input->report->announced,
  };
  for (int fd = 0; fd < 3; fd++)
    command->descriptors[fd] = input->fds[fd + 1];
  if (!description->header->terminal)
    return input->fds[1] < 0 || input->fds[2] < 0 || input->fds[3] < 0 ? -EBADF : 0;
  int master, result = pty_open(&master, ret_terminal);
  if (result < 0)
    return result;
  result = send_terminal(input, master);
  close(master);
  command->terminal = *ret_terminal;
  for (int fd = 0; fd < 3; fd++)
    command->descriptors[fd] = *ret_terminal;
  return result;
}

static int spawn(struct exec_table *table, const struct exec_input *input,
                 const struct command *command) {
  struct start_report *report = input->report;
  pid_t waited = command_spawn(command, &report->spawn, &report->spawned);
  if (waited < 0)
    return -report->spawn.errnum;
  table->items[table->count].waited = waited;
  table->items[table->count].command = report->spawned;
  table->items[table->count++].id = input->id;
  return report->spawned;
}

int exec_start(struct exec_table *table, const struct exec_input *input) {
  __attribute__((cleanup(unmap))) struct description description = {0};
  if (table->count >= EXEC_LIMIT)
    return -EAGAIN;
  if (input->fds[0] < 0)
    return -EBADF;
  int result = map_memory(&description, input->fds[0]);
  if (result == 0)
    result = split(&description);
  if (result < 0)
    return result;
  struct command command;
  _cleanup_close_ int terminal = -1;
  result = arrange(input, &description, &command, &terminal);
  return result < 0 ? result : spawn(table, input, &command);
}

bool exec_table_end(struct exec_table *table, pid_t pid, uint32_t *ret_id) {
  for (size_t i = 0; i < table->count; i++) {
    if (table->items[i].waited != pid)
      continue;
    *ret_id = table->items[i].id;
    table->items[i] = table->items[--table->count];
    return true;
  }
  return false;
}

void exec_table_signal(const struct exec_table *table, uint32_t id, int signal) {
  for (size_t i = 0; i < table->count; i++) {
    if (table->items[i].id == id)
      kill(-table->items[i].command, signal);
  }
}
