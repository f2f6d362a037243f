/* Makes the system call filters at build time from src/engine/syscalls.def:
 *   genfilter ARCHITECTURE SYMBOL >header
 * libseccomp knows the numbers of each architecture. The programs are made here, because libseccomp
 * cannot say what we need in one program: it refuses (EFAULT) numbers it has no name for on any but
 * the native architecture, and it has no "low 32 bits differ from", which ioctl needs. */
#include "genfilter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/syscalls.h"
#include "engine/traps.h"

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define REFUSE(errno)     (SECCOMP_RET_ERRNO | (errno))

/* A table of numbers: one entry of the kernel into which programs of that kind call. */
struct abi {
  uint32_t token; /* libseccomp's name for it */
  uint32_t audit_arch;
};

/* A 64-bit kernel also runs 32-bit programs, and 64-bit programs can call it as if they were. */
struct architecture {
  const char *name;
  struct abi abis[2];
};

static const struct architecture architectures[] = {
    {"x86_64", {{SCMP_ARCH_X86_64, AUDIT_ARCH_X86_64}, {SCMP_ARCH_X86, AUDIT_ARCH_I386}}},
    {"aarch64", {{SCMP_ARCH_AARCH64, AUDIT_ARCH_AARCH64}, {SCMP_ARCH_ARM, AUDIT_ARCH_ARM}}},
};

/* Where numbers live; the second range is 32-bit ARM's own. */
static const struct { uint32_t first, end; } ranges[] = {{0, 1024}, {0xf0000, 0xf0010}};

static const char *const variant_names[WAIT_COUNT][2][2] = {
    {{"plain", "containers"}, {"debug", "debug_containers"}},
    {{"paths", "paths_containers"}, {"paths_debug", "paths_debug_containers"}},
    {{"connect", "connect_containers"}, {"connect_debug", "connect_debug_containers"}},
    {{"datagrams", "datagrams_containers"}, {"datagrams_debug", "datagrams_debug_containers"}},
};

/* The rows of traps.def; the number is filled in for each architecture. */
static const struct trap traps[] = {
#define NONE TRAP_NONE
#define CWD  TRAP_CWD
#define TRAP(kind, name, base, path, base2, path2, flags, links)                                   \
  {0, 0, TRAP_##kind, {{base, path}, {base2, path2}}, flags, TRAP_##links, #name},
#include "engine/traps.def"
#undef TRAP
#undef CWD
#undef NONE
};

static bool is_trapped(const char *name) {
  for (size_t i = 0; i < ARRAY_SIZE(traps); i++) {
    if (strcmp(traps[i].name, name) == 0)
      return true;
  }
  return false;
}

void die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("genfilter: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(1);
}

static const struct syscall_row *find_row(const char *name) {
  for (size_t i = 0; i < ARRAY_SIZE(syscall_rows); i++) {
    if (strcmp(syscall_rows[i].name, name) == 0)
      return &syscall_rows[i];
  }
  die("libseccomp knows %s, syscalls.def does not: classify it", name);
}

static const struct syscall_row *row_by_number(struct abi abi, uint32_t number) {
  for (size_t i = 0; i < ARRAY_SIZE(syscall_rows); i++) {
    const struct syscall_row *row = &syscall_rows[i];
    bool here = row->number >= SYSCALL_FIRST_COMMON || abi.token == SCMP_ARCH_X86_64;
    if (row->number >= 0 && (uint32_t)row->number == number && here)
      return row;
  }
  return NULL;
}

/* The row of a number, or NULL if nobody knows a call by it. */
static const struct syscall_row *row_of(struct abi abi, uint32_t number) {
  const struct syscall_row *numbered = row_by_number(abi, number);
  char *name = seccomp_syscall_resolve_num_arch(abi.token, number);
  if (!name)
    return numbered;
  const struct syscall_row *named = find_row(name);
  if (numbered && named != numbered)
    die("%s has the number %u, says libseccomp: that is %s", numbered->name, number, name);
  free(name);
  return named;
}

/* The rules of a call; if the first has no checks, it is as good as an action. */
static struct segment segment_by_rules(const char *name, struct variant variant) {
  const struct rule *first = rule_next(NULL, name, variant);
  if (!first)
    die("%s is decided by its arguments, but has no rules", name);
  if (first->checks[0].kind == CHECK_END)
    return (struct segment){.action = first->action};
  return (struct segment){.rules = first};
}

static struct segment segment_of(const struct syscall_row *row, struct variant variant) {
  struct segment allow = {.action = SECCOMP_RET_ALLOW};
  struct segment refuse = {.action = REFUSE(EPERM)};
  struct segment absent = {.action = REFUSE(ENOSYS)};
  if (!row)
    return absent;
  switch (row->class) {
  case SYSCALL_ALLOW:
    if (variant.waits >= WAIT_CONNECT && strcmp(row->name, "connect") == 0)
      return (struct segment){.action = SECCOMP_RET_USER_NOTIF};
    if (variant.waits != WAIT_PATHS || !is_trapped(row->name))
      return allow;
    if (rule_next(NULL, row->name, variant))
      return segment_by_rules(row->name, variant);
    return (struct segment){.action = SECCOMP_RET_USER_NOTIF};
  case SYSCALL_DEBUG:
    return variant.debug ? allow : refuse;
  case SYSCALL_CONTAINERS:
    return variant.containers ? allow : refuse;
  case SYSCALL_ARGUMENTS:
    return segment_by_rules(row->name, variant);
  case SYSCALL_DENY:
    return refuse;
  case SYSCALL_ABSENT:
    return absent;
  }
  die("%s has no class", row->name);
}

/* Adds a segment, unless it only continues the one before. */
static void add_segment(struct table *table, uint32_t first, struct segment segment) {
  const struct segment *last = table->count ? &table->segments[table->count - 1] : NULL;
  if (last && last->action == segment.action && last->rules == segment.rules)
    return;
  if (table->count == ARRAY_SIZE(table->segments))
    die("too many segments");
  segment.first = first;
  table->segments[table->count++] = segment;
}

static struct table make_table(struct abi abi, struct variant variant) {
  struct table table = {.audit_arch = abi.audit_arch};
  for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
    for (uint32_t number = ranges[i].first; number < ranges[i].end; number++)
      add_segment(&table, number, segment_of(row_of(abi, number), variant));
    add_segment(&table, ranges[i].end, segment_of(NULL, variant));
  }
  return table;
}

static void write_program(const struct architecture *architecture, const char *symbol,
                          struct variant variant) {
  struct table tables[ARRAY_SIZE(architecture->abis)];
  for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
    tables[i] = make_table(architecture->abis[i], variant);
  struct program program = {.length = 0};
  emit_filter(&program, tables, ARRAY_SIZE(tables), variant);

  printf("static const struct sock_filter %s_%s[] = {\n", symbol,
         variant_names[variant.waits][variant.debug][variant.containers]);
  while (program.length-- > 0) {
    struct sock_filter code = program.code[program.length];
    printf("  {0x%02x, %u, %u, 0x%08x},\n", code.code, code.jt, code.jf, code.k);
  }
  printf("};\n");
}

static const struct architecture *find_architecture(const char *name) {
  for (size_t i = 0; i < ARRAY_SIZE(architectures); i++) {
    if (strcmp(architectures[i].name, name) == 0)
      return &architectures[i];
  }
  die("no filter is known for the architecture %s", name);
}

/* The decoder's table: every number of ours by which a trapped call is known. */
static void write_traps(const struct architecture *architecture, const char *symbol) {
  printf("static const struct trap %s_traps[] = {\n", symbol);
  for (size_t abi = 0; abi < ARRAY_SIZE(architecture->abis); abi++) {
    for (uint32_t number = ranges[0].first; number < ranges[0].end; number++) {
      const struct syscall_row *row = row_of(architecture->abis[abi], number);
      for (size_t i = 0; row && i < ARRAY_SIZE(traps); i++) {
        const struct trap *trap = &traps[i];
        if (strcmp(trap->name, row->name) != 0)
          continue;
        printf("  {0x%08xu, %u, %d, {{%d, %d}, {%d, %d}}, %d, %d, \"%s\"},\n",
               architecture->abis[abi].audit_arch, number, trap->kind, trap->at[0].base,
               trap->at[0].path, trap->at[1].base, trap->at[1].path, trap->flags, trap->links,
               trap->name);
      }
    }
  }
  printf("};\n");
}

static void check_traps(void) {
  for (size_t i = 0; i < ARRAY_SIZE(traps); i++) {
    enum syscall_class class = find_row(traps[i].name)->class;
    if (class != SYSCALL_ALLOW && class != SYSCALL_ARGUMENTS)
      die("traps.def has %s, which syscalls.def does not allow", traps[i].name);
  }
}

static struct variant variant_of(int index) {
  return (struct variant){
      .waits = (enum seccomp_waits)(index >> 2), .debug = index & 2, .containers = index & 1};
}

int main(int argc, char **argv) {
  if (argc != 3)
    die("usage: genfilter ARCHITECTURE SYMBOL");
  const struct architecture *architecture = find_architecture(argv[1]);
  const char *symbol = argv[2];

  check_traps();
  printf("/* Made by tools/genfilter from src/engine/syscalls.def and traps.def. */\n");
  for (int i = 0; i < 4 * WAIT_COUNT; i++)
    write_program(architecture, symbol, variant_of(i));
  printf("static const struct sock_fprog %s[%d][2][2] = { /* [waits][debug][containers] */\n",
         symbol, WAIT_COUNT);
  for (int i = 0; i < 4 * WAIT_COUNT; i++) {
    const char *variant = variant_names[i >> 2][i >> 1 & 1][i & 1];
    printf("  [%d][%d][%d] = {sizeof %s_%s / sizeof %s_%s[0], (struct sock_filter *)%s_%s},\n",
           i >> 2, i >> 1 & 1, i & 1, symbol, variant, symbol, variant, symbol, variant);
  }
  printf("};\n");
  write_traps(architecture, symbol);
  if (fflush(stdout) != 0)
    die("writing failed: %s", strerror(errno));
  return 0;
}
