/* A plan in shared memory; see share.h. One bump allocator, one pass. */
#include "plan/share.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* Arguments and environment may have 2 MB by the kernel's own limit, twice; the rest is paths. */
#define SHARED_SIZE ((size_t)64 << 20)

struct area {
  char *at, *end;
  bool full;
};

struct plan *plan_shared_new(void) {
  void *memory = mmap(NULL, SHARED_SIZE, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

void plan_shared_free(struct plan *shared) {
  if (shared)
    munmap(shared, SHARED_SIZE);
}

static void *take(struct area *area, size_t size) {
  size_t rounded = (size + 15) & ~(size_t)15;
  if (area->full || rounded > (size_t)(area->end - area->at)) {
    area->full = true;
    return NULL;
  }
  void *memory = area->at;
  area->at += rounded;
  return memory;
}

static char *copy_string(struct area *area, const char *string) {
  if (!string)
    return NULL;
  size_t size = strlen(string) + 1;
  char *copy = take(area, size);
  return copy ? memcpy(copy, string, size) : NULL;
}

static struct strv copy_list(struct area *area, const struct strv *list) {
  struct strv copy = {.items = take(area, (list->count + 1) * sizeof(char *)),
                      .count = list->count};
  if (!copy.items)
    return (struct strv){0};
  for (size_t i = 0; i < list->count; i++)
    copy.items[i] = copy_string(area, list->items[i]);
  copy.items[list->count] = NULL;
  return copy;
}

static struct operation *copy_operations(struct area *area, const struct plan *plan) {
  struct operation *copies = take(area, plan->operation_count * sizeof *copies);
  for (size_t i = 0; copies && i < plan->operation_count; i++) {
    copies[i] = plan->operations[i];
    copies[i].path = copy_string(area, plan->operations[i].path);
    copies[i].source = copy_string(area, plan->operations[i].source);
    copies[i].upper = copy_string(area, plan->operations[i].upper);
    copies[i].text = copy_string(area, plan->operations[i].text);
    copies[i].why = copy_string(area, plan->operations[i].why);
  }
  return copies;
}

static struct landlock_rule *copy_rules(struct area *area, const struct landlock_plan *landlock) {
  struct landlock_rule *copies = take(area, landlock->rule_count * sizeof *copies);
  for (size_t i = 0; copies && i < landlock->rule_count; i++) {
    copies[i] = landlock->rules[i];
    copies[i].path = copy_string(area, landlock->rules[i].path);
  }
  return copies;
}

int plan_share(const struct plan *plan, struct plan *shared, struct sb_error *error) {
  char *start = (char *)shared;
  struct area area = {.at = start + ((sizeof *shared + 15) & ~(size_t)15),
                      .end = start + SHARED_SIZE};
  struct plan copy = *plan;
  copy.operations = copy_operations(&area, plan);
  copy.arguments = copy_list(&area, &plan->arguments);
  copy.script_arguments = copy_list(&area, &plan->script_arguments);
  copy.executables = copy_list(&area, &plan->executables);
  copy.environment = copy_list(&area, &plan->environment);
  copy.warnings = copy.notes = copy.hidden = (struct strv){0};
  copy.touched_read = copy.touched_write = copy.publish =
      copy.hidden; /* for people, who are outside */
  copy.working_folder = copy_string(&area, plan->working_folder);
  copy.hostname = copy_string(&area, plan->hostname);
  copy.network.rules = NULL; /* for the relay, which is outside */
  copy.sockets = NULL;       /* for the connector, likewise */
  copy.socket_count = 0;
  copy.landlock.rules = copy_rules(&area, &plan->landlock);
  if (area.full) {
    sb_fail(error, SB_CODE_SYSTEM, 0, "arguments, environment and paths are too long together");
    return sb_hint(error, "pass a file instead of so many words");
  }
  *shared = copy;
  return 0;
}
