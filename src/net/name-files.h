/* The files of this machine that say how names are resolved: resolv.conf and hosts. Programs
 * replace them by renaming, and the relay may open only what was there when it confined itself:
 * Landlock's rules are about files, not names. A rule about their folder would let a relay that was
 * taken over read all of /etc, with root's secrets. So the monitor, which is not confined, gives it
 * copies of these two, and the relay cannot name others. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

enum name_file { NAME_FILE_RESOLVER, NAME_FILE_HOSTS, NAME_FILES };
extern const char *const name_file_paths[NAME_FILES];

/* Which files they were. */
struct name_stamp {
  struct stat files[NAME_FILES];
};

/* Takes the stamp of now; true if it is another. What is not there is about to come back. */
bool name_stamp_renew(struct name_stamp *stamp);

struct name_files {
  int copies[NAME_FILES]; /* in memory, or -1 */
  struct name_stamp stamp;
};
#define NAME_FILES_NONE ((struct name_files){.copies = {-1, -1}})

/* Copies them if they have changed since the last time. 0 or a negative errno. */
int name_files_renew(struct name_files *files);
void name_files_clear(struct name_files *files);
