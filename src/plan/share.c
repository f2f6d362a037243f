/* A plan in shared memory; see share.h. One bump allocator, one pass. */
#include "plan/share.h"

#include <string.h>
#include <sys/mman.h>

/* Arguments and environment may have 2 MB by the kernel's own limit, twice; the rest is paths. */
#define SHARED_SIZE ((size_t)64 << 20)

struct plan_area {
  char *at, *end;
  bool full;
};

struct plan_area *plan_area_new(void) {
  char *memory = mmap(NULL, SHARED_SIZE, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return NULL;
  struct plan_area *area = (struct plan_area *)memory;
  *area = (struct plan_area){.at = memory, .end = memory + SHARED_SIZE};
  (void)plan_area_take(area, sizeof *area);
  return area;
}

void plan_area_free(struct plan_area *area) {
  if (area)
    munmap(area, SHARED_SIZE);
}

void *plan_area_take(struct plan_area *area, size_t size) {
  size_t rounded = (size + 15) & ~(size_t)15;
  if (area->full || rounded > (size_t)(area->end - area->at)) {
    area->full = true;
    return NULL;
  }
  void *memory = area->at;
  area->at += rounded;
  return memory;
}

static char *copy_string(struct plan_area *area, const char *string) {
  if (!string)
    return NULL;
  size_t size = strlen(string) + 1;
  char *copy = plan_area_take(area, size);
  return copy ? memcpy(copy, string, size) : NULL;
}

static struct strv copy_list(struct plan_area *area, const struct strv *list) {
  struct strv copy = {.items = plan_area_take(area, (list->count + 1) * sizeof(char *)),
                      .count = list->count};
  if (!copy.items)
    return (struct strv){0};
  for (size_t i = 0; i < list->count; i++)
    copy.items[i] = copy_string(area, list->items[i]);
  copy.items[list->count] = NULL;
  return copy;
}

static struct operation *copy_operations(struct plan_area *area, const struct plan *plan) {
  struct operation *copies = plan_area_take(area, plan->operation_count * sizeof *copies);
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

static struct landlock_rule *copy_rules(struct plan_area *area,
                                        const struct landlock_plan *landlock) {
  struct landlock_rule *copies = plan_area_take(area, landlock->rule_count * sizeof *copies);
  for (size_t i = 0; copies && i < landlock->rule_count; i++) {
    copies[i] = landlock->rules[i];
    copies[i].path = copy_string(area, landlock->rules[i].path);
  }
  return copies;
}

const struct plan *plan_share(const struct plan *plan, struct plan_area *area,
                              struct sb_error *error) {
  struct plan *shared = plan_area_take(area, sizeof *shared);
  struct plan copy = *plan;
  copy.operations = copy_operations(area, plan);
  copy.arguments = copy_list(area, &plan->arguments);
  copy.script_arguments = copy_list(area, &plan->script_arguments);
  copy.executables = copy_list(area, &plan->executables);
  copy.environment = copy_list(area, &plan->environment);
  copy.publish = copy_list(area, &plan->publish);
  copy.warnings = copy.notes = copy.hidden = (struct strv){0};
  copy.touched_read = copy.touched_write = copy.hidden; /* for people, who are outside */
  copy.working_folder = copy_string(area, plan->working_folder);
  copy.hostname = copy_string(area, plan->hostname);
  copy.network.rules = NULL; /* for the relay, which is outside */
  copy.sockets = NULL;       /* for the connector, likewise */
  copy.socket_count = 0;
  copy.landlock.rules = copy_rules(area, &plan->landlock);
  if (area->full) {
    sb_fail(error, SB_CODE_SYSTEM, 0, "arguments, environment and paths are too long together");
    sb_hint(error, "pass a file instead of so many words");
    return NULL;
  }
  *shared = copy;
  return shared;
}
