/* What a changed name means for the person who comes back to the project: does something run it
 * later, does it lead outside, could it deceive a reader? Pure: no file system is touched. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum change_kind { CHANGE_CREATED, CHANGE_MODIFIED, CHANGE_DELETED, CHANGE_KIND_COUNT };

enum change_flag {
  CHANGE_SETUID = 1 << 0,
  CHANGE_SETGID = 1 << 1,
  CHANGE_FIFO = 1 << 2,
  CHANGE_SOCKET = 1 << 3,
  CHANGE_DEVICE = 1 << 4,
  CHANGE_LINK_OUTSIDE = 1 << 5, /* a symbolic link that leaves the writable places */
  CHANGE_HOOK = 1 << 6,         /* an executable file where hooks are looked for */
  CHANGE_NESTED_GIT = 1 << 7,   /* a repository inside the project */
  CHANGE_STRANGE_NAME = 1 << 8, /* control, invisible or direction-changing characters */
  CHANGE_PROTECTED = 1 << 9,    /* in the table of protected names */
  CHANGE_RUN_LATER = 1 << 10,   /* ordinary source that a tool of the host executes */
  CHANGE_STICKY = 1 << 11,
  CHANGE_FLAG_COUNT = 12
};

/* What nobody writes by accident; `apply` leaves it out unless told otherwise. */
#define CHANGE_DANGEROUS                                                                           \
  (CHANGE_SETUID | CHANGE_SETGID | CHANGE_FIFO | CHANGE_SOCKET | CHANGE_DEVICE |                   \
   CHANGE_LINK_OUTSIDE | CHANGE_HOOK | CHANGE_NESTED_GIT | CHANGE_STRANGE_NAME | CHANGE_PROTECTED)

struct judged {
  enum change_kind kind;
  const char *path;  /* relative to the writable place */
  mode_t mode;       /* type and permissions as they are now; of the old one if deleted */
  const char *link;  /* target of a symbolic link; NULL if it is none or is not known */
  const char *place; /* absolute path of the writable place */
  char *const *places;
  size_t place_count; /* all writable places */
  bool at_home;       /* the place is the home folder */
};

struct judgement {
  unsigned flags;
  const char *reason; /* why a protected or executed name matters; NULL if neither */
};

struct judgement change_judge(const struct judged *judged);

/* The stable name of one flag ("setuid", "fifo", …) and its sentence for people. */
const char *change_flag_name(enum change_flag flag);
const char *change_flag_text(enum change_flag flag);
const char *change_kind_name(enum change_kind kind);
const char *change_type_name(mode_t mode);

/* True for a character that hides, reorders or moves the cursor instead of being seen. */
bool character_deceives(unsigned code_point);
