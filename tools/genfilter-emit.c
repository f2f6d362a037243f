/* Classic BPF for tables of numbers: a binary search, all tables sharing the code of the argument
 * rules and the returns. Short programs matter: the kernel takes about 0.25 us per instruction to
 * install one, at each start of a workload. Calls without argument rules touch nothing but the
 * architecture and the number, so the kernel (5.11) answers them from a bitmap. */
#include "genfilter.h"

#include <linux/seccomp.h>

#define LOAD(field)                                                                                \
  (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(action)      (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, action)
#define AND(mask)           (struct sock_filter) BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask)
#define SKIP(count)         (struct sock_filter) BPF_STMT(BPF_JMP | BPF_JA, count)
#define JUMP(test, k, t, f) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_K | (test), k, t, f)

#define REACH      250 /* of a conditional jump: 255, less what may come in between */
#define EXCEPTIONS 4   /* tested one after the other, before a binary search pays */

/* Where a jump leads: to a place in the program, counted from its end, and what is there. A return
 * that is out of reach is repeated. */
struct target {
  enum { TARGET_CODE, TARGET_RETURN } kind;
  uint32_t action;
  size_t place;
};

struct emitter {
  struct program *program;
  struct variant variant;
  struct target returns[16]; /* the nearest return of each action */
  size_t return_count;
  struct {
    const struct rule *rules;
    struct target target;
  } blocks[64]; /* the code of each list of rules */
  size_t block_count;
};

static size_t emit(struct emitter *emitter, struct sock_filter instruction) {
  struct program *program = emitter->program;
  if (program->length == BPF_MAXINSNS)
    die("the filter has more than %d instructions", BPF_MAXINSNS);
  program->code[program->length] = instruction;
  return program->length++;
}

static bool in_reach(const struct emitter *emitter, size_t place) {
  return emitter->program->length - place <= REACH;
}

static size_t reach_return(struct emitter *emitter, uint32_t action) {
  size_t i = 0;
  while (i < emitter->return_count && emitter->returns[i].action != action)
    i++;
  if (i == sizeof emitter->returns / sizeof emitter->returns[0])
    die("too many different actions");
  struct target *target = &emitter->returns[i];
  if (i == emitter->return_count || !in_reach(emitter, target->place)) {
    *target = (struct target){TARGET_RETURN, action, emit(emitter, RETURN(action))};
    if (i == emitter->return_count)
      emitter->return_count++;
  }
  return target->place;
}

/* A place that the next instructions can jump to and that leads to the target. */
static size_t reach(struct emitter *emitter, struct target target) {
  if (target.kind == TARGET_RETURN)
    return reach_return(emitter, target.action);
  if (in_reach(emitter, target.place))
    return target.place;
  return emit(emitter, SKIP(emitter->program->length - target.place - 1));
}

static struct target emit_jump(struct emitter *emitter, unsigned test, uint32_t value,
                               struct target yes, struct target no) {
  size_t yes_place = reach(emitter, yes), no_place = reach(emitter, no);
  size_t here = emitter->program->length;
  if (here - yes_place - 1 > UINT8_MAX || here - no_place - 1 > UINT8_MAX)
    die("a jump does not reach its target");
  emit(emitter, JUMP(test, value, here - yes_place - 1, here - no_place - 1));
  return (struct target){.place = here};
}

static struct target target_return(uint32_t action) {
  return (struct target){.kind = TARGET_RETURN, .action = action};
}

static struct target emit_check(struct emitter *emitter, const struct check *check,
                                struct target yes, struct target no) {
  if (check->kind == CHECK_ANY_BIT)
    emit_jump(emitter, BPF_JSET, check->mask, yes, no);
  else if (check->kind == CHECK_EQUAL)
    emit_jump(emitter, BPF_JEQ, check->value, yes, no);
  else
    emit_jump(emitter, BPF_JEQ, check->value, no, yes);
  if (check->kind != CHECK_ANY_BIT && check->mask != UINT32_MAX)
    emit(emitter, AND(check->mask));
  struct sock_filter load = LOAD(args); /* little endian: the low half comes first */
  load.k += check->argument * sizeof(uint64_t) + check->high * sizeof(uint32_t);
  return (struct target){.place = emit(emitter, load)};
}

static struct target emit_rules(struct emitter *emitter, const struct rule *rule) {
  struct target yes = target_return(rule->action);
  size_t count = 0;
  while (rule->checks[count].kind != CHECK_END)
    count++;
  if (count == 0)
    return yes;
  const struct rule *next = rule_next(rule, rule->calls[0], emitter->variant);
  if (!next)
    die("the last rule of %s must have no checks", rule->calls[0]);
  struct target no = emit_rules(emitter, next);
  while (count-- > 0)
    yes = emit_check(emitter, &rule->checks[count], yes, no);
  return yes;
}

static struct target target_of(struct emitter *emitter, const struct segment *segment) {
  if (!segment->rules)
    return target_return(segment->action);
  size_t i = 0;
  while (i < emitter->block_count && emitter->blocks[i].rules != segment->rules)
    i++;
  if (i == emitter->block_count) {
    if (i == sizeof emitter->blocks / sizeof emitter->blocks[0])
      die("too many calls with rules");
    emitter->blocks[i].rules = segment->rules;
    emitter->blocks[i].target = emit_rules(emitter, segment->rules);
    emitter->block_count++;
  }
  return emitter->blocks[i].target;
}

static bool same(const struct segment *a, const struct segment *b) {
  return a->action == b->action && a->rules == b->rules;
}

/* How many of the segments are one kind with a few single numbers in between that are not. */
static size_t group_length(const struct segment *segments, size_t count) {
  size_t length = 1;
  while (length < 2 * EXCEPTIONS && length + 1 < count &&
         segments[length].first + 1 == segments[length + 1].first &&
         same(&segments[0], &segments[length + 1]))
    length += 2;
  return length;
}

static struct target emit_group(struct emitter *emitter, const struct segment *segments,
                                size_t length) {
  struct target target = target_of(emitter, &segments[0]);
  for (size_t i = 1; i < length; i += 2)
    target =
        emit_jump(emitter, BPF_JEQ, segments[i].first, target_of(emitter, &segments[i]), target);
  return target;
}

/* A run of segments, starting at a number. */
struct group {
  const struct segment *segments;
  size_t length;
};

static struct target emit_tree(struct emitter *emitter, const struct group *groups, size_t count) {
  if (count == 1)
    return emit_group(emitter, groups->segments, groups->length);
  size_t middle = count / 2;
  struct target above = emit_tree(emitter, groups + middle, count - middle);
  struct target below = emit_tree(emitter, groups, middle);
  return emit_jump(emitter, BPF_JGE, groups[middle].segments->first, above, below);
}

static struct target emit_table(struct emitter *emitter, const struct table *table) {
  struct group groups[2048];
  size_t count = 0;
  for (size_t i = 0; i < table->count; i += groups[count++].length)
    groups[count] =
        (struct group){&table->segments[i], group_length(&table->segments[i], table->count - i)};
  emit_tree(emitter, groups, count);
  return (struct target){.place = emit(emitter, LOAD(nr))};
}

void emit_filter(struct program *program, const struct table *tables, size_t count,
                 struct variant variant) {
  struct emitter emitter = {.program = program, .variant = variant};
  /* No kernel we know gets here: one that calls in another way is not one to guess about. */
  struct target otherwise = target_return(SECCOMP_RET_KILL_PROCESS);
  for (size_t i = 0; i < count; i++) /* the code of the rules, where all tables reach it */
    for (size_t j = 0; j < tables[i].count; j++)
      target_of(&emitter, &tables[i].segments[j]);
  while (count-- > 0) {
    struct target found = emit_table(&emitter, &tables[count]);
    otherwise = emit_jump(&emitter, BPF_JEQ, tables[count].audit_arch, found, otherwise);
  }
  emit(&emitter, LOAD(arch));
}
