/* A set of inode numbers of one device: to recognise, during a walk that looks at names only, a
 * second name (hard link) of a file that must stay hidden. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "core/strv.h"

struct inode_set {
  dev_t device;
  ino_t *slots; /* open addressing; 0 is empty */
  size_t count, capacity;
};

/* Adds the file, or the files up to two levels below the folder, if they are on the device and not
 * too many: a browser profile has thousands, and they are not what people link to. False
 * if it is on another one. */
bool inode_set_add_tree(struct inode_set *set, const char *path);

/* The same, but only files that have a second name somewhere. */
void inode_set_add_linked(struct inode_set *set, const char *path);

/* Is this one of the hidden files, by a second name? Looked at anew each time: the host makes links
 * and replaces files while a session runs, and the number of one that is gone is given away again.
 */
bool inode_is_hidden(const struct strv *hidden, const struct stat *status);

bool inode_set_contains(const struct inode_set *set, ino_t inode);
void inode_set_clear(struct inode_set *set);
