/* Removing a tree whose names, modes and depth the workload chose. */
#pragma once

/* Removes everything below a folder and the folder; links are removed, never followed. The entry
 * `last` (or none, if NULL) of the folder goes last. 0 or a negative errno. */
int tree_remove(int parent, const char *name, const char *last);
