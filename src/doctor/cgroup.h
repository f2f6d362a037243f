/* Which cgroups there are and where our own folder in them is. */
#pragma once

enum cgroup_layout { CGROUP_NONE, CGROUP_V1, CGROUP_HYBRID, CGROUP_V2 };

/* Pure: from the file system types of /sys/fs/cgroup and of its folder "unified". */
enum cgroup_layout cgroup_layout_of(long root_type, long unified_type);

/* Pure: our path in the hierarchy of a v1 controller (NULL: in cgroup v2), from the text of
 * /proc/self/cgroup. A new string, or NULL if there is none. */
char *cgroup_path_in(const char *text, const char *controller);

/* The folder of our own cgroup for a v1 controller (NULL: v2), or NULL. New string. */
char *cgroup_own_folder(const char *controller);
