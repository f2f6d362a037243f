/* What a caller wants with an object whose attributes the kernel asks for; see purpose.h. */
#include "gate/purpose.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gate/doing.h"

static enum purpose purpose_of_trap(const struct trap *trap) {
  switch (trap->kind) {
  case TRAP_STAT:
    return PURPOSE_LOOK;
  case TRAP_EXECUTE:
    return PURPOSE_EXECUTE;
  case TRAP_TEST:
  case TRAP_ENTER:
    return PURPOSE_TEST;
  case TRAP_READ:
    return trap->links == TRAP_WATCH ? PURPOSE_WATCH : PURPOSE_USE;
  default:
    return PURPOSE_USE;
  }
}

/* fstat(2) takes no path. The same numbers on x86 and arm. */
static bool looks_at_descriptor(const struct doing *doing) {
  enum { COMPAT_FSTAT = 108, COMPAT_FSTAT64 = 197 };
  return doing->compat ? doing->number == COMPAT_FSTAT || doing->number == COMPAT_FSTAT64
                       : doing->number == SYS_fstat;
}

static bool ends_at(const struct doing *doing, const struct trap *trap, const char *object) {
  char path[PATH_MAX];
  int base = trap->at[0].base == TRAP_CWD ? AT_FDCWD : (int)doing->arguments[trap->at[0].base];
  return target_read_path(&doing->target, doing->arguments[trap->at[0].path], path) == 0 &&
         doing_leads_to(doing, base, path, object);
}

/* The path of the name that is made: the last one. Not what has its flags in memory. */
static const struct trap *find_maker(const struct doing *doing, size_t *ret_index) {
  const struct trap *trap = doing_trap(doing);
  bool makes =
      trap && (trap->kind == TRAP_MAKE || trap->kind == TRAP_FOLDER || trap->kind == TRAP_CREATE ||
               (trap->kind == TRAP_OPEN && doing->arguments[trap->flags] & O_CREAT));
  *ret_index = makes && trap->at[1].path != TRAP_NONE;
  return makes ? trap : NULL;
}

/* "a/b/" becomes "a/.", and the name is "b". */
static bool cut_name(char path[PATH_MAX], char ret_name[NAME_MAX + 1]) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/')
    path[--length] = '\0';
  char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  size_t size = strlen(name);
  if (size == 0 || size > NAME_MAX)
    return false;
  memcpy(ret_name, name, size + 1);
  memcpy(name, ".", 2);
  return true;
}

bool purpose_is_to_make(const struct target *target, const char *folder,
                        char ret_name[NAME_MAX + 1]) {
  struct doing doing;
  char path[PATH_MAX];
  size_t index;
  const struct trap *trap = doing_read(target, &doing) < 0 ? NULL : find_maker(&doing, &index);
  if (!trap || target_read_path(target, doing.arguments[trap->at[index].path], path) < 0 ||
      !cut_name(path, ret_name))
    return false;
  int base = trap->at[index].base;
  base = base == TRAP_CWD ? AT_FDCWD : (int)doing.arguments[base];
  return doing_leads_to(&doing, base, path, folder);
}

enum purpose purpose_of(const struct target *target, const char *path, bool folder, int *ret_mask) {
  struct doing doing;
  *ret_mask = 0;
  if (doing_read(target, &doing) < 0)
    return PURPOSE_UNKNOWN;
  const struct trap *trap = doing_trap(&doing);
  if (!trap)
    return looks_at_descriptor(&doing) ? PURPOSE_LOOK : PURPOSE_UNKNOWN;
  enum purpose purpose = purpose_of_trap(trap);
  if (purpose != PURPOSE_TEST)
    return purpose;
  *ret_mask = trap->kind == TRAP_ENTER ? X_OK : (int)doing.arguments[trap->at[0].path + 1];
  if (*ret_mask & W_OK && folder && !ends_at(&doing, trap, path))
    *ret_mask &= ~W_OK;
  return purpose;
}
