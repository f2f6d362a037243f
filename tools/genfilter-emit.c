/* Classic BPF for a sorted list of segments: a binary search over the numbers, so that every call
 * is decided after a few jumps. Calls without argument rules touch nothing but architecture and
 * number, which lets the kernel (5.11) answer them from its bitmap without running the program. */
#include "genfilter.h"

#include <linux/seccomp.h>
#include <string.h>

#define LOAD(field)                                                                                \
  (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(action)      (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, action)
#define AND(mask)           (struct sock_filter) BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask)
#define SKIP(count)         (struct sock_filter) BPF_STMT(BPF_JMP | BPF_JA, count)
#define JUMP(test, k, t, f) (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_K | (test), k, t, f)

void emit(struct program *program, struct sock_filter instruction) {
  if (program->length == BPF_MAXINSNS)
    die("the filter has more than %d instructions", BPF_MAXINSNS);
  program->code[program->length++] = instruction;
}

/* Jumps over `distance` instructions if the test holds; conditional jumps reach only 255. */
static void emit_jump_over(struct program *program, unsigned test, uint32_t value,
                           size_t distance) {
  if (distance <= UINT8_MAX) {
    emit(program, JUMP(test, value, distance, 0));
    return;
  }
  emit(program, JUMP(test, value, 0, 1));
  emit(program, SKIP(distance));
}

/* Falls through if the check holds, else jumps; the distance is filled in by emit_rule. */
static void emit_check(struct program *program, const struct check *check) {
  struct sock_filter load = LOAD(args); /* little endian: the low half comes first */
  load.k += check->argument * sizeof(uint64_t);
  emit(program, load);
  if (check->kind == CHECK_ANY_BIT) {
    emit(program, JUMP(BPF_JSET, check->mask, 0, UINT8_MAX));
    return;
  }
  if (check->mask != UINT32_MAX)
    emit(program, AND(check->mask));
  if (check->kind == CHECK_EQUAL)
    emit(program, JUMP(BPF_JEQ, check->value, 0, UINT8_MAX));
  else
    emit(program, JUMP(BPF_JEQ, check->value, UINT8_MAX, 0));
}

static void emit_rule(struct program *program, const struct rule *rule) {
  size_t start = program->length;
  for (const struct check *check = rule->checks; check->kind != CHECK_END; check++)
    emit_check(program, check);
  emit(program, RETURN(rule->action));
  for (size_t i = start; i < program->length; i++) {
    uint8_t distance = program->length - i - 1;
    if (program->code[i].jt == UINT8_MAX)
      program->code[i].jt = distance;
    if (program->code[i].jf == UINT8_MAX)
      program->code[i].jf = distance;
  }
}

static void emit_leaf(struct program *program, const struct segment *segment,
                      struct variant variant) {
  if (!segment->name) {
    emit(program, RETURN(segment->action));
    return;
  }
  for (size_t i = 0; i < rule_count; i++) {
    if (rule_applies(&rules[i], segment->name, variant))
      emit_rule(program, &rules[i]);
  }
}

static size_t measure_tree(const struct segment *segments, size_t count, struct variant variant);

static void emit_tree(struct program *program, const struct segment *segments, size_t count,
                      struct variant variant) {
  if (count == 1) {
    emit_leaf(program, segments, variant);
    return;
  }
  size_t middle = count / 2;
  emit_jump_over(program, BPF_JGE, segments[middle].first, measure_tree(segments, middle, variant));
  emit_tree(program, segments, middle, variant);
  emit_tree(program, segments + middle, count - middle, variant);
}

static size_t measure_tree(const struct segment *segments, size_t count, struct variant variant) {
  struct program scratch = {.length = 0};
  emit_tree(&scratch, segments, count, variant);
  return scratch.length;
}

void emit_architecture(struct program *program, uint32_t audit_arch, const struct segment *segments,
                       size_t count, struct variant variant) {
  emit(program, LOAD(arch));
  emit(program, JUMP(BPF_JEQ, audit_arch, 1, 0));
  emit(program, SKIP(measure_tree(segments, count, variant) + 1));
  emit(program, LOAD(nr));
  emit_tree(program, segments, count, variant);
}
